"""What a card's memory is spent on before the pool, for one rank: weights, the overhead that its release charges, the rest.

requested = ceil(card x utilization)      pool = requested - weights - overhead charged
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from tonnage.facts.engine import EngineRules, by_capability
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants
from tonnage.facts.provenance import Banded
from tonnage.facts.shape import ModelShape
from tonnage.facts.site import Correction
from tonnage.memory.ledger import Line, Pool, line, pool_of
from tonnage.memory.others import budget as other_budget
from tonnage.memory.overhead import EngineLoad, overhead
from tonnage.memory.site import corrected
from tonnage.memory.weights import ExpertPadding, WeightRules, Weights, rank_weights
from tonnage.settings import EngineSettings


class Server(msgspec.Struct, frozen=True):
    """What runs where: a shape in its precision, settings with every default, the release's rules, the card, the served dtype."""

    shape: ModelShape
    settings: EngineSettings
    rules: EngineRules
    card: Card
    dtype: str


class Budget(msgspec.Struct, frozen=True):
    """Charged lines, weights first; the pool; what is budgeted of the card; and why the rest is kept back."""

    lines: tuple[Line, ...]
    pool: Pool
    requested: Banded
    kept_why: str


def weight_rules(rules: EngineRules, capability: tuple[int, int] | None) -> WeightRules:
    """Return what the release and the card decide about weights."""
    padding = by_capability(rules.mxfp4_expert_padding, capability) or [128, 256]
    return WeightRules(ExpertPadding(padding[0], padding[1]), "all" if rules.fourfold_rope == "all" else "plain")


def stage_weights(server: Server, stage: int) -> Weights:
    """Return the weights that one rank of a stage holds."""
    settings = server.settings
    return rank_weights(
        server.shape,
        settings.parallel,
        stage=stage,
        dtype=server.dtype,
        mtp=settings.num_speculative_tokens > 0,
        vision=not settings.language_model_only,
        rules=weight_rules(server.rules, server.card.compute_capability),
    )


def budget(server: Server, constants: OverheadConstants, stage: int, loaded: Iterable[Line], site: Iterable[Correction] = ()) -> Budget:
    """Return the budget of a rank of a stage that has loaded these lines (weights, and a draft model if there is one).

    `site` corrects the overhead by what this site measured.
    """
    settings, memory = server.settings, server.card.memory
    lines = list(loaded)
    if settings.engine != "vllm":
        charged, requested, kept = other_budget(settings.engine, memory, lines, settings)
        return Budget(tuple(charged), pool_of(requested, charged), requested, kept)
    share = settings.gpu_memory_utilization or 0.0
    parallel = settings.parallel
    here = [one for one in site if one.holds(server.card.slug, settings.engine, settings.release, parallel.tp, parallel.pp)]
    terms = corrected(overhead(engine_load(server, stage), constants), here)
    lines += [line(term.label, term.size, term.why) for term in terms if term.charged]
    requested = Banded(ceil(memory.best * share), ceil(memory.low * share), ceil(memory.high * share), memory.confidence)
    kept = f"1 - gpu-memory-utilization {share:g}"
    if not server.rules.graphs_charged:
        kept += "; CUDA graphs are captured into it, uncharged before 0.20"
    return Budget(tuple(lines), pool_of(requested, lines), requested, kept)


def engine_load(server: Server, stage: int) -> EngineLoad:
    """Return what decides the overhead of a rank of a stage."""
    shape, card, settings = server.shape, server.card, server.settings
    return EngineLoad(
        shape=shape,
        parallel=settings.parallel,
        release=settings.release,
        capability=card.compute_capability,
        link=card.link,
        max_num_seqs=settings.max_num_seqs or 1,
        max_num_batched_tokens=settings.max_num_batched_tokens or 1,
        dtype=server.dtype,
        enforce_eager=settings.enforce_eager,
        mtp=settings.num_speculative_tokens,
        lora_slots=settings.lora.count,
        lora_rank=settings.lora.rank,
        vision=not settings.language_model_only,
        stage=stage,
    )
