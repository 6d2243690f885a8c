"""The three rules of thumb, as people know them: their formulas by hand, and where each is known to differ from the truth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.facts.catalog import find_model
from tonnage.memory.kv import ContextCost, context_cost, ideal_users
from tonnage.memory.thumb import GB, guide, reference, worked_example
from tonnage.memory.weights import checkpoint_bytes
from tonnage.units import GIB, MIB

DENSE = ContextCost(262_144, (), 0)
HYBRID = ContextCost(16_384, (), 48 * MIB + 1_179_648, 1_179_648)
WINDOWED = ContextCost(10_000, ((1_000, 50_000),), 0)


@pytest.mark.parametrize(
    ("card", "weights", "cost", "tokens", "users"),
    [
        pytest.param(80 * GB, 32_762_123_264, DENSE, 8_000, 18, id="qwen3-32b-fp8-on-80-gb"),
        pytest.param(24 * GB, 4_659_865_088, HYBRID, 16_000, 57, id="qwen3.5-4b-fp8-on-24-gb-forgets-the-state"),
        pytest.param(80 * GB, 30 * GB, WINDOWED, 16_000, 198, id="windows-spread-over-the-length"),
        pytest.param(24 * GB, 23 * GB, DENSE, 8_000, 0, id="no-room"),
        pytest.param(80 * GB, 30 * GB, ContextCost(0, (), 0), 8_000, 0, id="nothing-grows"),
    ],
)
def test_the_guides_rule_by_hand(card: int, weights: int, cost: ContextCost, tokens: int, users: int) -> None:
    """mission.md: VRAM = weights + 2 GB + peak_concurrent x p95_context x kv_per_token x 1.15, turned round for the users."""
    assert guide(card, weights, cost, tokens) == users


@pytest.mark.parametrize(
    ("requested", "weights", "overhead", "cost", "tokens", "users"),
    [
        pytest.param(72 * GIB, 31 * GIB, 2 * GIB, DENSE, 8_000, 19, id="qwen3-32b-fp8"),
        pytest.param(21_600_000_000, 5_295_564_288, 3 * GIB // 2, HYBRID, 16_000, 56, id="qwen3.5-4b-forgets-the-state"),
        pytest.param(10 * GIB, 12 * GIB, 0, DENSE, 8_000, 0, id="no-room"),
        pytest.param(10 * GIB, 2 * GIB, 0, ContextCost(0, (), 9), 8_000, 0, id="nothing-grows"),
    ],
)
def test_the_reference_rule_by_hand(requested: int, weights: int, overhead: int, cost: ContextCost, tokens: int, users: int) -> None:
    """mission.md: usable = card x utilization - weights - overhead; tokens = usable / kv_per_token; sequences = tokens / length."""
    assert reference(requested, weights, overhead, cost, tokens) == users


@given(st.integers(8 * GB, 200 * GB), st.integers(0, 150 * GB), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_guides_answer_is_the_most_that_its_formula_allows(card: int, weights: int, per_token: int, tokens: int) -> None:
    """So many users satisfy the formula, one more does not (1.15 is counted in whole bytes)."""
    users = guide(card, weights, ContextCost(per_token, (), 0), tokens)
    each = tokens * per_token * 115 // 100
    assert users == 0 or weights + 2 * GB + users * each <= card
    assert weights + 2 * GB + (users + 1) * each > card


@given(st.integers(0, 200 * GIB), st.integers(0, 100 * GIB), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_reference_rule_equals_the_ideal_where_there_is_no_state(requested: int, weights: int, per_token: int, tokens: int) -> None:
    """For a plain model both divide the same pool by the same sequence."""
    cost = ContextCost(per_token, (), 0)
    assert reference(requested, weights, 0, cost, tokens) == ideal_users(requested - weights, cost, tokens)


def test_a_rule_that_forgets_the_state_overstates_a_hybrid() -> None:
    """peers.md: 51 for Qwen3.5-4B on an L4 where the state makes it 47."""
    cost = context_cost(find_model("qwen3.5-4b").shape, cache="fp8")
    assert reference(21_600_000_000, 5_295_564_288, 3 * GIB // 2, cost, 16_000) > worked_example(
        24 * GB, find_model("qwen3.5-4b").shape, cost, 16_000, fp8=True, checkpoint=0
    )


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_the_worked_example_divides_the_weights_over_the_cards(cards: int) -> None:
    """The example is for one card; on more of them each holds its share, and its own pool."""
    model = find_model("qwen3-32b").shape
    got = worked_example(80 * GB, model, context_cost(model), 16_000, fp8=False, checkpoint=checkpoint_bytes(model), cards=cards)
    pool = int(80 * GB * 0.90) - checkpoint_bytes(model) // cards - 3 * GIB // 2
    assert got == pool // (16_000 * 262_144)


def test_the_worked_example_says_nobody_where_the_weights_do_not_fit() -> None:
    """Never a negative number of users."""
    model = find_model("qwen3-32b").shape
    assert worked_example(24 * GB, model, context_cost(model), 16_000, fp8=False, checkpoint=checkpoint_bytes(model)) == 0
    assert worked_example(24 * GB, model, ContextCost(0, (), 0), 16_000, fp8=False, checkpoint=0) == 0
