"""Do the stand-ins for compiled modules import, and stand in for those alone?"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from tonnage.oracle import stubs


@pytest.fixture(autouse=True)
def finders() -> Iterator[None]:
    """The stand-ins are in place during a test, and gone after it."""
    before, known = list(sys.meta_path), set(sys.modules)
    stubs.stand_in_for_modules()
    yield
    sys.meta_path[:] = before
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm._C", True), ("vllm._moe_C", True), ("vllm._C_stable_libtorch", True), ("vllm._flashmla_extension_C", True),
        ("vllm.vllm_flash_attn._vllm_fa3_C", True), ("vllm.config", False), ("vllm._custom_ops", False), ("other._C", False),
        ("vllm.config._Cache", False),
    ],
)  # fmt: skip
def test_compiled_modules_are_known_by_their_names(name: str, expected: bool) -> None:
    """New ones too: vLLM names them all alike."""
    assert bool(stubs.EXTENSIONS.fullmatch(name)) is expected


def test_an_absent_package_can_be_used_as_kernels_are_written() -> None:
    """Decorators, base classes, annotations, calls, attributes of attributes."""
    module = importlib.import_module("tilelang.language")
    thing = module.kernel.of(1)[2]

    def function() -> int:
        return 1

    class Derived(module.Base):  # type: ignore[name-defined,misc]
        """A class on something that is not there."""

    assert module.jit(function)() == 1
    assert Derived.__bases__ == (object,)
    assert isinstance(thing | None, stubs.Absent)


def test_a_package_that_is_there_stays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for optional packages come after the real ones."""
    monkeypatch.setattr(stubs, "OPTIONAL", (*stubs.OPTIONAL, "json"))
    assert importlib.import_module("json.tool").__name__ == "json.tool"
    assert not isinstance(importlib.import_module("json.tool"), stubs.AbsentModule)


def test_an_operator_says_that_it_is_supported() -> None:
    """And computes nothing otherwise."""
    operator = stubs.Operator("cutlass_scaled_mm_supports_fp8")
    assert (operator(90), stubs.Operator("rms_norm")(1), operator.default is operator) == (True, 0, True)
    with pytest.raises(AttributeError):
        operator.__wrapped__  # noqa: B018
