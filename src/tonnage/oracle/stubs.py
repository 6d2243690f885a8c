"""What stands in for parts of vLLM that are compiled for a GPU: modules that import and operators that are never run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

EXTENSIONS = re.compile(r"vllm\.(.+\.)?_(\w+_)?C(_\w+)?")
"""vLLM's compiled modules: `_C`, `_moe_C`, `_C_stable_libtorch`, `vllm_flash_attn._vllm_fa3_C` and so on."""

KERNELS = ("vllm.vllm_flash_attn.cute",)
"""Modules of kernels in Python whose own imports need a CUDA toolchain; their place is taken even where they exist."""

OPTIONAL = ("tilelang", "cutlass", "cuda", "quack", "flash_kda", "vllm.third_party.flashmla")
"""Packages that a CUDA build brings or asks for, and a CPU build lacks; their place is taken only where they are absent."""

NAMESPACES = ("_C", "_moe_C", "_vllm", "_flash", "_qutlass")
"""Operator namespaces of the compiled modules."""


class Absent:
    """Anything that an absent kernel package might offer: every attribute and every call gives another of these."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, *args: Any, **_: object) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else Absent()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()

    def __getitem__(self, _: object) -> Any:
        return Absent()

    def __or__(self, other: object) -> Any:
        return Absent()

    __ror__ = __or__

    def __mro_entries__(self, _: tuple[type, ...]) -> tuple[type, ...]:
        return ()


class AbsentModule(ModuleType):
    """A module of an absent package; what is asked of it is `Absent`."""

    __version__ = "0"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


class Finder:
    """Finds modules by `takes`, and makes each with `module`; stands in `sys.meta_path`."""

    def __init__(self, takes: Callable[[str], bool], module: Callable[[str], ModuleType]) -> None:
        self.takes, self.module = takes, module

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec for a module that we stand in for."""
        return ModuleSpec(name, self, is_package=self.module is AbsentModule) if self.takes(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def within(name: str, packages: Sequence[str]) -> bool:
    """Return whether a module is one of the packages or inside one.

    >>> within("cutlass.cute", ["cutlass"]), within("cutlass_tools", ["cutlass"])
    (True, False)
    """
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def stand_in_for_modules() -> None:
    """Put the finders in place: extensions and kernels before the real ones, optional packages after them."""
    sys.meta_path.insert(0, Finder(lambda name: EXTENSIONS.fullmatch(name) is not None, ModuleType))
    sys.meta_path.insert(0, Finder(lambda name: within(name, KERNELS), AbsentModule))
    sys.meta_path.append(Finder(lambda name: within(name, OPTIONAL), AbsentModule))


class Operator:
    """An operator of a compiled extension: says that what it is asked about is supported, and otherwise nothing."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.default = self

    def __call__(self, *_: object, **__: object) -> Any:
        return True if "support" in self.__name__ else 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Operator(name)


def stand_in_for_operators(torch: Any) -> None:
    """Give every operator of vLLM's extensions that torch does not know, and let shapes be registered for it."""
    namespace, register = torch._ops._OpNamespace, torch.library.register_fake
    known = namespace.__getattr__

    def operator(self: Any, name: str) -> Any:
        try:
            return known(self, name)
        except AttributeError:
            if name.startswith("__") or not self.name.startswith(NAMESPACES):
                raise
            return Operator(name)

    def register_if_there(op: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            decorate = register(op, *args, **kwargs)
        except RuntimeError:
            return lambda function: function
        if args or kwargs.get("func") is not None or not callable(decorate):
            return decorate

        def decorated(function: Any) -> Any:
            try:
                return decorate(function)
            except RuntimeError:
                return function

        return decorated

    namespace.__getattr__ = operator
    torch.library.register_fake = register_if_there
