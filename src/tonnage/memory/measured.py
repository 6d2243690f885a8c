"""A plan whose pool is what the engine itself sized: blocks, tokens and users from what runs, the rest of the card beside it."""

from __future__ import annotations

import msgspec

from tonnage.facts.gpu import Card
from tonnage.memory.allocator import Allocation
from tonnage.memory.kv import ideal_users
from tonnage.memory.ledger import Line
from tonnage.memory.plan import MemoryPlan, PerUser, Users, admitted_users
from tonnage.units import size


class MeasuredPool(msgspec.Struct, frozen=True):
    """What an engine says of its cache: bytes on a card, blocks, tokens as it prints them, weights on a card; 0 where it is silent."""

    bytes: int = 0
    blocks: int = 0
    tokens: int = 0
    weights_bytes: int = 0


def as_measured(made: MemoryPlan, said: MeasuredPool) -> MemoryPlan:
    """Return the plan with the pool that was measured; its ledger still sums to the card.

    Without a pool that was measured the plan stays as it was planned. Blocks that the engine prints go first, then bytes;
    what the lines of the overhead leave is one line, read from the difference.
    """
    allocation = made.allocation
    if not isinstance(allocation, Allocation) or not (said.bytes or said.blocks or said.tokens):
        return made
    if said.blocks:
        allocation = msgspec.structs.replace(allocation, num_blocks=said.blocks)
    elif said.bytes or said.tokens:
        allocation = _with_tokens(allocation.sized(said.bytes), said.tokens)
    pool_bytes = said.bytes or allocation.num_blocks * allocation.bytes_per_block
    tokens = said.tokens or allocation.printed_tokens
    pool = msgspec.structs.replace(
        made.pool,
        bytes=pool_bytes,
        low_bytes=pool_bytes,
        high_bytes=pool_bytes,
        confidence="read",
        blocks=allocation.num_blocks,
        tokens=tokens,
    )
    workload, settings = made.request.workload, made.settings
    dp = settings.parallel.dp
    shared = workload.shared_prefix_tokens if settings.enable_prefix_caching else 0
    admitted = admitted_users(allocation, workload, settings) * dp
    users = Users(
        ideal_users(pool_bytes, made.cost, workload.context_tokens, shared) * dp,
        admitted,
        min(admitted, (settings.max_num_seqs or admitted) * dp),
    )
    each = PerUser(
        workload.context_tokens, made.per_user.ideal_bytes, allocation.sequence_bytes(workload.context_tokens),
        allocation.sequence_blocks(workload.context_tokens), allocation.sequence_bytes(1),
    )  # fmt: skip
    return msgspec.structs.replace(
        made, allocation=allocation, pool=pool, users=users, per_user=each, refusals=(),
        ledger=_closed(made, pool_bytes, said.weights_bytes), fits=users.admitted >= workload.users,
    )  # fmt: skip


def too_large(weights_bytes: int, pool_bytes: int, card: Card) -> str:
    """Return how what was measured cannot lie on a card."""
    held = weights_bytes + pool_bytes
    what = "weights and pool" if weights_bytes and pool_bytes else "the pool" if pool_bytes else "the weights"
    verb = "are" if (weights_bytes and pool_bytes) or weights_bytes else "is"
    return f"{what} {verb} {size(held)}, more than the {size(card.memory.best)} of {card.name}"


def _with_tokens(allocation: Allocation, tokens: int) -> Allocation:
    """Return the allocation with the blocks that give the tokens an engine prints: its bytes are rounded to 0.01 GiB, its tokens are not.

    Where no number of blocks gives them (another page than the law's), the bytes stand.
    """
    if not tokens:
        return allocation
    low, high = 0, 2 * max(allocation.num_blocks, tokens)
    while low < high:
        middle = (low + high) // 2
        if msgspec.structs.replace(allocation, num_blocks=middle).printed_tokens < tokens:
            low = middle + 1
        else:
            high = middle
    found = msgspec.structs.replace(allocation, num_blocks=low)
    near = not allocation.num_blocks or abs(low - allocation.num_blocks) <= 1 + allocation.num_blocks // 100
    return found if near and found.printed_tokens == tokens else allocation


def _closed(made: MemoryPlan, pool_bytes: int, weights_bytes: int) -> tuple[Line, ...]:
    """Return a ledger that sums to the card: weights and pool as measured, what is kept back, and the rest of the budget."""
    card = made.card_bytes
    planned = next(line for line in made.ledger if line.label == "weights")
    weights = (
        Line("weights", weights_bytes, weights_bytes, weights_bytes, "read", "as the engine measured them") if weights_bytes else planned
    )
    nothing = Line("kept back", 0, 0, 0, "exact", "")
    kept = next((line for line in made.ledger if line.label == "kept back"), nothing)
    pool = Line("cache pool", pool_bytes, pool_bytes, pool_bytes, "read", f"as the engine sized it; {size(pool_bytes)}")
    rest = card - weights.bytes - pool_bytes - kept.bytes
    if rest < 0:  # the budget was not the card's share: a pool that was set by hand, or other memory than the card's
        kept = Line("kept back", kept.bytes + rest, kept.bytes + rest, kept.bytes + rest, "read", "what is left of the card")
        rest = 0
    spread = weights.high - weights.low
    other = Line("overhead", rest, max(0, rest - spread), rest + spread, "read", "the budget less weights and pool, as they were measured")
    return (weights, other, pool, kept)
