"""The constants of the overhead: each has its evidence, and a file that is wrong is refused by name."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.errors import InputError
from tonnage.facts.overheads import Evidence, OverheadConstants, at_release, by_card, overhead_constants, parse_overheads
from tonnage.facts.tables import DATA
from tonnage.units import GIB, MIB

TEXT = (DATA / "overheads.toml").read_text(encoding="utf-8")


def evidences(constants: OverheadConstants) -> list[Evidence]:
    """Return the evidence of every law that has one."""
    return [constants.context.evidence, constants.activation.evidence, constants.graphs.evidence, constants.load.evidence]


def test_the_file_and_what_is_compiled_from_it_agree() -> None:
    """A plan reads the compiled form; the TOML is what people read."""
    assert parse_overheads(TEXT) == overhead_constants()


def test_sizes_become_bytes() -> None:
    """Text with a unit in the file, whole bytes in the value, at any depth."""
    constants = overhead_constants()
    assert constants.forward.buffer == 50 * MIB
    assert constants.context.alone["0.18"] == GIB // 4
    assert constants.load.evidence.above == int(0.16 * GIB)


def test_every_law_says_where_it_comes_from() -> None:
    """A source, how many rows and models, and how far off the law was on them."""
    for evidence in evidences(overhead_constants()):
        assert len(evidence.source) > 20
        assert evidence.rows >= evidence.models > 5
        assert evidence.above > 0 and evidence.step > 0 and 0 < evidence.step_share < 1


def test_every_history_starts_with_the_oldest_release_we_plan_for() -> None:
    """The second engine core; older releases take its law, and the band says how far away they are."""
    c = overhead_constants()
    for history in (c.context.alone, c.runner.second, c.sampler.row_bytes, c.sampler.scratch_rows):
        assert "0.8" in history


@pytest.mark.parametrize(
    ("release", "expected"),
    [pytest.param((0, 6), 38, id="older than known"), pytest.param((0, 16), 38, id="before the change"),
     pytest.param((0, 17), 14, id="the release of the change"), pytest.param((0, 40), 14, id="newer than known")],
)  # fmt: skip
def test_a_history_gives_the_newest_value_at_or_before_a_release(release: tuple[int, int], expected: int) -> None:
    """The published fall of the activation peak at 0.17: 38 bytes a logit, then 14."""
    assert at_release(overhead_constants().sampler.row_bytes, release) == expected


def test_a_card_without_an_entry_takes_the_other() -> None:
    """cuBLAS keeps 32 MiB on Hopper, 8 MiB on cards that are not listed and on other vendors'."""
    workspace = overhead_constants().forward.workspace
    assert [by_card(workspace, capability) for capability in ((9, 0), (8, 9), None)] == [32 * MIB, 8 * MIB, 8 * MIB]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param('staged = "0.07 GiB"', "staged_wrong = 7", "unknown field `staged_wrong`", id="a name we do not know"),
        pytest.param('buffer = "50 MiB"', 'buffer = "50 bags"', "has a unit we do not know", id="a unit we do not know"),
        pytest.param('peer = "14 MiB"', "", "missing required field `peer`", id="a constant is missing"),
        pytest.param('peer = "14 MiB"', 'peer = ["14 MiB"]', "Expected `int`", id="of the wrong kind"),
        pytest.param("[steps]", "[steps", "not TOML", id="not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(old: str, new: str, problem: str) -> None:
    """Never a silent default: the field or the size is in the message."""
    assert old in TEXT
    with pytest.raises(InputError, match=problem.replace("[", r"\[")):
        parse_overheads(TEXT.replace(old, new, 1))


def test_constants_are_values() -> None:
    """Frozen: a calibration makes another value, and cannot change the ones that ship."""
    with pytest.raises(AttributeError):
        overhead_constants().forward.buffer = 0  # type: ignore[misc]
    changed = msgspec.structs.replace(overhead_constants().forward, buffer=0)
    assert changed.buffer == 0 and overhead_constants().forward.buffer == 50 * MIB
