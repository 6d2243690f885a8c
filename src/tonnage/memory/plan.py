"""A plan: will it fit, how many users, and every line of the arithmetic.

    requested = ceil(card x utilization)      pool = requested - weights - overhead the release charges
    users     = what the allocator admits in that pool

A plan is a value. Not fitting is a value too: `fits` is false and `shortfall_bytes` or `refusals` say why.
"""

from __future__ import annotations

from math import ceil

import msgspec

from tonnage.facts.catalog import Model
from tonnage.facts.dtype import torch_bits
from tonnage.facts.engine import EngineRules, by_capability
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants
from tonnage.facts.provenance import Banded, Confidence, weakest
from tonnage.memory.allocator import Allocation, allocate
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.kv import ContextCost, context_cost, ideal_users
from tonnage.memory.ledger import Line, Pool, line, pool_of
from tonnage.memory.overhead import EngineLoad, Term, overhead
from tonnage.memory.pages import cache_dtype
from tonnage.memory.refusals import Refusal, does_not_hold_one, refusals
from tonnage.memory.weights import ExpertPadding, WeightRules, checkpoint_bytes, rank_weights, served_dtype, with_precision
from tonnage.settings import EngineSettings
from tonnage.units import GIB, size
from tonnage.workload.spec import Workload

LENGTH_STEP = 256


class Users(msgspec.Struct, frozen=True):
    """Users at once: by formula, as the engine admits them, and at the low end of the pool."""

    ideal: int
    admitted: int
    safe: int


class PerUser(msgspec.Struct, frozen=True):
    """What one user costs on a card: by formula and as the engine allocates; `shortest_bytes` is that of a one-token request."""

    context_tokens: int
    ideal_bytes: int
    admitted_bytes: int
    blocks: int
    shortest_bytes: int


class Request(msgspec.Struct, frozen=True):
    """All that a plan is made from."""

    model: Model
    card: Card
    settings: EngineSettings
    workload: Workload
    rules: EngineRules
    constants: OverheadConstants


class MemoryPlan(msgspec.Struct, frozen=True):
    """The plan of one replica, per card; settings have every default of the release filled in."""

    request: Request
    settings: EngineSettings
    served_dtype: str
    cache_dtype: str
    weights_label: str
    fits: bool
    ledger: tuple[Line, ...]
    pool: Pool
    requested_bytes: int
    cost: ContextCost
    per_user: PerUser
    users: Users
    allocation: Allocation
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def card_bytes(self) -> int:
        """What the ledger sums to: the card's memory as CUDA reports it."""
        return self.request.card.memory.best

    @property
    def shortfall_bytes(self) -> int:
        """What is missing on each card for the users asked for; 0 where they fit."""
        workload = self.request.workload
        shared = _shared_bytes(self.allocation, workload, self.settings)
        needed = shared + workload.users * (self.per_user.admitted_bytes - shared)
        return max(0, needed - max(0, self.pool.bytes)) if self.users.admitted < workload.users else 0


def plan(request: Request) -> MemoryPlan:
    """Return the plan of one replica of a model on its cards, for a workload.

    Raises InputError or UnknownError: settings or precisions that cannot be.
    """
    card, rules = request.card, request.rules
    shape = with_precision(request.model.shape, request.settings.weights)
    host = Host(card.memory.best, card.compute_capability, f"{card.name} {card.slug}")
    asked = _with_length(request)
    settings = resolved(asked, shape, host, rules)
    dtype = served_dtype(shape, bf16="bf16" in card.formats or card.compute_capability is None)
    cache = cache_dtype(settings, shape, dtype)
    model = msgspec.structs.replace(request.model, shape=shape)
    request = msgspec.structs.replace(request, model=model)
    refused = refusals(shape, settings, card.compute_capability, rules)
    parallel = settings.parallel
    stages = range(parallel.pp) if not refused else range(1)
    ledgers = [_ledger(request, settings, dtype, stage) for stage in stages]
    lines, pool, requested = min(ledgers, key=lambda entry: entry[1].bytes)
    allocation = allocate(shape, settings, rules, card.compute_capability, pool.bytes, dtype=dtype)
    pool = msgspec.structs.replace(pool, blocks=allocation.num_blocks, tokens=allocation.printed_tokens)
    cost = context_cost(
        shape, tp=parallel.tp, cache=cache, dtype=dtype, state_dtype=settings.mamba_ssm_cache_dtype, mtp=settings.num_speculative_tokens > 0
    )
    cost = _share_of_stage(cost, request)
    users = _users(request, settings, allocation, pool, cost)
    per_user = _per_user(allocation, cost, request.workload)
    if pool.bytes > 0 and (one := does_not_hold_one(allocation, pool.bytes)) is not None:
        refused = (*refused, one)
    fits = not refused and pool.bytes > 0 and users.admitted >= request.workload.users
    return MemoryPlan(
        request,
        settings,
        dtype,
        cache,
        shape.quantisation.label or _plain_label(dtype),
        fits,
        _closed(lines, pool, requested, request, settings),
        pool,
        requested,
        cost,
        per_user,
        users,
        allocation,
        refused,
        _warnings(request, settings, cache, users, pool),
        _notes(request),
    )


def _plain_label(dtype: str) -> str:
    return {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}.get(dtype, dtype)


def _with_length(request: Request) -> EngineSettings:
    """Return the settings with max_model_len at the longest sequence of the workload, where it is not given."""
    settings = request.settings
    if settings.max_model_len is not None:
        return settings
    longest = -(-request.workload.longest // LENGTH_STEP) * LENGTH_STEP
    return msgspec.structs.replace(settings, max_model_len=min(longest, max(request.model.shape.max_position, request.workload.longest)))


def _share_of_stage(cost: ContextCost, request: Request) -> ContextCost:
    """Return the cost of context on the stage that holds most of it; stages hold about equal shares of the layers."""
    pp = request.settings.parallel.pp
    if pp == 1:
        return cost
    return ContextCost(
        -(-cost.per_token // pp),
        tuple((window, -(-size // pp)) for window, size in cost.windows),
        -(-cost.state_bytes // pp),
        -(-cost.conv_bytes // pp),
        tuple((ratio, -(-size // pp)) for ratio, size in cost.strided),
    )


def weight_rules(rules: EngineRules, card: Card) -> WeightRules:
    """Return what the release and the card decide about weights."""
    padding = by_capability(rules.mxfp4_expert_padding, card.compute_capability) or [128, 256]
    fourfold = rules.fourfold_rope
    return WeightRules(ExpertPadding(padding[0], padding[1]), "all" if fourfold == "all" else "plain")


def _weights(request: Request, settings: EngineSettings, dtype: str, stage: int) -> tuple[Banded, str]:
    shape, model = request.model.shape, request.model
    held = rank_weights(
        shape,
        settings.parallel,
        stage=stage,
        dtype=dtype,
        mtp=settings.num_speculative_tokens > 0,
        vision=not settings.language_model_only,
        rules=weight_rules(request.rules, request.card),
    )
    total = held.total
    label = shape.quantisation.label or _plain_label(dtype)
    confidence: Confidence = weakest(model.confidence, "read")
    measured = sum(model.measured_bytes.values())
    spread = 0
    why = f"{shape.params_total:,} parameters, {label}"
    if measured:
        total = round(total * measured / max(1, checkpoint_bytes(shape)) * _narrowing(shape.dtype, dtype))
        why = f"{measured:,} bytes in the safetensors headers, {label}"
    if shape.quantisation.assumed:
        confidence, spread = "assumed", total // 20
        why += " (no such checkpoint is known: the rule of its kind)"
    elif confidence in ("extrapolated", "assumed"):
        spread = total // 50
    if settings.parallel.cards > 1:
        why += f"; this rank of TP {settings.parallel.tp}" + (
            f", stage {stage + 1} of {settings.parallel.pp}" if settings.parallel.pp > 1 else ""
        )
    if held.buffers > GIB // 100:
        why += f"; {size(held.buffers)} of it tables"
    return Banded(total, total - spread, total + spread, confidence, why), why


def _narrowing(stored: str, served: str) -> float:
    """Return how a checkpoint's bytes change when an engine casts what is not quantised: FP32 halves."""
    return torch_bits(served) / torch_bits(stored) if stored == "float32" else 1.0


def _ledger(request: Request, settings: EngineSettings, dtype: str, stage: int) -> tuple[list[Line], Pool, int]:
    card, constants = request.card, request.constants
    utilization = settings.gpu_memory_utilization or 0.0
    weights, why = _weights(request, settings, dtype, stage)
    load = EngineLoad(
        shape=request.model.shape,
        parallel=settings.parallel,
        release=settings.release,
        capability=card.compute_capability,
        link=card.link,
        max_num_seqs=settings.max_num_seqs or 1,
        max_num_batched_tokens=settings.max_num_batched_tokens or 1,
        dtype=dtype,
        enforce_eager=settings.enforce_eager,
        mtp=settings.num_speculative_tokens,
        lora_slots=settings.lora.count,
        lora_rank=settings.lora.rank,
        vision=not settings.language_model_only,
        stage=stage,
    )
    terms: tuple[Term, ...] = overhead(load, constants)
    lines = [line("weights", weights, why)]
    lines += [line(term.label, term.size, term.why) for term in terms if term.charged and (term.size.best or term.size.high)]
    requested = Banded(
        ceil(card.memory.best * utilization),
        ceil(card.memory.low * utilization),
        ceil(card.memory.high * utilization),
        card.memory.confidence,
    )
    return lines, pool_of(requested, lines), requested.best


def _closed(lines: list[Line], pool: Pool, requested: int, request: Request, settings: EngineSettings) -> tuple[Line, ...]:
    """Return the ledger that sums to the card: the charged lines, the pool, and what is kept back."""
    card = request.card.memory
    kept = card.best - requested
    why = f"1 - gpu-memory-utilization {settings.gpu_memory_utilization:g}"
    if not request.rules.graphs_charged:
        why += "; CUDA graphs are captured into it, uncharged before 0.20"
    blocks = f"{pool.blocks:,} blocks" if pool.blocks else "no block fits"
    cache = Line(
        "cache pool",
        pool.bytes,
        pool.low_bytes,
        pool.high_bytes,
        pool.confidence,
        f"what is left; {blocks}; the engine prints {pool.tokens:,} tokens",
    )
    band = card.best - card.low, card.high - card.best
    return (*lines, cache, Line("kept back", kept, kept - band[0], kept + band[1], weakest("exact", card.confidence), why))


def _shared_blocks(allocation: Allocation, workload: Workload, settings: EngineSettings) -> int:
    """Return the blocks of a shared prefix that are stored once: whole blocks of groups that keep every token."""
    if not settings.enable_prefix_caching or not workload.shared_prefix_tokens:
        return 0
    return sum(
        workload.shared_prefix_tokens // group.page.block
        for group in allocation.groups
        if group.page.kind in ("full", "latent", "index", "entries")
    )


def _shared_bytes(allocation: Allocation, workload: Workload, settings: EngineSettings) -> int:
    return _shared_blocks(allocation, workload, settings) * allocation.bytes_per_block


def admitted_users(allocation: Allocation, workload: Workload, settings: EngineSettings, blocks: int) -> int:
    """Return the sequences that so many blocks hold: floor of the engine's concurrency, a shared prefix stored once."""
    shared = _shared_blocks(allocation, workload, settings)
    each = allocation.sequence_blocks(workload.context_tokens) - shared
    return max(0, (blocks - shared) // each) if each > 0 else 0


def _users(request: Request, settings: EngineSettings, allocation: Allocation, pool: Pool, cost: ContextCost) -> Users:
    workload = request.workload
    shared = workload.shared_prefix_tokens if settings.enable_prefix_caching else 0
    ideal = ideal_users(max(0, pool.bytes), cost, workload.context_tokens, shared)
    admitted = admitted_users(allocation, workload, settings, allocation.num_blocks)
    size_of = allocation.bytes_per_block
    low_blocks = max(0, pool.low_bytes) // size_of if size_of else 0
    safe = admitted_users(allocation, workload, settings, low_blocks)
    dp = settings.parallel.dp
    return Users(ideal * dp, admitted * dp, min(safe, settings.max_num_seqs or safe) * dp)


def _per_user(allocation: Allocation, cost: ContextCost, workload: Workload) -> PerUser:
    tokens = workload.context_tokens
    return PerUser(
        tokens,
        cost.sequence_bytes(tokens),
        allocation.sequence_bytes(tokens),
        allocation.sequence_blocks(tokens),
        allocation.sequence_bytes(1),
    )


def _warnings(request: Request, settings: EngineSettings, cache: str, users: Users, pool: Pool) -> tuple[str, ...]:
    card, shape, workload = request.card, request.model.shape, request.workload
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
    if card.display:
        out.append(f"{card.name} may drive a display, which holds some of its memory")
    if card.unified:
        out.append(f"{card.name} shares its memory with the CPU: the operating system and page cache take part of it")
    if users.admitted >= workload.users > users.safe and pool.bytes > 0:
        out.append(
            f"at the low end of the pool {users.safe} users fit, not {workload.users}: measure one start of this card before you rely on it"
        )
    if settings.max_num_seqs and workload.users > settings.max_num_seqs:
        out.append(f"max-num-seqs {settings.max_num_seqs} is below the {workload.users} users: the rest queue")
    return tuple(out)


def _notes(request: Request) -> tuple[str, ...]:
    rules = request.rules
    out = list(request.model.notes)
    release = f"{rules.release[0]}.{rules.release[1]}"
    if rules.confidence == "assumed":
        out.append(f"release {release} is older than the rules we checked (from 0.19): the nearest law is assumed")
    if rules.confidence == "extrapolated":
        out.append(f"release {release} is newer than the rules we checked: the newest law is extrapolated")
    return tuple(out)
