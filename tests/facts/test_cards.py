"""Names that lead to cards, and the catalogue's files themselves."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import EndpointError, InputError, TonnageError, UnknownError
from tonnage.facts.cards import GPUS, Index, all_cards, find_card, index_of, load_card, local_card, plain_name
from tonnage.facts.gpu import Card
from tonnage.units import GIB, MIB

CARDS = all_cards()
EACH = pytest.mark.parametrize("card", [pytest.param(card, id=card.slug) for card in CARDS])


@pytest.mark.parametrize(
    ("name", "slug", "count"),
    [
        pytest.param("L4", "l4", None, id="slug"),
        pytest.param("NVIDIA L4", "l4", None, id="nvidia-smi-name"),
        pytest.param("nvidia-l4", "l4", None, id="gke-label"),
        pytest.param("NVIDIA-A100-SXM4-80GB", "a100-80g-sxm", None, id="kubernetes-label"),
        pytest.param("a100-80g", "a100-80g-sxm", None, id="a100-with-size"),
        pytest.param("A100 40GB", "a100-40g-sxm", None, id="a100-with-unit"),
        pytest.param("a100", "a100-80g-sxm", None, id="a100-by-default"),
        pytest.param("h100", "h100-sxm", None, id="h100-by-default"),
        pytest.param("h100-80gb", "h100-sxm", None, id="h100-with-size"),
        pytest.param("H100 SXM5 80GB", "h100-sxm", None, id="catalogue-name"),
        pytest.param("H100 PCIe", "h100-pcie", None, id="h100-pcie"),
        pytest.param("3090", "rtx-3090", None, id="number-alone"),
        pytest.param("rtx3090", "rtx-3090", None, id="rtx-joined"),
        pytest.param("GeForce RTX 4090", "rtx-4090", None, id="geforce"),
        pytest.param("Tesla T4", "t4", None, id="tesla"),
        pytest.param("rtx pro 6000", "rtx-pro-6000", None, id="slug-before-others-of-the-name"),
        pytest.param("dgx-spark", "gb10", None, id="machine"),
        pytest.param("AMD Instinct MI300X", "mi300x", None, id="amd"),
        pytest.param("8xH100", "h100-sxm", 8, id="count"),
        pytest.param("8x h100", "h100-sxm", 8, id="count-space"),
        pytest.param("8*h100", "h100-sxm", 8, id="count-star"),
        pytest.param("2 × L40S", "l40s", 2, id="count-sign"),
        pytest.param("l4 x 4", "l4", 4, id="count-last"),
        pytest.param("H100:8", "h100-sxm", 8, id="count-colon"),
        pytest.param("4x rtx 3090", "rtx-3090", 4, id="x-in-the-name"),
        pytest.param("g6.xlarge", "l4", 1, id="aws-one"),
        pytest.param("g6.12xlarge", "l4", 4, id="aws-four"),
        pytest.param("p5.48xlarge", "h100-sxm", 8, id="aws-h100"),
        pytest.param("Standard_ND96isr_H100_v5", "h100-sxm", 8, id="azure"),
        pytest.param("nd96isr_h100_v5", "h100-sxm", 8, id="azure-without-standard"),
        pytest.param("a3-highgpu-8g", "h100-sxm", 8, id="gcp"),
        pytest.param("2x p5.48xlarge", "h100-sxm", 16, id="two-machines"),
        pytest.param("h100:3g.40gb", "h100-sxm:3g.40gb", None, id="slice"),
        pytest.param("7x a100-40g-sxm:1g.5gb", "a100-40g-sxm:1g.5gb", 7, id="slices"),
        pytest.param('custom:"48 GiB",864GB/s,8.9', "custom", None, id="custom"),
        pytest.param("2xcustom:48GiB,864GB/s", "custom", 2, id="two-custom"),
    ],
)
def test_a_name_leads_to_its_card(name: str, slug: str, count: int | None) -> None:
    """As people, drivers, clusters and clouds write it."""
    choice = find_card(name)
    assert (choice.card.slug, choice.count) == (slug, count)


@pytest.mark.parametrize(
    ("slug", "gib"),
    [
        pytest.param("l4", 22.03, id="l4"),
        pytest.param("t4", 14.74, id="t4"),
        pytest.param("a10g", 22.055, id="a10g"),
        pytest.param("rtx-3090", 23.575, id="rtx-3090"),
        pytest.param("rtx-4090", 23.64, id="rtx-4090"),
        pytest.param("l40s", 44.42, id="l40s"),
        pytest.param("a100-80g-sxm", 79.325, id="a100-80g-sxm"),
        pytest.param("h100-sxm", 79.185, id="h100-sxm"),
        pytest.param("v100-32g-sxm", 31.74, id="v100-32g-sxm"),
        pytest.param("rtx-pro-6000", 94.97, id="rtx-pro-6000"),
        pytest.param("b300", 267.69, id="b300"),
        pytest.param("h200", 139.80, id="h200"),
        pytest.param("mi300x", 191.835, id="mi300x"),
    ],
)
def test_memory_is_what_cuda_was_seen_to_report(slug: str, gib: float) -> None:
    """Totals printed by engines and by torch, with the card named; to the hundredth of a GiB."""
    memory = find_card(slug).card.memory
    assert memory.best == pytest.approx(gib * GIB, abs=0.005 * GIB)
    assert memory.low <= memory.best <= memory.high
    assert memory.confidence == "measured"


@EACH
def test_every_name_of_a_card_leads_to_it_or_says_which_others_share_it(card: Card) -> None:
    """No alias leads nowhere; a shared one leads to the default or to a question that offers this card."""
    assert find_card(card.slug).card == card
    for alias in (card.name, *card.aliases, *card.default_for):
        try:
            choice = find_card(alias)
        except UnknownError as error:
            assert card.slug in error.hint, alias
        else:
            assert card.slug == choice.card.slug or card.slug in choice.note, alias
    for alias in card.default_for:
        assert find_card(alias).card.slug == card.slug


@EACH
def test_every_instance_leads_to_its_card_and_count(card: Card) -> None:
    """Each cloud instance of each file."""
    for rows in card.cloud.values():
        for instance, count in rows.items():
            choice = find_card(instance)
            assert (choice.card.slug, choice.count) == (card.slug, count)


@EACH
def test_every_card_has_a_source_a_date_and_a_basis_for_its_memory(card: Card) -> None:
    """A fact without a source is refused; a band without width is a figure that somebody saw."""
    assert card.source
    assert card.checked is not None
    assert card.memory_source
    assert card.verified
    assert all(price.source and price.usd_per_hour > 0 for price in card.prices)
    if card.memory.confidence in ("assumed", "extrapolated"):
        assert card.memory.low < card.memory.high


@EACH
def test_no_memory_is_the_marketing_size(card: Card) -> None:
    """Neither the decimal label nor as many GiB: CUDA reports something else on every card."""
    assert card.marketing_bytes is not None
    label = card.marketing_bytes // 10**9
    assert card.memory.best not in (label * 10**9, label * GIB)
    if card.nvidia_smi_bytes is not None:
        assert card.memory.high < card.nvidia_smi_bytes


@EACH
def test_formats_and_speeds_agree(card: Card) -> None:
    """A speed is given only for a format that the card has; there is at least one."""
    assert card.flops
    assert set(card.flops) <= set(card.formats)
    assert card.bandwidth_bytes_per_s > 1e11


@EACH
def test_every_listed_slice_can_be_asked_for(card: Card) -> None:
    """Each profile gives less memory than the card, with a band around it."""
    for profile in card.mig:
        part = find_card(f"{card.slug}:{profile.name}").card
        assert 0 < part.memory.low < part.memory.best < part.memory.high <= 1.01 * card.memory.best
        assert part.bandwidth_bytes_per_s <= card.bandwidth_bytes_per_s


def test_the_index_is_up_to_date() -> None:
    """If not: run scripts/import-gpus."""
    written = msgspec.json.decode((GPUS / "index.json").read_bytes(), type=Index)
    assert written == index_of(CARDS)


def test_a_default_says_what_else_the_name_may_mean() -> None:
    """H100 exists thrice; the plan prints the choice."""
    note = find_card("8xh100").note
    assert "H100 SXM5 80GB" in note
    assert "h100-pcie" in note
    assert find_card("h100-sxm").note == ""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("v100", "v100-32g-sxm", id="two-sizes"),
        pytest.param("rtx-6000", "rtx-6000-ada", id="two-generations"),
        pytest.param("h1000", "h100-sxm", id="near-miss"),
        pytest.param("8x h1000", "h100-sxm", id="near-miss-with-count"),
        pytest.param("l4s", "l40s", id="one-letter"),
        pytest.param("g6.99xlarge", "g6.", id="instance"),
        pytest.param("quantum", "tonnage gpus", id="nothing-near"),
        pytest.param("a100:9g.5gb", "7g.80gb", id="no-such-slice"),
        pytest.param("l4:1g.5gb", "cannot be cut", id="no-slices"),
    ],
)
def test_an_unknown_name_says_what_was_meant(name: str, hint: str) -> None:
    """Refused with the nearest, never resolved to it."""
    with pytest.raises(UnknownError) as caught:
        find_card(name)
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "0xl4", "custom:", "custom:48,864GB/s"])
def test_what_is_no_name_is_bad_input(name: str) -> None:
    """Empty, endless, none of a card, or a custom card without units."""
    with pytest.raises(InputError):
        find_card(name)


@given(st.text(max_size=60) | st.from_regex(r"\A[0-9]{0,3}[x*]? ?(h100|l4|a100|custom)[:,x. 0-9a-zGB/]{0,20}\Z"))
def test_any_text_finds_a_card_or_raises_our_error(name: str) -> None:
    """Nothing but a TonnageError may escape, whatever is typed."""
    if name.strip().lower() == "local":
        return
    try:
        choice = find_card(name)
    except TonnageError as error:
        assert error.problem
    else:
        assert choice.card.memory.best > 0
        assert choice.count is None or choice.count > 0


@EACH
def test_case_spaces_and_dashes_do_not_count(card: Card) -> None:
    """Each name as a Kubernetes label, in capitals and run together."""
    for name in (card.slug, card.name, *card.aliases):
        dashed = name.replace(" ", "-").replace("(", "").replace(")", "")
        assert plain_name(dashed) == plain_name(name.upper()) == plain_name(f"NVIDIA  {name}")


def test_the_users_own_cards_go_first(tmp_path: Path) -> None:
    """A file of the same name replaces the catalogue's, another adds to it; both by slug and alias."""
    ours = (GPUS / "l4.toml").read_text().replace('"22.03 GiB"', '"21.9 GiB"')
    (tmp_path / "l4.toml").write_text(ours)
    (tmp_path / "l4-ours.toml").write_text(ours.replace('name = "L4"', 'name = "Our L4"'))
    assert find_card("l4", tmp_path).card.memory.best == int(21.9 * GIB)
    assert find_card("our l4", tmp_path).card.slug == "l4-ours"
    assert find_card("4x l4-ours", tmp_path).count == 4
    assert find_card("h200", tmp_path).card == find_card("h200").card
    assert len(all_cards(tmp_path)) == len(CARDS) + 1


def test_a_broken_file_of_the_user_names_itself(tmp_path: Path) -> None:
    """Also one that is no text, and a directory that is none."""
    (tmp_path / "mine.toml").write_text("name = 24")
    with pytest.raises(InputError, match=r"mine\.toml"):
        find_card("l4", tmp_path)
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"mine\.toml"):
        load_card(tmp_path / "mine.toml")
    with pytest.raises(InputError, match="not a directory"):
        find_card("l4", tmp_path / "none")


@pytest.mark.parametrize(
    ("listing", "slug", "count", "note"),
    [
        pytest.param("NVIDIA L4, 23034 MiB, 8.9", "l4", 1, "", id="one"),
        pytest.param("NVIDIA H100 80GB HBM3, 81559 MiB, 9.0\n" * 8, "h100-sxm", 8, "", id="eight"),
        pytest.param("NVIDIA GB10, [N/A], 12.1", "gb10", 1, "", id="unified"),
        pytest.param(
            "NVIDIA GeForce RTX 3090, 24576 MiB, 8.6\nNVIDIA L4, 23034 MiB, 8.9\nNVIDIA L4, 23034 MiB, 8.9",
            "l4",
            2,
            "2 kinds of card",
            id="mixed",
        ),
        pytest.param("NVIDIA A40, 49140 MiB, 8.6", "a40", 1, "49140 MiB", id="error-correction-off"),
    ],
)
def test_this_hosts_cards_are_read_from_its_driver(listing: str, slug: str, count: int, note: str) -> None:
    """What nvidia-smi prints, and what is said where the host is not as the catalogue has it."""
    choice = local_card(listing=listing)
    assert (choice.card.slug, choice.count) == (slug, count)
    assert note in choice.note
    if "49140" in note:
        assert choice.card.memory.best == pytest.approx(47.5 * GIB, abs=0.1 * GIB)
        assert choice.card.nvidia_smi_bytes == 49140 * MIB


def test_a_host_without_a_known_card_says_what_to_do() -> None:
    """No card, and one that we have no facts of."""
    with pytest.raises(InputError, match="no GPU"):
        local_card(listing="")
    with pytest.raises(UnknownError, match="NVIDIA GeForce GT 710"):
        local_card(listing="NVIDIA GeForce GT 710, 2048 MiB, 3.5")


def test_local_asks_the_driver_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on PATH, missing, and failing."""
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no NVIDIA driver"):
        find_card("local")
    for text, ending in (("NVIDIA L4, 23034 MiB, 8.9", 0), ("Failed to initialize NVML", 9)):
        program.write_text(f"#!/bin/sh\necho '{text}'\nexit {ending}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        if ending == 0:
            assert find_card("LOCAL").card.slug == "l4"
        else:
            with pytest.raises(EndpointError, match="Failed to initialize NVML"):
                find_card("local")
