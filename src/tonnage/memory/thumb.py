"""The rules of thumb that people know, beside our own answer, and why each differs from it.

guide: weights + 2 GB + peak users x context x cache per token x 1.15 against the card. reference: card x utilization
less weights and overhead, over the cache per token, over the length. worked-example: the decimal card, 0.90, overhead
1.5 GiB, FP8 everywhere but the embedding where FP8 is asked for, state without convolution.
"""

from __future__ import annotations

import msgspec

from tonnage.facts.dtype import torch_bits
from tonnage.facts.shape import ModelShape
from tonnage.facts.tensors import elements
from tonnage.memory.kv import ContextCost
from tonnage.units import GIB

GB = 10**9
WORKED_UTILIZATION = 0.90
WORKED_OVERHEAD = 3 * GIB // 2


class RuleOfThumb(msgspec.Struct, frozen=True):
    """What a rule of thumb answers, and why it differs."""

    name: str
    users: int
    why_it_differs: str


def guide(card_bytes: int, weights: int, cost: ContextCost, tokens: int) -> int:
    """Return the users by the guide's rule: users x context x cache per token x 1.15 beside weights and 2 GB on one card."""
    free = card_bytes - weights - 2 * GB
    each = tokens * _growth(cost, tokens) * 115 // 100
    return max(0, free // each) if each else 0


def reference(requested: int, weights: int, overhead: int, cost: ContextCost, tokens: int) -> int:
    """Return the users by the reference rule: tokens in the pool over the length of a sequence; state is forgotten."""
    per_token = _growth(cost, tokens)
    if not per_token:
        return 0
    return max(0, (requested - weights - overhead) // per_token // tokens)


def worked_example(
    decimal_card: int, shape: ModelShape, cost: ContextCost, tokens: int, *, fp8: bool, checkpoint: int, cards: int = 1
) -> int:
    """Return the users by the worked example's arithmetic.

    >>> from tonnage.facts.catalog import find_model
    >>> from tonnage.memory.kv import context_cost
    >>> shape = find_model("qwen3.5-4b").shape
    >>> fp8, bf16 = context_cost(shape, cache="fp8"), context_cost(shape)
    >>> worked_example(24 * GB, shape, fp8, 16_000, fp8=True, checkpoint=0)
    47
    >>> worked_example(24 * GB, shape, bf16, 16_000, fp8=False, checkpoint=9_319_730_176)
    18
    """
    if fp8:
        embedding = elements(shape.embedding)
        weights = shape.params_total + embedding * (torch_bits(shape.dtype) // 8 - 1)
    else:
        weights = checkpoint
    pool = int(decimal_card * WORKED_UTILIZATION) - weights // cards - WORKED_OVERHEAD
    each = cost.sequence_bytes(tokens) - cost.conv_bytes
    return max(0, pool // each) if each else 0


def _growth(cost: ContextCost, tokens: int) -> int:
    """Return bytes per token as a rule of thumb sees them: windows spread over the length."""
    return cost.sequence_bytes(tokens, state=False) // tokens
