"""A plan -> the engine that it describes: what bounds its blocks, and how long its steps take."""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError
from tonnage.memory.allocator import Allocation
from tonnage.memory.plan import MemoryPlan
from tonnage.sim.engine import Engine, EngineLimits
from tonnage.sim.steptime import StepModel, StepTime, step_model

GROWING = ("full", "latent", "index", "entries")
"""Kinds of groups that keep every token."""


class Replica(msgspec.Struct, frozen=True):
    """One replica: its limits, the model of its steps, and how the plan calls it."""

    limits: EngineLimits
    model: StepModel
    name: str = ""
    bytes_per_block: int = 0
    longest_blocks: int = 0

    def engine(self, *, timeline_s: float = 0.0) -> Engine:
        """Return an engine that has done nothing yet."""
        return Engine(self.limits, StepTime(self.model, self.limits.max_num_seqs), timeline_s=timeline_s)


def replica(made: MemoryPlan) -> Replica:
    """Return the replica that a plan describes.

    Raises InputError: a plan that does not start, or an engine that is not simulated.
    """
    settings, allocation = made.settings, made.allocation
    if made.refusals:
        raise InputError(f"the engine would not start: {made.refusals[0].reason}", where="the plan", hint="tonnage plan says what would")
    blocks = allocation.num_blocks - (1 if settings.engine == "vllm" else 0)
    longest = settings.max_model_len or made.request.workload.longest
    if blocks < 1:
        raise InputError("the pool has no block", where="the plan", hint="tonnage plan says what is missing")
    growing = [group for group in allocation.groups if group.page.kind in GROWING] if isinstance(allocation, Allocation) else []
    block = growing[0].page.block if growing else allocation.block_size
    context = made.request.workload.context_tokens
    groups = max(1, len(growing))
    # states and windows do not grow: what a sequence takes beside its growing groups
    state = max(0, allocation.sequence_blocks(context) - groups * -(-context // block)) if isinstance(allocation, Allocation) else 0
    if isinstance(allocation, Allocation) and not growing and allocation.groups:
        groups, block, state = 1, 1 << 30, max(0, allocation.sequence_blocks(context) - 1)
    limits = EngineLimits(
        blocks,
        block,
        settings.max_num_seqs or 256,
        settings.max_num_batched_tokens or 8192,
        longest,
        groups,
        state,
        bool(settings.enable_prefix_caching),
    )
    weights = next(line.bytes for line in made.ledger if line.label == "weights")
    model = step_model(made.request.model.shape, made.request.card, settings, made.cost, weights, context)
    return Replica(limits, model, made.request.model.name, allocation.bytes_per_block, allocation.sequence_blocks(longest))
