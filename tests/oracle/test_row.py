"""Is an answer written down as the allocator's rows are? With stand-ins for the engine's objects, and no engine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tonnage.errors import EndpointError, UnknownError
from tonnage.oracle import find, row


class Tensor(NamedTuple):
    """A tensor as a row sees it."""

    elements: int
    bytes_each: int
    dtype: str

    def numel(self) -> int:
        """Return the number of elements."""
        return self.elements

    def element_size(self) -> int:
        """Return the bytes of one."""
        return self.bytes_each


class Model:
    """A model whose head is its embedding: one tensor under two names."""

    embedding = Tensor(100, 2, "torch.bfloat16")
    scale = Tensor(3, 4, "torch.float32")
    rope = Tensor(10, 2, "torch.bfloat16")

    def named_parameters(self, remove_duplicate: bool = True) -> list[tuple[str, Tensor]]:
        """Return every parameter by name."""
        return [("embed_tokens", self.embedding), ("lm_head", self.embedding), ("scale", self.scale)]

    def named_buffers(self, remove_duplicate: bool = True) -> list[tuple[str, Tensor]]:
        """Return every buffer by name."""
        return [("rope", self.rope)]


class FullAttentionSpec(SimpleNamespace):
    """A layer's spec by the name that vLLM gives it."""


SPEC = {
    "block_size": 16, "page_size_bytes": 65536, "real_page_size_bytes": 65536, "num_kv_heads": 8, "head_size": 128, "head_size_v": 128,
    "dtype": "torch.bfloat16", "kv_quant_mode": 0, "page_size_padded": None, "dcp_sharded": True, "tokens_per_state": 1,
}  # fmt: skip


def test_weights_count_each_tensor_once() -> None:
    """Tied weights under two names are one; buffers add bytes and no parameters."""
    assert row.weights(Model(), 0) == {
        "pp_rank": 0,
        "param_elements": 103,
        "param_and_buffer_bytes": 100 * 2 + 3 * 4 + 10 * 2,
        "by_dtype": {"bfloat16": [100, 200], "float32": [3, 12], "buffer:bfloat16": [10, 20]},
    }


def test_layers_alike_are_told_once(shared: Path) -> None:
    """As in the first shared row: 36 layers of Qwen3-8B, each field as it is there."""
    with (shared / "data" / "allocator" / "allocator.jsonl").open(encoding="utf-8") as rows:
        expected = json.loads(next(rows))["answers"]["layer_specs"]
    told = row.layer_specs([{f"layer {index}": FullAttentionSpec(**SPEC) for index in range(36)}])
    assert told == expected
    assert [list(each) for each in told] == [list(each) for each in expected]


def test_layers_that_differ_are_told_apart() -> None:
    """In order of first appearance, over all stages."""
    wide, narrow = FullAttentionSpec(**SPEC), FullAttentionSpec(**{**SPEC, "num_kv_heads": 4})
    told = row.layer_specs([{"0": wide, "1": narrow}, {"2": wide}])
    assert [(each["num_kv_heads"], each["count"]) for each in told] == [(8, 2), (4, 1)]


def config(**changed: Any) -> Any:
    """Return a configuration with what a row reads of it."""
    model = {"architecture": "A", "dtype": "torch.bfloat16", "max_model_len": 8, "is_hybrid": False, "use_mla": False, "quantization": None}
    scheduler = {"max_num_seqs": 1, "max_num_batched_tokens": 2, "async_scheduling": True}
    cache = {"cache_dtype": "auto", "enable_prefix_caching": True, "mamba_cache_mode": "none"}
    parts: dict[str, dict[str, Any]] = {"model_config": model, "scheduler_config": scheduler, "cache_config": cache}
    for part, fields in parts.items():
        for name in changed.get(part, ()):
            del fields[name]
    return SimpleNamespace(max_in_flight_tokens=4, **{part: SimpleNamespace(**fields) for part, fields in parts.items()})


def test_what_was_resolved_has_the_fields_of_the_shared_rows(shared: Path) -> None:
    """In their order too."""
    with (shared / "data" / "allocator" / "allocator.jsonl").open(encoding="utf-8") as rows:
        expected = json.loads(next(rows))["answers"]["resolved"]
    assert list(row.resolved(config())) == list(expected)


def test_a_field_that_has_moved_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release, and where to go on."""
    monkeypatch.setattr(find, "version", lambda: "0.35.0")
    with pytest.raises(
        UnknownError, match=r"^vllm 0\.35\.0: tonnage\.oracle expects CacheConfig\.mamba_cache_mode, which is not there$"
    ) as caught:
        row.resolved(config(cache_config=["mamba_cache_mode"]))
    assert "scripts/read-release" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "bare", "expected"),
    [
        pytest.param("No valid backend", False, "ValueError: No valid backend", id="with its kind"),
        pytest.param("To serve at least one request", True, "To serve at least one request", id="bare"),
        pytest.param(
            "1 validation error for VllmConfig\n  Value error, 24 heads (24) [type=value_error, input_value=x]\n    For more",
            False,
            "Value error, 24 heads (24)",
            id="pydantic's frame left out",
        ),
        pytest.param("x" * 2_000, True, "x" * 800, id="cut"),
    ],
)
def test_a_refusal_is_told_in_the_engines_words(text: str, bare: bool, expected: str) -> None:
    """As the shared rows tell it."""
    assert row.reason(ValueError(text), bare=bare) == expected


def test_a_missing_package_is_no_refusal() -> None:
    """The model's class could not be imported: say which package is missing, however deep."""
    deep = ModuleNotFoundError("Could not import module 'Gemma4Processor'")
    deep.__cause__ = ModuleNotFoundError("No module named 'torchvision'", name="torchvision")
    error = row.could_not_be_asked(deep, "0.33.0")
    assert isinstance(error, EndpointError)
    assert (error.exit_code, error.hint) == (3, "install torchvision beside vLLM")


def test_a_module_of_the_engine_that_is_missing_has_moved() -> None:
    """Not a package to install."""
    error = row.could_not_be_asked(ModuleNotFoundError("No module named 'vllm.x'", name="vllm.x"), "0.35.0")
    assert "vllm 0.35.0: its code could not be asked: ModuleNotFoundError" in error.problem
    assert "something moved" in error.hint
