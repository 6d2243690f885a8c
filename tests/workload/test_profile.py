"""Does a profile say of a trace what counting by hand says, and does it keep its laws?"""

from __future__ import annotations

import io
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.workload.concurrency import Speed, busiest, concurrency, intervals, over_time, peak_of
from tonnage.workload.file import read_workload
from tonnage.workload.prefixes import common_tokens, hit_share, prefixes, shared_at_peak
from tonnage.workload.profile import Profile, burstiness, covered_s, profile
from tonnage.workload.profile_file import workload_text, workload_values
from tonnage.workload.spec import workload
from tonnage.workload.trace import Trace
from tonnage.workload.traces.columns import Columns
from tonnage.workload.traces.fields import Field, read_map
from tonnage.workload.traces.read import read_trace

spans = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 500)), min_size=1, max_size=40)
prompts = st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=40)


def of(rows: list[dict[str, object]]) -> Trace:
    """Return the trace of rows, as a reader would make it."""
    columns = Columns("csv", {name: Field(name, "s" if name == "duration" else "") for name in rows[0]})
    for line, row in enumerate(rows, 1):
        columns.add(line, row)
    return columns.trace("rows", block_tokens=16)


def hashed(blocks: list[list[int]], tail: int = 1) -> Trace:
    """Return a trace of prompts of whole blocks and `tail` tokens more, a second apart, each ten seconds long."""
    return of(
        [
            {
                "arrival": n,
                "prompt": 16 * len(ids) + tail,
                "output": 5,
                "duration": 10,
                "hashes": [str(ids[: k + 1]) for k in range(len(ids))],
            }
            for n, ids in enumerate(blocks)
        ]
    )


@given(spans)
def test_the_peak_is_the_one_that_counting_finds(found: list[tuple[float, float]]) -> None:
    """At each start: how many have begun and not ended. A request of no length counts at its own moment."""
    trace = of([{"arrival": start, "duration": span} for start, span in found])
    starts, ends = intervals(trace, Speed())
    brute = max(sum(start <= at < end for start, end in zip(starts, ends, strict=True)) for at in starts)
    peak, at = peak_of(starts, ends)
    assert peak == brute == sum(start <= at < end for start, end in zip(starts, ends, strict=True))
    assert 1 <= peak <= len(found)
    whole = concurrency(trace, Speed())
    assert whole is not None and (whole.low, whole.peak, whole.high, whole.confidence) == (brute, brute, brute, "exact")


@given(spans, st.integers(1, 30))
def test_the_picture_has_the_same_peak(found: list[tuple[float, float]], bins: int) -> None:
    """Whatever its steps are."""
    trace = of([{"arrival": start, "duration": span} for start, span in found])
    starts, ends = intervals(trace, Speed())
    assert max(over_time(starts, ends, bins, trace.arrival_s[-1])) == peak_of(starts, ends)[0]


@given(spans)
def test_an_assumed_end_that_is_the_true_one_gives_the_same_peak(found: list[tuple[float, float]]) -> None:
    """One question, whether a log has ends or only answers."""
    speed = Speed(0.0, 0.5)
    outputs = [round(span) for _, span in found]
    known = of([{"arrival": a, "prompt": 1, "output": n, "duration": 0.5 * n} for (a, _), n in zip(found, outputs, strict=True)])
    assumed = of([{"arrival": a, "prompt": 1, "output": n} for (a, _), n in zip(found, outputs, strict=True)])
    one, other = concurrency(known, speed), concurrency(assumed, speed)
    assert one is not None and other is not None
    assert (one.peak, other.confidence) == (other.peak, "assumed")
    assert other.low <= other.peak <= other.high


def test_littles_law_is_the_mean_in_the_busiest_minute() -> None:
    """One a second, four seconds each: four at once."""
    trace = of([{"arrival": n, "duration": 4} for n in range(600)])
    found = concurrency(trace, Speed())
    assert found is not None and found.little == pytest.approx(4.0) and found.peak == 4


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40), st.floats(0.1, 100))
def test_the_busiest_window_is_the_one_that_counting_finds(times: list[float], window: float) -> None:
    """Any window, not only one that begins at a round minute."""
    times.sort()
    first, last = busiest(times, window)
    assert last - first == max(sum(0 <= at - start < window for at in times) for start in times)


def lru_by_hand(trace: Trace, room: int) -> float:
    """Count hits with a list: the most recent last, a prompt's first block the most recent of it."""
    cache: list[int] = []
    found = 0
    for index, prompt in enumerate(trace.prompt_tokens):
        blocks = list(trace.blocks(index))
        run = 0
        while run < min(len(blocks), (prompt - 1) // trace.block_tokens) and blocks[run] in cache:
            run += 1
        found += run * trace.block_tokens
        for block in reversed(blocks):
            cache = [each for each in cache if each != block] + [block]
        cache = cache[len(cache) - min(room, len(cache)) :]
    return found / sum(trace.prompt_tokens)


@given(prompts, st.integers(0, 30), st.sampled_from([0, 1, 15]))
def test_a_finite_cache_finds_what_a_list_kept_by_hand_finds(blocks: list[list[int]], room: int, tail: int) -> None:
    """Also one of no room, and prompts that end with a block, whose last token is computed again."""
    trace = hashed([ids or [0] for ids in blocks], tail)
    assert hit_share(trace, room * 16 + 7) == pytest.approx(lru_by_hand(trace, room))


@given(prompts)
def test_a_larger_cache_finds_no_less_and_none_finds_more_than_the_ideal(blocks: list[list[int]]) -> None:
    """And the ideal is reached by one that holds all there is."""
    trace = hashed(blocks)
    shares = [hit_share(trace, 16 * room) for room in range(0, 60, 3)]
    assert shares == sorted(shares) and shares[0] == 0
    assert shares[-1] <= hit_share(trace) == hit_share(trace, 16 * (len(trace.block_ids) + 1)) < 1


@given(prompts)
def test_the_ideal_cache_finds_the_longest_prefix_seen_before(blocks: list[list[int]]) -> None:
    """By comparing with every prompt before it."""
    found = 0
    for index, ids in enumerate(blocks):
        found += 16 * max(
            (sum(ids[: k + 1] == other[: k + 1] for k in range(min(len(ids), len(other)))) for other in blocks[:index]), default=0
        )
    assert hit_share(hashed(blocks)) == pytest.approx(found / sum(16 * len(ids) + 1 for ids in blocks))


def test_a_prompt_repeated_is_found_but_for_one_token() -> None:
    """Of 32 tokens in two blocks the second block is computed again: its last token must be."""
    assert hit_share(hashed([[1, 2], [1, 2]], tail=0)) == 16 / 64
    assert hit_share(hashed([[1, 2], [1, 2]], tail=1)) == 32 / 66


def test_what_is_shared_in_flight_is_not_what_is_found_again() -> None:
    """A conversation's turns come one after the other: all found again, nothing shared at one moment."""
    system = hashed([[7, 7, n] for n in range(10)])
    assert shared_at_peak(system, *intervals(system, Speed())) == 32 == common_tokens(system)
    turns = of(
        [{"arrival": 100 * n, "prompt": 33, "output": 1, "duration": 5, "hashes": ["a", "b"]} for n in range(10)],
    )
    shares = prefixes(turns, *intervals(turns, Speed()))
    assert shares is not None and shares.shared_prefix_tokens == 0 and shares.ideal_share == pytest.approx(0.9 * 32 / 33)


@given(spans, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(found: list[tuple[float, float]], chance: object) -> None:
    """Loggers write in the order of ends."""
    rows: list[dict[str, object]] = [
        {"arrival": start, "prompt": n + 1, "output": n, "duration": span, "hashes": [str(n % 3)]} for n, (start, span) in
        enumerate({start: (start, span) for start, span in found}.values())
    ]  # fmt: skip
    shuffled = list(rows)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert profile(of(shuffled)) == profile(of(rows))


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(1, 10**6), st.integers(0, 10**5)), min_size=1, max_size=30))
def test_what_is_written_is_read_and_planned_with(rows: list[tuple[float, int, int]]) -> None:
    """workload.toml gives back users, p95, p99 and answer, and they are a workload that a plan takes."""
    found = profile(of([{"arrival": a, "prompt": p, "output": o} for a, p, o in rows]))
    values = workload_values(found)
    file = read_workload(workload_text(found, 'x\n"\x07users = 3'), "workload.toml")
    assert (file.users, file.context, file.p99, file.output) == tuple(
        values[name] for name in ("users", "context_tokens", "p99_tokens", "output_tokens")
    )
    assert found.total_tokens is not None and values["context_tokens"] == found.total_tokens.p95
    made = workload(values["users"], values["context_tokens"], output=values["output_tokens"], p99=values["p99_tokens"])
    assert made.longest == values["p99_tokens"]


def test_a_shared_prefix_is_written_in_tokens() -> None:
    """Two blocks that all in flight share."""
    found = profile(hashed([[7, 7, n] for n in range(10)]))
    assert read_workload(workload_text(found, "log"), "w").shared_prefix == 32


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([0.0, 2.0, 4.0], 0.0),
        ([0.0, 0.0, 2.0], 1.0),
        ([0.0, 0.0, 0.0, 3.0], 2.0),
        ([0.0], None),
        ([5.0, 5.0, 5.0], None),
        ([0.0, 1.0], None),
    ],
)
def test_burstiness_is_the_squared_variation_of_the_gaps(arrivals: list[float], expected: float | None) -> None:
    """By hand: gaps 0, 0, 3 have the mean 1 and the variance 2."""
    assert burstiness(array("d", arrivals)) == (None if expected is None else pytest.approx(expected))


@given(st.floats(0, 86_399), st.floats(0, 1e6))
def test_the_hours_covered_add_up_to_the_log(begins: float, span: float) -> None:
    """Whatever the days it begins and ends on."""
    assert sum(covered_s(begins, span)) == pytest.approx(span, abs=1e-3)


@pytest.mark.parametrize(
    ("count", "gap", "words"),
    [
        (999, 1.0, {"too short for a p99", "less than a day"}),
        (1_000, 1.0, {"less than a day"}),
        (1_000, 90.0, set()),
        (30, 0.0, {"too short for a p99", "less than a day", "coarse"}),
    ],
)
def test_what_a_log_is_too_short_to_tell_is_said(count: int, gap: float, words: set[str]) -> None:
    """Below 1,000 requests, below a day, below the clock's own steps."""
    found = profile(of([{"arrival": n * gap, "prompt": 3, "output": 4} for n in range(count)]))
    for word in ("too short for a p99", "less than a day", "coarse"):
        assert any(word in remark for remark in found.remarks) is (word in words), word


def test_a_log_of_arrivals_alone_says_what_it_lacks() -> None:
    """And leaves users and context to whoever plans."""
    found = profile(of([{"arrival": n} for n in range(5)]))
    assert (found.concurrency, found.total_tokens, workload_values(found)) == (None, None, {})
    assert len(found.lacks) == 5 and read_workload(workload_text(found, "log"), "w").users is None


def published(shared: Path, name: str) -> Profile:
    """Return the profile of a public trace."""
    return profile(read_trace(io.BytesIO((shared / "data" / "traces" / name).read_bytes()), name), cache_tokens=(0, 10**6, 10**7, 10**9))


@pytest.mark.parametrize(
    ("name", "p50", "p95", "p99", "peak", "scv"),
    [
        pytest.param("azure-2023-code.csv", 1_493, 7_343, 7_462, (47, 73, 120), 172.96, id="azure code"),
        pytest.param("azure-2023-conversation.csv", 1_412, 4_136, 4_259, (30, 50, 87), 1.1972, id="azure conversation"),
        pytest.param("mooncake-conversation.jsonl", 7_255, 40_056, 85_858, (41, 57, 88), 9.2036, id="mooncake conversation"),
        pytest.param("mooncake-synthetic.jsonl", 11_646, 49_019, 66_468, (17, 31, 47), 1.0227, id="mooncake synthetic"),
    ],
)
def test_public_traces_have_the_figures_recorded(
    shared: Path, name: str, p50: int, p95: int, p99: int, peak: tuple[int, int, int], scv: float
) -> None:
    """Recorded when the reader was written; lengths as sort and sed give them."""
    found = published(shared, name)
    assert found.total_tokens is not None and found.concurrency is not None
    assert (found.total_tokens.p50, found.total_tokens.p95, found.total_tokens.p99) == (p50, p95, p99)
    assert (found.concurrency.low, found.concurrency.peak, found.concurrency.high) == peak
    assert found.burstiness == pytest.approx(scv, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "ideal", "shares"),
    [("mooncake-conversation.jsonl", 0.3734, (0.0, 0.0559, 0.2976)), ("mooncake-synthetic.jsonl", 0.6504, (0.0, 0.1501, 0.5881))],
)
def test_public_traces_share_what_was_recorded(shared: Path, name: str, ideal: float, shares: tuple[float, ...]) -> None:
    """Counting ids alone, each seen before or not and whatever its length, gives 36.6 % and 64.0 % without a limit."""
    found = published(shared, name).prefix
    assert found is not None and found.ideal_share == pytest.approx(ideal, abs=1e-4)
    assert [held.hit_share for held in found.lru] == pytest.approx([*shares, ideal], abs=1e-4)


@pytest.mark.parametrize("name", ["RTX4090_Llama-3.1-8B", "RTXPRO6000_Llama-3.1-8B"])
def test_the_peak_is_what_the_engine_counted(shared: Path, name: str) -> None:
    """vLLM's own running and waiting, sampled once a second, never above ours and within 1 % of it."""
    folder = shared / "data" / "measured" / "requests"
    counts = [line.split(",") for line in (folder / f"{name}.timeseries.csv").read_text().splitlines()[1:]]
    counted = max(int(row[3]) + int(row[4]) for row in counts)
    requests = io.BytesIO((folder / f"{name}.requests.jsonl").read_bytes())
    found = profile(read_trace(requests, name, given=read_map("arrival=queued_ts,end=last_token_ts"))).concurrency
    assert found is not None and found.confidence == "exact"
    assert 0.99 * found.peak <= counted <= found.peak
