"""A workload is peak users and whole lengths; what cannot be is refused with the way to say it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.workload.spec import workload


@pytest.mark.parametrize(
    ("share", "shared", "expected"),
    [
        pytest.param(0.5, 0, 12_000, id="half-of-the-context"),
        pytest.param(0.9, 0, 21_600, id="nine-tenths"),
        pytest.param(0.0, 2_000, 2_000, id="in-tokens"),
        pytest.param(0.5, 2_000, 2_000, id="tokens-win"),
        pytest.param(0.0, 0, 0, id="none"),
    ],
)
def test_a_shared_prefix_is_tokens_or_a_share_of_the_context(share: float, shared: int, expected: int) -> None:
    """mission.md: a stable shared prefix cuts per-user cache by 50 to 90 %."""
    assert workload(16, 24_000, share=share, shared=shared).shared_prefix_tokens == expected


@pytest.mark.parametrize(
    ("p99", "longest"), [(0, 16_000), (8_000, 16_000), (32_000, 32_000)], ids=["unknown", "below-the-context", "above"]
)
def test_the_longest_is_the_p99_where_it_is_known(p99: int, longest: int) -> None:
    """The length limit follows p99, the count of users p95."""
    assert workload(16, 16_000, p99=p99).longest == longest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"users": 0}, "users is 0", id="nobody"),
        pytest.param({"users": -3}, "users is -3", id="negative-users"),
        pytest.param({"context": 0}, "context is 0", id="no-context"),
        pytest.param({"output": -1}, "output is -1", id="negative-output"),
        pytest.param({"shared": -1}, "shared prefix is -1", id="negative-prefix"),
        pytest.param({"shared": 16_000}, "leaves nothing of a context of 16,000", id="prefix-is-all"),
        pytest.param({"share": 1.0}, "leaves nothing", id="share-is-all"),
        pytest.param({"output": 16_000}, "leaves no prompt", id="answer-is-all"),
        pytest.param({"output": 20_000}, "leaves no prompt", id="answer-beyond"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(arguments: dict[str, int], said: str) -> None:
    """Each refusal names the number that was given."""
    with pytest.raises(InputError, match=said):
        workload(**{"users": 16, "context": 16_000, **arguments})


@given(st.integers(1, 10**6), st.integers(2, 10**6), st.floats(0, 0.99))
def test_a_share_below_one_leaves_every_user_a_token_of_their_own(users: int, context: int, share: float) -> None:
    """The prefix rounds down, so something of each sequence is its own."""
    assert 0 <= workload(users, context, share=share).shared_prefix_tokens < context
