"""How is an answer written down? As the rows of the allocator's data: `id, inputs, answers`, one JSON object a line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Any

import msgspec

from tonnage.errors import EndpointError
from tonnage.oracle.find import FOLLOW, attributes, find

LAYER_FIELDS = (
    "num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "page_size_padded", "sliding_window", "attention_chunk_size",
    "shapes", "dtypes", "cache_dtype_str", "tokens_per_state", "dcp_sharded", "mamba_type", "num_speculative_blocks",
    "state_content_bytes", "num_head_slots", "max_tp_shards", "block_stride_alignment", "tp_replicated", "extra_retained_tokens",
    "mamba_cache_mode", "indexes_kv_by_block_stride", "alignment", "compress_ratio",
)  # fmt: skip
"""Fields of a layer's spec that a row carries where the release has them."""

LONGEST_REASON = 800
DRAFT_SHARES = ("embed_tokens", "lm_head")


def resolved(config: Any) -> dict[str, Any]:
    """Return what vLLM chose where nothing was asked."""
    model = attributes(
        config.model_config, "ModelConfig", ("architecture", "dtype", "max_model_len", "is_hybrid", "use_mla", "quantization")
    )
    scheduler = attributes(config.scheduler_config, "SchedulerConfig", ("max_num_seqs", "max_num_batched_tokens", "async_scheduling"))
    cache = attributes(config.cache_config, "CacheConfig", ("cache_dtype", "enable_prefix_caching", "mamba_cache_mode"))
    found = {**model, **scheduler, **cache, **attributes(config, "VllmConfig", ("max_in_flight_tokens",)), "dtype": str(model["dtype"])}
    order = (
        "architecture", "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_in_flight_tokens", "async_scheduling",
        "cache_dtype", "enable_prefix_caching", "mamba_cache_mode", "is_hybrid", "use_mla", "quantization",
    )  # fmt: skip
    return {name: found[name] for name in order}


def extra(config: Any) -> dict[str, Any]:
    """Return what else is good to know of a configuration, and does not decide blocks."""
    graphs = config.compilation_config
    return {
        "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
        "model_runner_v2": config.use_v2_model_runner,
        "disable_hybrid_kv_cache_manager": config.scheduler_config.disable_hybrid_kv_cache_manager,
        "cudagraph_mode": str(graphs.cudagraph_mode),
        "cudagraph_capture_sizes_max": graphs.max_cudagraph_capture_size,
    }


def weights(model: Any, stage: int) -> dict[str, Any]:
    """Return elements and bytes of a model's parameters and buffers, each once, by dtype.

    As vLLM creates them, before they are processed after loading; packed dtypes count as stored.
    """
    seen: set[int] = set()
    elements = size = 0
    by_dtype: dict[str, list[int]] = {}
    named = (
        (tensor, kind)
        for kind, every in (("", model.named_parameters), ("buffer:", model.named_buffers))
        for _, tensor in every(remove_duplicate=False)
    )
    for tensor, kind in named:
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        own = tensor.numel() * tensor.element_size()
        elements += 0 if kind else tensor.numel()
        size += own
        sums = by_dtype.setdefault(kind + str(tensor.dtype).removeprefix("torch."), [0, 0])
        sums[0] += tensor.numel()
        sums[1] += own
    return {"pp_rank": stage, "param_elements": elements, "param_and_buffer_bytes": size, "by_dtype": by_dtype}


def draft(model: Any, drafting: Any) -> dict[str, Any]:
    """Return what a draft model adds, without the embedding and head that it shares."""
    every = dict(model.named_parameters())
    own = [tensor for name, tensor in every.items() if not any(shared in name for shared in DRAFT_SHARES)]
    return {
        "method": drafting.method,
        "num_speculative_tokens": drafting.num_speculative_tokens,
        "architecture": drafting.draft_model_config.architecture,
        "param_elements_without_embed_lm_head": sum(tensor.numel() for tensor in own),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in own),
        "param_elements_all": sum(tensor.numel() for tensor in every.values()),
    }


def layer_specs(stages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specs of all layers, alike ones once with their count, in order of first appearance."""
    counted: dict[str, dict[str, Any]] = {}
    for specs in stages:
        for spec in specs.values():
            told = layer_spec(spec)
            key = msgspec.json.encode(told, order="deterministic").decode()
            counted.setdefault(key, {**dict(sorted(told.items())), "count": 0})["count"] += 1
    return list(counted.values())


def layer_spec(spec: Any) -> dict[str, Any]:
    """Return one layer's spec as plain values: its class, block, page, and the fields it has."""
    told: dict[str, Any] = {"type": type(spec).__name__, **attributes(spec, type(spec).__name__, ("block_size", "page_size_bytes"))}
    for name in LAYER_FIELDS:
        value = getattr(spec, name, None)
        if value is not None:
            told[name] = value if isinstance(value, int) and name != "kv_quant_mode" else str(value)
    if hasattr(spec, "real_page_size_bytes"):
        told["unpadded_page_size_bytes"] = spec.real_page_size_bytes
    return told


def blocks_resolved(cache: Any) -> dict[str, Any]:
    """Return the block size that backends and states settled on."""
    found = attributes(cache, "CacheConfig", ("block_size", "mamba_page_size_padded"))
    return {"block_size_resolved": found["block_size"], "mamba_page_size_padded": found["mamba_page_size_padded"]}


def group(found: Any, config: Any) -> dict[str, Any]:
    """Return one group: its kind, block, page, layers, and what a request of max_model_len takes of it."""
    spec = found.kv_cache_spec
    inner = find("vllm.v1.kv_cache_interface.iter_layer_specs")(spec)
    return {
        "spec": type(spec).__name__,
        "inner": sorted({type(each).__name__ for each in inner}),
        "block_size": spec.block_size,
        "page_size_bytes": spec.page_size_bytes,
        "layers": len(found.layer_names),
        "blocks_per_max_len_request": -(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes),
        "eagle": found.is_eagle_group,
    }


def reason(error: BaseException, *, bare: bool = False) -> str:
    """Return a refusal in the engine's words, with its kind unless `bare`; pydantic's frame around it left out.

    >>> reason(ValueError("24 heads")), reason(ValueError("1 validation error\\n  Value error, 24 heads [type=x, input=y]"))
    ('ValueError: 24 heads', 'Value error, 24 heads')
    """
    text = str(error)
    framed = re.search(r"Value error, (.*?)(?: \[type=|\n  For further|$)", text, re.DOTALL)
    told = f"Value error, {framed[1].strip()}" if framed else text if bare else f"{type(error).__name__}: {text}"
    return told[:LONGEST_REASON]


def raised_in(error: BaseException) -> str:
    """Return the last place in vLLM that an error came through, as vllm/config/model.py:733; "" where there was none."""
    frames = [
        f"{frame.filename.rpartition('/vllm/')[2]}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/vllm/" in frame.filename
    ]
    return f"vllm/{frames[-1]}" if frames else ""


def in_order(answers: dict[str, Any]) -> dict[str, Any]:
    """Return answers with the verdict first and what does not decide blocks last.

    >>> list(in_order({"extra": 1, "groups": 2, "reason": 3, "refused": 4}))
    ['refused', 'reason', 'groups', 'extra']
    """
    first = [name for name in ("refused", "reason", "raised_in") if name in answers]
    last = [name for name in ("weights_per_stage", "extra") if name in answers]
    return {name: answers[name] for name in (*first, *(name for name in answers if name not in {*first, *last}), *last)}


def could_not_be_asked(error: BaseException, version: str) -> EndpointError:
    """Return the error for a failure that is no refusal: an import, a name or a type that is not as we expect it."""
    missing = _missing(error)
    hint = f"install {missing} beside vLLM" if missing else f"this is no refusal: something moved, or too little is faked; {FOLLOW}"
    place = raised_in(error) or "tonnage.oracle"
    return EndpointError(f"vllm {version}: its code could not be asked: {type(error).__name__} in {place}: {str(error)[:300]}", hint=hint)


def _missing(error: BaseException | None) -> str:
    """Return the package whose absence is behind an error; "" where it is something else."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "vllm":
            return error.name.partition(".")[0]
        error = error.__cause__
    return ""
