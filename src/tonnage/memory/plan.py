"""A plan: will it fit, how many users, and every line of the arithmetic.

    requested = ceil(card x utilization)      pool = requested - weights - overhead the release charges
    users     = what the allocator admits in that pool

A plan is a value. Not fitting is a value too: `fits` is false and `shortfall_bytes` or `refusals` say why.
"""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.facts.catalog import Model, published_in
from tonnage.facts.dtype import torch_bits
from tonnage.facts.engine import EngineRules
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants
from tonnage.facts.provenance import Confidence, weakest
from tonnage.facts.shape import ModelShape
from tonnage.facts.site import Correction
from tonnage.memory.allocator import Allocation, allocate
from tonnage.memory.budget import Budget, Server, budget, stage_weights
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.kv import ContextCost, context_cost, ideal_users
from tonnage.memory.ledger import Line, Pool
from tonnage.memory.oracle_row import OracleRow, check_row
from tonnage.memory.others import TokenPool, token_pool
from tonnage.memory.pages import cache_dtype
from tonnage.memory.refusals import Refusal, does_not_hold_one, refusals, seqs_above_state_blocks, seqs_that_start
from tonnage.memory.remarks import notes, warnings
from tonnage.memory.weights import checkpoint_bytes, served_dtype, with_precision
from tonnage.settings import EngineSettings
from tonnage.units import GIB, size
from tonnage.workload.spec import Workload

LENGTH_STEP = 256
NARROW = 0.05
"""Half of a band, as a share of the pool, below which a measured one need not be narrower."""


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
    oracle: OracleRow | None = None
    site: tuple[Correction, ...] = ()


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
    allocation: Allocation | TokenPool
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def card_bytes(self) -> int:
        """What the ledger sums to: the card's memory as CUDA reports it."""
        return self.request.card.memory.best

    @property
    def would_narrow(self) -> str:
        """What evidence would narrow the band of the pool; empty where it is as narrow as measured starts make it."""
        half = (self.pool.high_bytes - self.pool.low_bytes) / 2
        if self.pool.bytes <= 0 or (self.pool.confidence in ("exact", "read", "measured") and half <= NARROW * self.pool.bytes):
            return ""
        return "one start-up log of this card (tonnage diagnose LOG --save-row, then fit overhead)"

    @property
    def shortfall_bytes(self) -> int:
        """What is missing on each card for the users asked for; 0 where they fit."""
        workload = self.request.workload
        shared = _shared_bytes(self.allocation, workload, self.settings)
        users = -(-workload.users // self.settings.parallel.dp)
        needed = shared + users * (self.per_user.admitted_bytes - shared)
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
    cost = context_cost(
        shape,
        tp=parallel.tp,
        dcp=parallel.dcp,
        cache=cache,
        dtype=dtype,
        state_dtype=settings.mamba_ssm_cache_dtype,
        mtp=settings.num_speculative_tokens > 0,
    )
    cost = _share_of_stage(cost, request)
    server, row = Server(shape, settings, rules, card, dtype), request.oracle
    budgets = [budget(server, request.constants, stage, [_weights(server, model, stage, row)], request.site) for stage in stages]
    allocation = _cut(server, cost, [entry.pool.bytes for entry in budgets], request.workload.users)
    if row is not None:
        check_row(row, settings)
        allocation = _as_read(allocation, row, min(entry.pool.bytes for entry in budgets))
        refused = (*refused, Refusal("the-engine-refuses", row.refused, "")) if row.refused else refused
    if asked.max_num_seqs is None and (most := seqs_that_start(allocation)) is not None:
        return _with_fewer_seqs(request, settings.max_num_seqs or 0, most)
    poorest = (
        budgets[min(allocation.stage, len(budgets) - 1)]
        if isinstance(allocation, Allocation)
        else min(budgets, key=lambda entry: entry.pool.bytes)
    )
    pool = msgspec.structs.replace(poorest.pool, blocks=allocation.num_blocks, tokens=allocation.printed_tokens)
    users = _users(server, allocation, pool, cost, request.workload)
    per_user = _per_user(allocation, cost, request.workload)
    if isinstance(allocation, Allocation) and pool.bytes > 0 and (one := does_not_hold_one(allocation, pool.bytes)) is not None:
        refused = (*refused, one)
    if (most := seqs_that_start(allocation)) is not None and pool.bytes > 0:
        refused = (*refused, seqs_above_state_blocks(settings.max_num_seqs or 0, most))
    fits = not refused and pool.bytes > 0 and users.admitted >= request.workload.users
    return MemoryPlan(
        request,
        settings,
        dtype,
        cache,
        shape.quantisation.label or _plain_label(dtype),
        fits,
        _closed(poorest, pool, request),
        pool,
        poorest.requested.best,
        cost,
        per_user,
        users,
        allocation,
        refused,
        warnings(server, request.workload, poorest, users.admitted, users.safe, cache),
        (*notes(request.model, request.settings, rules, request.workload), *_oracle_note(row, request.workload)),
    )


def _with_fewer_seqs(request: Request, default: int, most: int) -> MemoryPlan:
    """Return the plan with a max-num-seqs that lets a hybrid start where the default does not, and say so."""
    lowered = msgspec.structs.replace(request.settings, max_num_seqs=most)
    made = plan(msgspec.structs.replace(request, settings=lowered))
    text = f"planned with --max-num-seqs {most}: the default of {default:,} is above the state blocks, and the engine would not start"
    return msgspec.structs.replace(made, warnings=(text, *made.warnings))


def _cut(server: Server, cost: ContextCost, pools: list[int], users: int) -> Allocation | TokenPool:
    if server.settings.engine == "vllm":
        return allocate(server.shape, server.settings, server.rules, server.card.compute_capability, pools, dtype=server.dtype)
    return token_pool(server.settings, server.rules, cost, min(pools), users)


def _oracle_note(row: OracleRow | None, workload: Workload) -> tuple[str, ...]:
    if row is None or row.refused:
        return ()
    text = f"bytes a block and weights are the engine's own (row {row.id or 'without id'})"
    if row.longest != workload.context_tokens:
        text += f"; blocks of a sequence are ours: it was asked for {row.longest:,} tokens, not {workload.context_tokens:,}"
    return (text,)


def _plain_label(dtype: str) -> str:
    return {"bfloat16": "BF16", "float16": "FP16", "float32": "FP32"}.get(dtype, dtype)


def _with_length(request: Request) -> EngineSettings:
    """Return the settings with max_model_len at the longest sequence of the workload, where it is not given."""
    settings = request.settings
    if settings.max_model_len is not None:
        if settings.max_model_len < request.workload.longest:
            raise InputError(
                f"a limit of {settings.max_model_len:,} tokens rejects sequences of {request.workload.longest:,}",
                where="--max-model-len",
                hint="the context is a whole sequence, prompt and answer; raise the limit or lower the context",
            )
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


def _as_read(allocation: Allocation | TokenPool, row: OracleRow, pool_bytes: int) -> Allocation | TokenPool:
    """Return the allocation with what the engine itself counted: bytes a block, and blocks of its longest sequence."""
    if not isinstance(allocation, Allocation) or not row.bytes_per_block:
        return allocation
    found = msgspec.structs.replace(allocation, bytes_per_block=row.bytes_per_block, read=(row.longest, row.longest_blocks))
    return found.sized(pool_bytes)


def _weights(server: Server, model: Model, stage: int, row: OracleRow | None = None) -> Line:
    if row is not None and row.weights_bytes and stage == 0:
        held_there, why = row.weights_bytes, f"as the engine's own code lays them out (row {row.id or 'without id'})"
        return Line("weights", held_there, held_there, held_there, "read", why)
    shape, settings, dtype = server.shape, server.settings, server.dtype
    held = stage_weights(server, stage)
    total = held.total
    label = shape.quantisation.label or _plain_label(dtype)
    confidence: Confidence = weakest(model.confidence, "read")
    measured = sum(model.measured_bytes.values())
    spread = 0
    some = settings.parallel.cards == 1 and held.elements < shape.params_total
    why = (f"{held.elements:,} of " if some else "") + f"{shape.params_total:,} parameters, {label}"
    if measured:
        total = round(total * _as_served(model.measured_bytes, shape, dtype) / max(1, checkpoint_bytes(shape) * _narrowing(shape, dtype)))
        why = f"{measured:,} bytes in the safetensors headers, {label}"
    if shape.quantisation.assumed:
        confidence, spread = "assumed", total // 20
        published = published_in(model.name, settings.weights)
        why += (
            f" (by the rule of its kind; {published} is published)"
            if published
            else " (by the rule of its kind: no such checkpoint is known)"
        )
    elif confidence in ("extrapolated", "assumed"):
        spread = total // 50
    if settings.parallel.cards > 1:
        why += f"; this rank of TP {settings.parallel.tp}" + (
            f", stage {stage + 1} of {settings.parallel.pp}" if settings.parallel.pp > 1 else ""
        )
    if held.buffers > GIB // 100:
        why += f"; {size(held.buffers)} of it tables"
    return Line("weights", total, total - spread, total + spread, confidence, why)


def _as_served(measured: dict[str, int], shape: ModelShape, dtype: str) -> int:
    """Return what a folder's tensors take once an engine has cast them: of an unquantised checkpoint FP32 halves."""
    wide = 0 if shape.quantisation.targets else measured.get("F32", 0)
    return sum(measured.values()) - wide + wide * torch_bits(dtype) // 32


def _narrowing(shape: ModelShape, served: str) -> float:
    """Return how the bytes that a config describes change when an engine casts them: FP32 halves."""
    return torch_bits(served) / torch_bits(shape.dtype) if shape.dtype == "float32" and not shape.quantisation.targets else 1.0


def _closed(budget: Budget, pool: Pool, request: Request) -> tuple[Line, ...]:
    """Return the ledger that sums to the card: the charged lines, the pool, and what is kept back."""
    card = request.card.memory
    requested = budget.requested
    kept = card.best - requested.best
    blocks = f"{pool.blocks:,} blocks" if pool.blocks else "no block fits"
    why = f"what is left; {blocks}; the engine prints {pool.tokens:,} tokens"
    cache = Line("cache pool", pool.bytes, pool.low_bytes, pool.high_bytes, pool.confidence, why)
    low, high = sorted((card.low - requested.low, card.high - requested.high))
    return (*budget.lines, cache, Line("kept back", kept, low, high, requested.confidence, budget.kept_why))


def _shared_blocks(allocation: Allocation | TokenPool, workload: Workload, settings: EngineSettings) -> int:
    """Return the blocks of a shared prefix that are stored once: whole blocks of groups that keep every token."""
    if not settings.enable_prefix_caching or not workload.shared_prefix_tokens:
        return 0
    if isinstance(allocation, TokenPool):
        return workload.shared_prefix_tokens // allocation.block_size
    return sum(
        workload.shared_prefix_tokens // group.page.block
        for group in allocation.groups
        if group.page.kind in ("full", "latent", "index", "entries")
    )


def _shared_bytes(allocation: Allocation | TokenPool, workload: Workload, settings: EngineSettings) -> int:
    return _shared_blocks(allocation, workload, settings) * allocation.bytes_per_block


def admitted_users(allocation: Allocation | TokenPool, workload: Workload, settings: EngineSettings) -> int:
    """Return the sequences that the pool holds: floor of the engine's concurrency, a shared prefix stored once."""
    shared = _shared_blocks(allocation, workload, settings)
    each = allocation.sequence_blocks(workload.context_tokens) - shared
    held = max(0, (allocation.num_blocks - shared) // each) if each > 0 else 0
    return min(held, allocation.states) if isinstance(allocation, TokenPool) and allocation.state_bytes else held


def _users(server: Server, allocation: Allocation | TokenPool, pool: Pool, cost: ContextCost, workload: Workload) -> Users:
    settings = server.settings
    shared = workload.shared_prefix_tokens if settings.enable_prefix_caching else 0
    ideal = ideal_users(max(0, pool.bytes), cost, workload.context_tokens, shared)
    admitted = admitted_users(allocation, workload, settings)
    safe = admitted_users(allocation.sized(pool.low_bytes), workload, settings)
    dp = settings.parallel.dp
    if not allocation.sequence_blocks(workload.context_tokens):  # a model that only reads keeps no cache: as many as are scheduled
        ideal = admitted = safe = settings.max_num_seqs or 1
    return Users(ideal * dp, admitted * dp, min(safe, settings.max_num_seqs or safe) * dp)


def _per_user(allocation: Allocation | TokenPool, cost: ContextCost, workload: Workload) -> PerUser:
    tokens = workload.context_tokens
    return PerUser(
        tokens,
        cost.sequence_bytes(tokens),
        allocation.sequence_bytes(tokens),
        allocation.sequence_blocks(tokens),
        allocation.sequence_bytes(1),
    )
