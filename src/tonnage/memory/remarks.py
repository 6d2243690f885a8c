"""What a plan says beside its numbers: warnings before a first start, and notes on how well founded the rules are."""

from __future__ import annotations

from tonnage.facts.catalog import Model
from tonnage.facts.engine import EngineRules
from tonnage.facts.gpu import Card
from tonnage.facts.provenance import Banded
from tonnage.memory.budget import Budget, Server
from tonnage.memory.others import serial_note
from tonnage.settings import EngineSettings
from tonnage.units import GIB, size
from tonnage.workload.spec import Workload

SYSTEM = Banded(4 * GIB, 2 * GIB, 10 * GIB, "assumed", "a bare Linux with its page cache, on memory shared with the CPU")
LOW_END = "at the low end of the pool"
"""How the warning begins that users fit by the best estimate only."""
DISPLAY = Banded(GIB // 2, 0, 3 * GIB // 2, "assumed", "a desktop on one or two screens")


def warnings(server: Server, workload: Workload, spent: Budget, admitted: int, safe: int, cache: str) -> tuple[str, ...]:
    """Return what an operator should know before the first start; `cache` is the dtype of the cache."""
    card, shape, settings = server.card, server.shape, server.settings
    out = []
    capability = card.compute_capability
    name = f"{card.name} (compute capability {capability[0]}.{capability[1]})" if capability else card.name
    before_fp8 = capability is not None and capability < (8, 9)
    if before_fp8 and "FP8" in shape.quantisation.label:
        out.append(f"FP8 weights on {name} are only stored narrow: without FP8 arithmetic (8.9 and later) they save memory, not time")
    if before_fp8 and cache.startswith("fp8"):
        out.append(f"an FP8 cache on {name} has few backends: check that the engine starts with it")
    if cache.startswith("fp8") and settings.kv_cache_dtype != "auto":
        out.append("an FP8 cache is a change of model: run your evaluations again, above all at long context")
    if (settings.gpu_memory_utilization or 0) > 0.95:
        out.append(
            f"gpu-memory-utilization {settings.gpu_memory_utilization:g} leaves no headroom for prefill spikes; 0.90 to 0.92 is usual"
        )
    if shape.experts:
        out.append(
            f"all {shape.experts} experts are loaded: the {shape.params_active / 1e9:.1f}B active "
            f"of {shape.params_total / 1e9:.1f}B parameters save compute, not memory"
        )
    if workload.longest > shape.max_position:
        out.append(f"a context of {workload.longest:,} tokens is beyond the model's {shape.max_position:,}")
    if card.vendor not in ("NVIDIA", "AMD"):
        out.append(f"vLLM's memory rules were read for CUDA and ROCm; on {card.name} ({card.vendor}) they are assumed")
    if card.sliced and settings.parallel.cards > 1:
        out.append("slices of one GPU cannot speak to each other by NCCL: parallelism over slices does not start; use one larger slice")
    if workload.shared_prefix_tokens and not settings.enable_prefix_caching:
        out.append("a shared prefix is stored once only with prefix caching, which is off here: every user stores it")
    if card.display or card.unified:
        out.append(_held_by_others(card, spent))
    at_once = (settings.max_num_seqs or workload.users) * settings.parallel.dp
    if workload.users > at_once:
        out.append(f"max-num-seqs runs {at_once:,} at once of {workload.users:,} users, the rest queue: --max-num-seqs {workload.users}")
    elif admitted >= workload.users > safe and spent.pool.bytes > 0:
        out.append(f"{LOW_END} {safe} users fit, not {workload.users}: measure one start of this card before you rely on it")
    return tuple(out)


def _held_by_others(card: Card, spent: Budget) -> str:
    """Return what the system or a display is assumed to hold, and whether the engine starts beside it."""
    held, who = (SYSTEM, "the operating system and its page cache") if card.unified else (DISPLAY, "a display, if one is attached,")
    verb = "hold" if card.unified else "holds"
    kept = card.memory.best - spent.requested.best
    text = f"{who} {verb} {size(held.best)} of {card.name}'s memory ({size(held.low)} to {size(held.high)}, assumed): "
    if kept >= held.high:
        return text + f"{size(kept)} are kept back, which is enough"
    if kept >= held.best:
        return text + f"{size(kept)} are kept back; with more held the engine refuses to start, then lower the utilization"
    lower = int((card.memory.best - held.best) / card.memory.best * 100) / 100
    return text + f"only {size(kept)} are kept back, so the engine refuses to start; --utilization {lower:g} leaves room"


def notes(model: Model, settings: EngineSettings, rules: EngineRules, workload: Workload) -> tuple[str, ...]:
    """Return where a plan rests on less than measured rules."""
    out = list(model.notes)
    release = f"{rules.release[0]}.{rules.release[1]}"
    engine = settings.engine
    if engine != "vllm":
        out.append(
            f"the memory rules of {settings.release_name} are assumed: read in its code or documentation, "
            "no measured row stands behind them"
        )
        serial = serial_note(engine, workload.users)
        return (*out, serial) if serial else tuple(out)
    if rules.confidence == "assumed":
        out.append(f"release {release} is older than the rules we checked (from 0.19): the nearest law is assumed")
    if rules.confidence == "extrapolated":
        out.append(f"release {release} is newer than the rules we checked: the newest law is extrapolated")
    return tuple(out)
