"""What an engine chooses where the settings are silent: limits by card and release, prefix caching by kind of model.

Source: vLLM's EngineArgs at each release (reference rows: `answers.resolved` of the allocator's output).
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.facts.engine import EngineRules
from tonnage.facts.shape import ModelShape
from tonnage.settings import EngineSettings
from tonnage.units import GIB


class Host(msgspec.Struct, frozen=True):
    """What an engine asks of its card before it chooses: CUDA total bytes, compute capability, and the device's name."""

    memory_bytes: int
    capability: tuple[int, int] | None
    name: str = ""


def batch_limits(host: Host, rules: EngineRules) -> tuple[int, int]:
    """Return (max_num_seqs, max_num_batched_tokens) as vLLM's API server defaults them.

    >>> from tonnage.facts.engine import rules_for
    >>> batch_limits(Host(85_899_345_920, (9, 0), "NVIDIA H100 80GB HBM3"), rules_for("vllm", (0, 33)))
    (1024, 8192)
    >>> batch_limits(Host(23_654_532_382, (8, 9), "NVIDIA L4"), rules_for("vllm", (0, 33)))
    (256, 2048)
    """
    name = host.name.lower()
    if rules.large_card_tier and host.memory_bytes >= 160 * GIB:
        return 1024, 16_384
    if host.memory_bytes >= 70 * GIB and "a100" not in name and "gb10" not in name:
        return 1024, 8192
    return 256, 2048


def resolved(settings: EngineSettings, shape: ModelShape, host: Host, rules: EngineRules, *, architecture: str = "") -> EngineSettings:
    """Return the settings with every default of the release filled in.

    Raises InputError: a limit that is zero or negative, or max_model_len beyond the model's.
    """
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if (value := getattr(settings, name)) is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    world = settings.parallel.tp * settings.parallel.pp
    sequences, batch = batch_limits(host, rules) if settings.device == "gpu" else (128 * world, 2048 * world)
    floor = rules.multimodal_batch_floor.get(architecture or shape.architecture, 0)
    if settings.max_num_batched_tokens is None:
        batch = max(batch, floor)
        if not shape.caches:  # an encoder reads a whole sequence in one step: its batch is never shorter
            batch = max(batch, settings.max_model_len or shape.max_position)
    batch = settings.max_num_batched_tokens or batch
    sequences = settings.max_num_seqs or min(sequences, batch)
    longest = settings.max_model_len or shape.max_position
    caching = settings.enable_prefix_caching
    if caching is None:
        caching = rules.hybrid_prefix_caching if shape.hybrid else not shape.embeds_only
    return msgspec.structs.replace(
        settings,
        max_num_seqs=sequences,
        max_num_batched_tokens=batch,
        max_model_len=longest,
        enable_prefix_caching=caching,
        async_scheduling=settings.async_scheduling and settings.device == "gpu",
        gpu_memory_utilization=settings.gpu_memory_utilization or (rules.default_utilization if settings.engine == "vllm" else None),
    )


def tokens_in_flight(settings: EngineSettings, rules: EngineRules) -> int:
    """Return the tokens a window must hold beyond itself: one batch, or every batch that may be in flight.

    From 0.26 on vLLM counts pipeline stages, and one more batch with asynchronous scheduling.
    """
    batch = settings.max_num_batched_tokens or 0
    if rules.batches_in_flight == "one":
        return batch
    return batch * (settings.parallel.pp + (1 if settings.async_scheduling else 0))
