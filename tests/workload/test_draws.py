"""Do arrivals and lengths follow the laws that their names promise?"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from random import Random
from statistics import mean, median, pvariance, quantiles

import pytest

from tonnage.errors import InputError
from tonnage.workload.beginnings import chunks, pools
from tonnage.workload.draws import constant, diurnal, empirical, fixed, gamma, lognormal, poisson, recorded, uniform
from tonnage.workload.traffic import Arrivals, at_rate, conversations, lengths, sequences

COUNT = 40_000


def gaps(times: list[float]) -> list[float]:
    """Return the times between."""
    return [after - before for before, after in zip([0.0, *times], times, strict=False)]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_their_mean_and_variation(burstiness: float) -> None:
    """A gamma law; at 1 the exponential one."""
    found = gaps(gamma(5.0, COUNT, Random(1), burstiness))
    assert mean(found) == pytest.approx(0.2, rel=4 * sqrt(burstiness / COUNT))
    assert pvariance(found) / mean(found) ** 2 == pytest.approx(burstiness, rel=0.1)


def test_poisson_counts_scatter_as_their_mean() -> None:
    """In windows of a second: variance = mean; and gaps do not depend on the one before."""
    times = poisson(8.0, COUNT, Random(2))
    counts = [0] * (int(times[-1]) + 1)
    for at in times:
        counts[int(at)] += 1
    assert pvariance(counts) == pytest.approx(mean(counts), rel=0.06)


def test_constant_and_recorded() -> None:
    """Equal gaps; recorded times from 0, faster."""
    assert constant(4.0, 3) == [0.0, 0.25, 0.5]
    assert recorded([10.0, 14.0, 12.0], faster=2.0) == [0.0, 1.0, 2.0]


def test_a_day_has_its_mean_and_its_peak() -> None:
    """Over whole days the rate is the one that was asked for; the busiest quarter has more than the calmest by the ratio."""
    times = diurnal(2.0, COUNT, Random(3), peak_ratio=4.0, period_s=1000.0)
    days = int(times[-1] // 1000)
    whole = [at for at in times if at < days * 1000]
    assert len(whole) / (days * 1000) == pytest.approx(2.0, rel=0.03)
    tenths = [0] * 10
    for at in whole:
        tenths[int(at % 1000 // 100)] += 1
    assert max(tenths) / min(tenths) == pytest.approx(4.0, rel=0.25)


def test_lengths_have_their_quantiles() -> None:
    """Lognormal by median and p95, uniform between its ends, empirical out of what was seen."""
    found = lognormal(1000, 4000, COUNT, Random(4))
    assert median(found) == pytest.approx(1000, rel=0.03) and quantiles(found, n=20)[18] == pytest.approx(4000, rel=0.04)
    assert max(lognormal(1000, 4000, COUNT, Random(4), most=3000)) == 3000
    flat = uniform(10, 20, COUNT, Random(5))
    assert (min(flat), max(flat)) == (10, 20) and mean(flat) == pytest.approx(15, rel=0.01)
    assert set(empirical([3, 7], 100, Random(6))) == {3, 7} and fixed(9, 2) == [9, 9]


def test_sequences_meet_the_workload() -> None:
    """The whole sequence at its p95, answers on average, nothing above the limit."""
    law = lengths(8000, 500, p99=12_000)
    prompts, answers = sequences(law, COUNT, Random(7))
    whole = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    assert quantiles(whole, n=20)[18] == pytest.approx(8000, rel=0.05) and max(whole) <= 12_000
    assert mean(answers) == pytest.approx(500, rel=0.03)


def test_turns_hold_what_was_said() -> None:
    """Each prompt begins with the pieces of the one before, and its answer."""
    found = conversations(lengths(4000, 100, shared=200), 5, 4, 1.0, Random(8))
    for index, before in enumerate(found.after):
        if before >= 0:
            assert found.pieces[index][: len(found.pieces[before])] == found.pieces[before]
            assert found.pieces[index][len(found.pieces[before])] == (found.answer[before], found.output_tokens[before])
        assert sum(tokens for _, tokens in found.pieces[index]) == found.prompt_tokens[index]


@pytest.mark.parametrize("make", [
    lambda draw: poisson(0.0, 5, draw), lambda draw: poisson(1.0, 0, draw), lambda draw: gamma(1.0, 5, draw, 0.0),
    lambda draw: uniform(5, 4, 3, draw), lambda draw: lognormal(10, 5, 3, draw), lambda draw: empirical([], 3, draw),
    lambda draw: diurnal(1.0, 5, draw, peak_ratio=0.5), lambda draw: at_rate(lengths(10, 20), 1.0, 5, draw),
])  # fmt: skip
def test_nonsense_is_refused(make: Callable[[Random], object]) -> None:
    """Zero rates, nothing to draw from, a p95 below the median, an answer longer than the context."""
    with pytest.raises(InputError):
        make(Random(1))


def test_system_prompts_and_chunks_are_as_popular_as_zipf_says() -> None:
    """The first twice as often as the second; what does not fit is left out."""
    found = pools([1000] * COUNT, 300, 5, Random(9))
    counts = [sum(pieces[0] == (("system", number), 300) for pieces in found) for number in range(5)]
    assert counts[0] / counts[1] == pytest.approx(2.0, rel=0.08) and sum(counts) == COUNT
    assert pools([100], 300, 1, Random(1)) == [((("system", 0), 100),)] and pools([100], 0, 1, Random(1)) == []
    for pieces in chunks([1000, 500, 100], 100, 50, 4, 200, Random(10)):
        assert sum(tokens for _, tokens in pieces) <= 1000 and pieces[0][0] == ("system", 0)
    with pytest.raises(InputError):
        chunks([1000], 0, 3, 4, 200, Random(1))


def test_every_law_of_arrivals_has_its_rate() -> None:
    """Poisson, constant, diurnal."""
    law = lengths(1000, 100)
    laws: tuple[Arrivals, ...] = ("poisson", "constant", "diurnal")
    for arrivals in laws:
        times = at_rate(law, 5.0, 20_000, Random(11), arrivals=arrivals).arrival_s
        assert len(times) / times[-1] == pytest.approx(5.0, rel=0.03), arrivals
