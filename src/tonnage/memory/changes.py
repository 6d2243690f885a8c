"""What would change the answer most: the same plan with one thing altered, and the users it then admits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.errors import TonnageError
from tonnage.facts.catalog import published_in
from tonnage.facts.provenance import Confidence
from tonnage.facts.shape import CompressedCache, KVCache
from tonnage.memory.pages import cache_bits
from tonnage.memory.plan import MemoryPlan, Request, plan
from tonnage.settings import EngineSettings

SMALL_BATCH = 2048
WORTH = 1.1
"""An alteration is worth a line where it admits a tenth more."""


class Change(msgspec.Struct, frozen=True):
    """One alteration, the flag that makes it, and the users admitted with it (`cards` of a replica where they change)."""

    what: str
    users: int
    flag: str = ""
    cards: int = 1
    confidence: Confidence = "measured"


def changes(made: MemoryPlan) -> tuple[Change, ...]:
    """Return the alterations that admit more users, the largest gain first; what an engine refuses is left out."""
    out = []
    for what, flag, request in _alternatives(made):
        try:
            other = plan(request)
        except TonnageError:
            continue
        if other.refusals or other.users.admitted < WORTH * made.users.admitted or other.users.admitted <= made.users.admitted:
            continue
        out.append(Change(what, other.users.admitted, flag, other.settings.parallel.cards, other.pool.confidence))
    return tuple(sorted(out, key=lambda change: -change.users))


def _with(request: Request, **fields: object) -> Request:
    settings: EngineSettings = msgspec.structs.replace(request.settings, **fields)
    return msgspec.structs.replace(request, settings=settings)


def _alternatives(made: MemoryPlan) -> Iterator[tuple[str, str, Request]]:
    request, settings = made.request, made.settings
    shape, workload, card = request.model.shape, request.workload, request.card
    modern = card.compute_capability is None or card.compute_capability >= (8, 9)
    if cache_bits(made.cache_dtype) == 16 and modern:
        yield "an FP8 cache (evaluate it)", "--kv fp8", _with(request, kv_cache_dtype="fp8")
    if shape.hybrid and settings.enable_prefix_caching:
        yield "no prefix caching", "--no-prefix-caching", _with(request, enable_prefix_caching=False)
    if not shape.quantisation.targets and modern:
        yield _quantised(request.model.name, "FP8", "fp8"), "--weights fp8", _with(request, weights="fp8")
    if not shape.quantisation.targets:
        yield _quantised(request.model.name, "INT4", "int4"), "--weights int4", _with(request, weights="int4")
    half = workload.context_tokens // 2
    if half > workload.shared_prefix_tokens and half > workload.output_tokens:
        shorter = msgspec.structs.replace(workload, context_tokens=half, p99_tokens=min(workload.p99_tokens, half))
        yield f"half the context ({half:,} tokens)", f"--context {half}", msgspec.structs.replace(request, workload=shorter)
    windowed = any(isinstance(cache, CompressedCache) or (isinstance(cache, KVCache) and cache.kind != "full") for cache in shape.caches)
    if windowed and (settings.max_num_batched_tokens or 0) > SMALL_BATCH:
        yield (
            f"a batch budget of {SMALL_BATCH:,}",
            f"--max-num-batched-tokens {SMALL_BATCH}",
            _with(request, max_num_batched_tokens=SMALL_BATCH),
        )
    if windowed and settings.async_scheduling and request.rules.batches_in_flight == "all":
        yield "no asynchronous scheduling", "--no-async-scheduling", _with(request, async_scheduling=False)
    if settings.engine == "vllm" and not shape.hybrid and settings.block_size is None:
        for size in (32, 64):
            yield f"blocks of {size} tokens", f"--block-size {size}", _with(request, block_size=size)
    yield from _parallel(made)


def _quantised(name: str, label: str, word: str) -> str:
    """Return how to say it: a published checkpoint goes by its name."""
    published = published_in(name, word)
    return f"{label} weights" + (f": {published.split('/')[-1]}" if published else "")


def _parallel(made: MemoryPlan) -> Iterator[tuple[str, str, Request]]:
    request, parallel = made.request, made.settings.parallel
    if made.request.model.shape.latent and parallel.tp > 1 and parallel.dcp == 1:
        wider = msgspec.structs.replace(parallel, dcp=parallel.tp)
        yield f"DCP over the {parallel.tp} cards (context shared out)", f"--dcp {parallel.tp}", _with(request, parallel=wider)
    doubled = msgspec.structs.replace(parallel, tp=parallel.tp * 2)
    if not request.card.sliced:
        yield f"{doubled.cards} cards (TP {doubled.tp})", f"--count {doubled.cards} --tp {doubled.tp}", _with(request, parallel=doubled)
