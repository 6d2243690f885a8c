"""A plan -> the engine that it describes: what bounds its blocks, and how long its steps take."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.errors import InputError
from tonnage.memory.allocator import Allocation
from tonnage.memory.groups import Group
from tonnage.memory.plan import MemoryPlan
from tonnage.sim.engine import Engine, EngineLimits
from tonnage.sim.steptime import StepModel, StepTime, step_model

GROWING = ("full", "latent", "index", "entries")
"""Kinds of groups that keep every token."""


class Replica(msgspec.Struct, frozen=True):
    """One data-parallel rank of a replica: its limits, the model of its steps, how the plan calls it; `ranks` are as many alike."""

    limits: EngineLimits
    model: StepModel
    name: str = ""
    ranks: int = 1
    remarks: tuple[str, ...] = ()

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
    # states and windows do not grow: what a sequence that decodes takes beside its growing groups
    state = (
        sum(_fixed(allocation, group, context) for group in allocation.groups if group not in growing)
        if isinstance(allocation, Allocation)
        else 0
    )
    if isinstance(allocation, Allocation) and not growing and allocation.groups:
        groups, block, state = 1, 1 << 30, max(0, state - 1)
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
    return Replica(limits, model, made.request.model.name, settings.parallel.dp, tuple(_remarks(made)))


def _fixed(allocation: Allocation, group: Group, context: int) -> int:
    """Return the blocks of a group that does not grow: its window's, once it is full, or its states."""
    held = allocation.group_blocks(group, context)
    return min(held, -(-group.page.window // group.page.block) + 1) if group.page.window else held


def _remarks(made: MemoryPlan) -> Iterator[str]:
    """Yield what of the plan is simulated only roughly."""
    settings = made.settings
    if settings.parallel.pp > 1:
        yield f"pipeline stages take one batch at a time here: throughput may be up to {settings.parallel.pp} times as much"
    if settings.num_speculative_tokens:
        yield "speculative decoding is not simulated: its memory is counted, its gain is not"
    if settings.engine != "vllm":
        yield f"{settings.engine} is simulated with vLLM's scheduler"
