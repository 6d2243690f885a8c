"""Rows of an engine's own allocator -> our predictions, and where they differ.

A row has `id` and `inputs` (model, engine, capability, gpu_bytes, available_kv_bytes, args); `answers` are only compared,
never read to predict. A prediction is one value per row, also for rows that we cannot judge (`skipped`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tonnage.errors import InputError, TonnageError
from tonnage.facts.engine import parse_engine, rules_for
from tonnage.facts.shape import CompressedCache, KVCache, LatentCache, ModelShape, StateCache
from tonnage.memory.allocator import allocate
from tonnage.memory.budget import weight_rules
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.refusals import does_not_hold_one, refusals
from tonnage.memory.weights import rank_weights, served_dtype
from tonnage.settings import EngineSettings, Parallelism

A100 = (8, 0)
IGNORED = {
    "trust_remote_code",
    "enforce_eager",
    "seed",
    "skip_tokenizer_init",
    "disable_log_stats",
    "load_format",
    "model",
    "limit_mm_per_prompt",
}


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we say of one row; `skipped` holds the reason where we say nothing."""

    id: str
    refused: bool | None = None
    reason: str = ""
    num_gpu_blocks: int | None = None
    bytes_per_block: int | None = None
    max_concurrency: float | None = None
    kv_cache_size_tokens: int | None = None
    weights_bytes_per_rank: int | None = None
    skipped: str = ""


def predict(row: Mapping[str, Any], load: Callable[[str], ModelShape]) -> Prediction:
    """Return the prediction for a row; `load` gives the shape of a model by the name the row uses."""
    name = str(row.get("id", ""))
    try:
        return _predict(name, row["inputs"], load)
    except TonnageError as error:
        return Prediction(name, skipped=str(error))
    except (KeyError, TypeError, ValueError) as error:
        return Prediction(name, skipped=f"the row is malformed ({error!r})")


def _predict(name: str, inputs: Mapping[str, Any], load: Callable[[str], ModelShape]) -> Prediction:
    shape = load(str(inputs["model"]))
    engine, release = parse_engine(str(inputs["engine"]))
    rules = rules_for(engine, release)
    major, minor = str(inputs["capability"]).split(".")
    capability = (int(major), int(minor))
    settings, dtype = settings_of(inputs.get("args", {}), release)
    dtype = dtype or served_dtype(shape)
    refused = refusals(shape, settings, capability, rules)
    if refused:
        return Prediction(name, refused=True, reason=refused[0].reason)
    gpu = str(inputs.get("gpu_name", "A100" if capability == A100 else ""))
    settings = resolved(settings, shape, Host(int(inputs["gpu_bytes"]), capability, gpu), rules)
    pool = int(inputs["available_kv_bytes"])
    made = allocate(shape, settings, rules, capability, pool, dtype=dtype)
    held = rank_weights(
        shape, settings.parallel, dtype=dtype, vision=not settings.language_model_only, rules=weight_rules(rules, capability)
    )
    too_long = does_not_hold_one(made, pool)
    return Prediction(
        name,
        refused=too_long is not None,
        reason=too_long.reason if too_long else "",
        num_gpu_blocks=made.num_blocks,
        bytes_per_block=made.first_bytes,
        max_concurrency=made.concurrency(settings.max_model_len or 1),
        kv_cache_size_tokens=made.printed_tokens,
        weights_bytes_per_rank=held.total,
    )


def settings_of(args: Mapping[str, Any], release: tuple[int, int]) -> tuple[EngineSettings, str]:
    """Return the settings that engine arguments ask for, and the dtype they ask to serve in.

    Raises InputError: an argument that we do not know; its effect would be silently lost.
    """
    known = dict(args)
    parallel = Parallelism(
        tp=known.pop("tensor_parallel_size", 1), pp=known.pop("pipeline_parallel_size", 1), dp=known.pop("data_parallel_size", 1),
        dcp=known.pop("decode_context_parallel_size", 1), expert=known.pop("enable_expert_parallel", False),
    )  # fmt: skip
    drafted = known.pop("speculative_config", None)
    drafted = msgspec.json.decode(drafted) if isinstance(drafted, str) else drafted
    dtype = str(known.pop("dtype", "auto")).removeprefix("torch.")
    fields = {field: known.pop(field) for field in _FIELDS if field in known}
    unknown = sorted(set(known) - IGNORED)
    if unknown:
        raise InputError(f"engine argument {unknown[0]!r} is not known")
    settings = EngineSettings(
        release=release, parallel=parallel, num_speculative_tokens=int((drafted or {}).get("num_speculative_tokens", 0)), **fields
    )
    return settings, "" if dtype == "auto" else {"half": "float16", "float": "float32"}.get(dtype, dtype)


_FIELDS = (
    "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "block_size", "mamba_cache_mode",
    "mamba_ssm_cache_dtype", "async_scheduling", "disable_hybrid_kv_cache_manager", "language_model_only",
)  # fmt: skip


class Score(msgspec.Struct):
    """A tally of rows: how many, exact in blocks and bytes and concurrency, weights within half a per cent."""

    rows: int = 0
    exact: int = 0
    weights: int = 0
    refusals: int = 0
    refusals_right: int = 0
    skipped: int = 0


def kind_of(shape: ModelShape) -> str:
    """Return the kind of a model for the table of errors: plain, sliding, MLA, state or mixed.

    >>> from tonnage.facts.catalog import find_model
    >>> [kind_of(find_model(name).shape) for name in ("qwen3-8b", "gpt-oss-20b", "deepseek-v3", "qwen3.5-4b", "kimi-k3")]
    ['plain', 'sliding', 'MLA', 'state', 'mixed']
    """
    caches = shape.caches
    state = any(isinstance(cache, StateCache) for cache in caches)
    latent = any(isinstance(cache, LatentCache | CompressedCache) for cache in caches)
    windowed = any(isinstance(cache, KVCache) and cache.kind != "full" for cache in caches)
    if state:
        return "mixed" if latent or windowed else "state"
    return "MLA" if latent else ("sliding" if windowed else "plain")


def compare(prediction: Prediction, answers: Mapping[str, Any], score: Score) -> str:
    """Add one row to a tally; return what differs, in words, or "" where nothing does."""
    score.rows += 1
    if prediction.skipped:
        score.skipped += 1
        return f"skipped: {prediction.skipped}"
    if answers.get("refused"):
        score.refusals += 1
        score.refusals_right += bool(prediction.refused)
        score.exact += bool(prediction.refused)
        score.weights += bool(prediction.refused)
        return "" if prediction.refused else f"not refused: {answers.get('reason', '')[:90]}"
    if prediction.refused:
        return f"refused: {prediction.reason}"
    wrong = []
    for field in ("bytes_per_block", "num_gpu_blocks", "max_concurrency", "kv_cache_size_tokens"):
        ours, theirs = getattr(prediction, field), answers.get(field)
        if isinstance(theirs, int | float) and (
            abs(ours - theirs) > 1e-6 * max(1.0, abs(theirs)) if field == "max_concurrency" else ours != theirs
        ):
            wrong.append(f"{field} {ours} for {theirs}")
    score.exact += not wrong
    held = _held(answers.get("weights_per_rank"))
    near = not held or prediction.weights_bytes_per_rank is None or abs(prediction.weights_bytes_per_rank / held - 1) <= 0.005
    score.weights += near
    if not near:
        wrong.append(f"weights {prediction.weights_bytes_per_rank} for {held}")
    return "; ".join(wrong)


def _held(weights: Any) -> int | None:
    """Return the weights of rank 0, of the first stage where each has its own; None where they are not stated."""
    first = weights[0] if isinstance(weights, list) and weights else weights
    held = first.get("param_and_buffer_bytes") if isinstance(first, dict) else None
    return held if isinstance(held, int) else None
