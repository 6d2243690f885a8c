"""Groups: how unlike layers share one pool of blocks, from pages made by hand; and that no layer is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.memory.groups import Group, grouped
from tonnage.memory.pages import Kind, Page

KIB = 1024


def page(kind: Kind = "full", size: int = 64 * KIB, block: int = 16, window: int = 0, state: str = "") -> Page:
    """Return a page without padding."""
    return Page(kind, block, size, size, window, state)


FULL, SLIDING, LATENT, STATE = page(), page("sliding", window=1024), page("latent", 18 * KIB), page("state", block=528, state="gdn")


def summary(groups: tuple[Group, ...]) -> list[tuple[str, int, int]]:
    """Return (kind, layers, slots) of each group."""
    return [(group.page.kind, group.layers, group.slots) for group in groups]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        pytest.param([FULL] * 36, [("full", 36, 36)], id="qwen3-8b-one-spec"),
        pytest.param([LATENT] * 61, [("latent", 61, 61)], id="deepseek-v3"),
        pytest.param([SLIDING, FULL] * 12, [("sliding", 12, 12), ("full", 12, 12)], id="gpt-oss-20b"),
        pytest.param(
            ([SLIDING] * 5 + [FULL]) * 10 + [SLIDING] * 2,
            [("sliding", 9, 10)] * 4 + [("sliding", 8, 10)] * 2 + [("full", 10, 10)],
            id="gemma-3-27b-52-and-10",
        ),
        pytest.param(([page("chunked", window=8192)] * 3 + [FULL]) * 12, [("chunked", 12, 12)] * 3 + [("full", 12, 12)], id="scout"),
        pytest.param(([STATE] * 3 + [FULL]) * 8, [("state", 8, 8)] * 3 + [("full", 8, 8)], id="qwen3.5-4b"),
        pytest.param([SLIDING] * 10 + [FULL] * 14, [("sliding", 10, 14), ("full", 14, 14)], id="below-half-as-many-again-pads-the-fewer"),
        pytest.param([SLIDING] * 10 + [FULL] * 15, [("sliding", 10, 10), ("full", 8, 10), ("full", 7, 10)], id="half-as-many-again-splits"),
        pytest.param([SLIDING] * 7 + [FULL], [("sliding", 1, 1)] * 7 + [("full", 1, 1)], id="one-full-layer"),
        pytest.param([], [], id="encoder"),
    ],
)
def test_groups_by_hand(pages: list[Page], expected: list[tuple[str, int, int]]) -> None:
    """vllm-memory.md section 4: the order of decisions, and the published groups."""
    assert summary(grouped(pages)) == expected


def test_layers_that_keep_every_token_share_a_group_whatever_their_pages() -> None:
    """DeepSeek-V3.2's latents and indexes: one group of mixed pages, whose block is their sum."""
    index = page("index", 8_448, block=64)
    latent = page("latent", 64 * 1152, block=64)
    (group,) = grouped([latent, index] * 61)
    assert (group.layers, group.bytes) == (122, 61 * (8_448 + 64 * 1152))
    assert dict(group.mixed) == {latent: 61, index: 61}


def test_windows_alike_share_a_group_whatever_their_pages() -> None:
    """The same window in pages of two sizes: the same token slots."""
    (group,) = grouped([page("sliding", 64 * KIB, window=512), page("sliding", 32 * KIB, window=512)] * 4)
    assert (group.layers, group.bytes) == (8, 4 * 96 * KIB)


def test_two_windows_do_not_share_a_group() -> None:
    """Different windows need different block tables."""
    assert len(grouped([page("sliding", window=512), page("sliding", window=1024)] * 4)) == 2


def test_a_smaller_page_covers_more_tokens_where_it_divides() -> None:
    """Gemma 4 in FP8 on Hopper: 64 tokens of sliding layers and 128 of full ones make pages of equal size."""
    sliding, full = page("sliding", 256 * KIB, block=64, window=1024), page("full", 128 * KIB, block=64)
    groups = grouped(([sliding] * 5 + [full]) * 5)
    assert {group.page.block for group in groups if group.page.kind == "full"} == {128}
    assert {group.page.bytes for group in groups} == {256 * KIB}
    assert {group.page.unpadded for group in groups} == {256 * KIB, 128 * KIB}


def test_a_page_that_does_not_divide_is_padded() -> None:
    """The smaller page keeps its tokens and wastes the rest."""
    groups = grouped([page("sliding", 96 * KIB, window=512), page("full", 64 * KIB)] * 4)
    assert {(group.page.kind, group.page.block, group.page.bytes) for group in groups} == {
        ("sliding", 16, 96 * KIB),
        ("full", 16, 96 * KIB),
    }


def test_a_state_is_padded_and_never_covers_more_tokens() -> None:
    """A state page smaller than the attention page, of which it is a divisor: padded to it."""
    groups = grouped([page("state", 32 * KIB, block=16, state="short_conv"), page("full", 64 * KIB)] * 4)
    assert {(group.page.kind, group.page.block, group.page.bytes) for group in groups} == {("state", 16, 64 * KIB), ("full", 16, 64 * KIB)}


PAGES = st.builds(
    page,
    st.sampled_from(["full", "sliding", "chunked", "latent", "state"]),
    st.sampled_from([8 * KIB, 12 * KIB, 16 * KIB, 64 * KIB]),
    st.sampled_from([16, 64]),
    st.sampled_from([0, 512]),
)


@given(st.lists(st.tuples(PAGES, st.integers(1, 60)), min_size=1, max_size=4))
def test_every_layer_is_in_one_group(parts: list[tuple[Page, int]]) -> None:
    """Layers are conserved, padding stays below a group, and every block of the pool has room for each group."""
    pages = [one for one, count in parts for _ in range(count)]
    groups = grouped(pages)
    assert sum(group.layers for group in groups) == len(pages)
    for group in groups:
        assert 0 < group.layers <= group.slots
        assert group.bytes >= (sum(one.bytes * count for one, count in group.mixed) if group.mixed else group.layers * group.page.unpadded)
    assert len({group.slots for group in groups}) == 1
    assert len({group.page.bytes for group in groups}) == 1 or any(group.mixed for group in groups)


@given(st.lists(st.tuples(PAGES, st.integers(1, 20)), min_size=1, max_size=3), st.randoms())
def test_the_order_of_layers_does_not_decide(parts: list[tuple[Page, int]], random: object) -> None:
    """Dealt in another order the groups are the same, as a set."""
    pages = [one for one, count in parts for _ in range(count)]
    mixed = list(pages)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    first, second = grouped(pages), grouped(mixed)
    assert sorted(group.bytes for group in first) == sorted(group.bytes for group in second)
    assert sorted(summary(first)) == sorted(summary(second)) or any(group.mixed for group in first)
