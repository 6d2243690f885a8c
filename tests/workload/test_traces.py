"""Is every format told by what it holds, read as it is written, and what cannot be read counted and never quoted?"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.report.profile_page import profile_page
from tonnage.report.profile_text import profile_text
from tonnage.workload.concurrency import Speed
from tonnage.workload.profile import profile
from tonnage.workload.trace import FORMATS, Trace
from tonnage.workload.traces.clock import Clock
from tonnage.workload.traces.fields import find_fields, read_map
from tonnage.workload.traces.read import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,3180,8\n"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 500, "input_length": 600, "output_length": 4, "hash_ids": [0, 7]}\n'
)
USAGE = (
    '{"created": 1700000000, "usage": null}\n'
    '{"created": 1700000001, "usage": {"prompt_tokens": 90, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}}}\n'
    '{"created": 1700000003, "usage": {"prompt_tokens": 80, "completion_tokens": 8, "prompt_tokens_details": null}}\n'
)
GATEWAY = (
    '{"start_time": "2025-01-01T00:00:00Z", "prompt_tokens": 10, "completion_tokens": 2, "duration_ms": 1500}\n'
    '{"start_time": "2025-01-01T01:00:01+01:00", "prompt_tokens": 20, "completion_tokens": 3, "duration_ms": 250}\n'
)
VLLM = """\
(APIServer pid=9) INFO:     Started server process [9]
(APIServer pid=9) INFO 12-31 23:59:59 [logger.py:49] Received request chatcmpl-a: params: SamplingParams(max_tokens=9), lora_request: None.
(APIServer pid=9) INFO 12-31 23:59:59 [async_llm.py:382] Added request chatcmpl-a-a8a6.
(APIServer pid=9) INFO 01-01 00:00:04 [logger.py:49] Received request chatcmpl-b: params: SamplingParams(max_tokens=9), lora_request: None.
"""
OLD_VLLM = """\
INFO 10-01 18:43:27 x.py:3] Received request cmpl-1-0: prompt: 'x prompt_token_ids: [9]', prompt_token_ids: [1, 2, 3], lora_request: None.
INFO 10-01 18:43:28 logger.py:36] Received request cmpl-2-0: prompt: 'secret', params: P(), prompt_token_ids: [1, 2], lora_request: None.
INFO 10-01 18:43:29 logger.py:36] Generated response cmpl-1-0: output: 'secret', output_token_ids: [1, 2, 3, 4], finish_reason: stop
INFO 10-01 18:43:31 logger.py:36] Generated response cmpl-2-0 (streaming complete): output: 'y', output_token_ids: [5], finish_reason: stop
"""
CSV = 'when;text;in;out;took\n1700000000500;"two\nlines; SECRET";7;3;2.5\n1700000001500;"";8;4;1\n'


def read(text: str, mapping: str = "", form: str = "") -> Trace:
    """Return the trace of a text."""
    return read_trace(io.BytesIO(text.encode()), "log", form=form, given=read_map(mapping))


@pytest.mark.parametrize(
    ("text", "mapping", "form", "arrivals", "prompts", "outputs"),
    [
        pytest.param(AZURE, "", "azure", [0.0, 0.5], [4808, 3180], [10, 8], id="azure"),
        pytest.param("\ufeff" + AZURE.replace("\n", "\r\n"), "", "azure", [0.0, 0.5], [4808, 3180], [10, 8], id="azure of Windows"),
        pytest.param(MOONCAKE, "", "mooncake", [0.0, 0.5], [1100, 600], [5, 4], id="mooncake"),
        pytest.param(USAGE, "", "usage", [0.0, 2.0], [90, 80], [9, 8], id="usage"),
        pytest.param(GATEWAY, "", "gateway", [0.0, 1.0], [10, 20], [2, 3], id="gateway"),
        pytest.param(VLLM, "", "vllm-log", [0.0, 5.0], [], [], id="vllm over a new year"),
        pytest.param(OLD_VLLM, "", "vllm-log", [0.0, 1.0], [3, 2], [4, 1], id="vllm with ids and answers"),
        pytest.param(CSV, "arrival=when,prompt=in,output=out,duration=took:s", "csv", [0.0, 1.0], [7, 8], [3, 4], id="csv with a map"),
        pytest.param("arrival_s,in_tokens,out_tokens\n5,1,2\n2,3,4\n", "", "csv", [0.0, 3.0], [3, 1], [4, 2], id="csv out of order"),
        pytest.param('{"log":"INFO 02-13 11:33:33 x] Added request a-1.\\n"}\n', "", "vllm-log", [0.0], [], [], id="vllm in Docker's JSON"),
        pytest.param(MOONCAKE.replace("500,", "0.5,"), "", "mooncake", [0.0, 0.5], [1100, 600], [5, 4], id="mooncake's fields in seconds"),
    ],
)
def test_a_format_is_told_by_what_it_holds(
    text: str, mapping: str, form: str, arrivals: list[float], prompts: list[int], outputs: list[int]
) -> None:
    """And read into the same columns."""
    trace = read(text, mapping)
    assert trace.format == form
    assert list(trace.arrival_s) == pytest.approx(arrivals)
    assert (list(trace.prompt_tokens), list(trace.output_tokens)) == (prompts, outputs)


def test_what_else_a_log_carries() -> None:
    """Ends, cached tokens (-1 where it does not say), blocks and their size, the moment of the first."""
    assert list(read(GATEWAY).end_s) == pytest.approx([1.5, 1.25])
    assert list(read(OLD_VLLM).end_s) == pytest.approx([2.0, 4.0])
    assert list(read(CSV, "arrival=when,prompt=in,output=out,duration=took:s").end_s) == pytest.approx([2.5, 2.0])
    usage = read(USAGE)
    assert (list(usage.cached_tokens), usage.skipped.reasons) == ([64, -1], (("it has no prompt tokens", 1),))
    mooncake = read(MOONCAKE)
    assert (mooncake.block_tokens, list(mooncake.blocks(0)), list(mooncake.blocks(1))) == (512, [0, 1], [0])
    assert read(AZURE).epoch_s == pytest.approx(1_700_158_623.97996) and mooncake.epoch_s is None
    assert read(VLLM).dated is False


def test_an_end_and_a_duration_give_the_start() -> None:
    """Loggers write when a request ends."""
    text = '{"at": 1700000010, "took_ms": 4000}\n{"at": 1700000011, "took_ms": 1000}\n'
    trace = read(text, "end=at,duration=took_ms")
    assert (list(trace.arrival_s), list(trace.end_s)) == ([0.0, 4.0], [4.0, 5.0])


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        ("2023-11-16 18:17:03.9799600", "", 1_700_158_623.97996),
        ("2023-11-16T18:17:03Z", "", 1_700_158_623.0),
        ("2023-11-16T20:17:03+02:00", "", 1_700_158_623.0),
        ("2023-11-16 18:17:03 UTC", "", 1_700_158_623.0),
        ("16/Nov/2023:18:17:03 +0000", "", 1_700_158_623.0),
        ("[16/Nov/2023:16:47:03 -0130]", "", 1_700_158_623.0),
        (1_700_158_623, "", 1_700_158_623.0),
        ("1700158623.5", "", 1_700_158_623.5),
        (1_700_158_623_500, "", 1_700_158_623.5),
        (1_700_158_623_500_000, "", 1_700_158_623.5),
        (1_700_158_623_500_000_000, "", 1_700_158_623.5),
        (3_600, "", 3_600.0),
        (3_600, "ms", 3.6),
    ],
)
def test_times_as_loggers_write_them(value: object, unit: str, seconds: float) -> None:
    """16 November 2023 in every form (`date -ud @1700158623`)."""
    assert Clock(unit).seconds(value) == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize("value", ["soon", "", None, True, float("nan"), "nan", "inf", -1, "1e300", [], "99/Foo/2023:18:17:03", 10**400])
def test_what_is_no_time_is_refused(value: object) -> None:
    """With a reason that does not repeat it."""
    with pytest.raises(ValueError, match="time"):
        Clock().seconds(value)


def test_one_file_writes_its_times_in_one_way() -> None:
    """A zero among dates would make a log of fifty years."""
    trace = read("ts,in_tokens\n1700000000,1\n0,2\n1700000001,3\n2025-01-01,4\n1700000002000,5\n")
    assert list(trace.prompt_tokens) == [1, 3]
    assert trace.skipped.count == 3 and [line for line, _ in trace.skipped.first] == [3, 5, 6]


def test_rows_that_cannot_be_are_counted_and_not_quoted() -> None:
    """Negative, fractional, not there, words: a wrong map must not print a prompt."""
    rows = ["1,5,5", "2,-3,5", "3,3.5,5", "4,SECRET,5", "5,,5", "6,5", "SECRET,5,5", "nan,1,1", "8,1e12,1", "9,6.0,5"]
    trace = read("ts,in_tokens,out_tokens\n" + "\n".join(rows) + "\n")
    assert list(trace.prompt_tokens) == [5, 6]
    assert trace.skipped.count == 8 and len(trace.skipped.first) == 5
    assert "SECRET" not in str(trace.skipped)
    assert dict(trace.skipped.reasons)["its prompt tokens are no whole number"] == 2


@pytest.mark.parametrize(
    ("text", "mapping", "words"),
    [
        ("", "", "is empty"),
        ("\n \n", "", "is empty"),
        ("\0\1\2", "", "binary"),
        ("hello", "", "no log of requests"),
        ("hello\nworld\n" * 100, "", "no log of requests"),
        ('[{"a": 1}]', "", "list of JSON"),
        ('{"a":' * 100_000, "", "no log of requests"),
        ("x" * 200_000, "", "no log of requests"),
        ('{"a": 1}', "", "no column holds the time"),
        ('{"ts": "SECRET"}', "", "no request that can be read"),
        (AZURE.splitlines()[0], "", "no rows"),
        (AZURE, "arrival=WHEN", "no column WHEN"),
        (AZURE, "arival=TIMESTAMP", "arival is nothing"),
        (AZURE, "duration=ContextTokens", "unit"),
        (AZURE, "arrival=TIMESTAMP:weeks", "weeks"),
        (AZURE, "TIMESTAMP", "no entry"),
        ("INFO 02-13 11:33:33 [x.py:1] Starting\n", "", "Received request"),
        ('{"ts": 1, "duration_ms": -5}', "", "duration"),
        ('{"start": 9, "end": 5}', "", "ends before it starts"),
        ('{"start": 9, "end": 1700000000}', "", "two clocks"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, mapping: str, words: str) -> None:
    """As an InputError with a hint, without a word of the file."""
    with pytest.raises(InputError, match=words) as caught:
        read(text, mapping)
    assert caught.value.hint and "SECRET" not in f"{caught.value}{caught.value.hint}"


def test_a_header_that_is_a_row_is_not_repeated() -> None:
    """Only what looks like a name is listed."""
    with pytest.raises(InputError) as caught:
        find_fields(["Dear doctor, my SECRET", "id"], {}, "log")
    assert "SECRET" not in caught.value.hint and "id" in caught.value.hint


def test_a_duration_without_a_unit_is_not_guessed() -> None:
    """Envoy's is in ms, nginx's request_time in s."""
    trace = read('{"start_time": 5, "duration": 1200}\n')
    assert not trace.end_s and "unit" in trace.remarks[0]
    assert list(read('{"start_time": 5, "request_time": "0.25"}\n').end_s) == [0.25]


@pytest.mark.parametrize("size", [16, 64, 512])
def test_the_size_of_a_block_is_told_from_the_lengths(size: int) -> None:
    """The one that explains how many hashes a prompt has."""
    rows = [
        {"timestamp": n, "input_length": 997 * n, "output_length": 1, "hash_ids": list(range(-(-997 * n // size)))} for n in range(1, 9)
    ]
    assert read("".join(json.dumps(row) + "\n" for row in rows)).block_tokens == size


def test_hashes_may_be_texts() -> None:
    """Equal texts are equal blocks."""
    row = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": ["a", "b"]}\n'
    trace = read(row + row.replace('"b"', '"c"'))
    assert [list(trace.blocks(index)) for index in (0, 1)] == [[0, 1], [0, 2]]


@pytest.mark.parametrize(
    ("name", "form", "requests", "prompts", "outputs"),
    [
        ("azure-2023-code.csv", "azure", 8_819, 18_059_974, 245_896),
        ("azure-2023-conversation.csv", "azure", 19_366, 22_361_870, 4_088_665),
        ("mooncake-conversation.jsonl", "mooncake", 12_031, 144_793_823, 4_122_048),
        ("mooncake-synthetic.jsonl", "mooncake", 3_993, 61_194_628, 595_432),
    ],
)
def test_public_traces_are_read_whole(shared: Path, name: str, form: str, requests: int, prompts: int, outputs: int) -> None:
    """Rows as published, tokens as awk and Python's json add them up."""
    data = (shared / "data" / "traces" / name).read_bytes()
    trace = read_trace(io.BytesIO(data), name)
    assert (trace.format, len(trace), trace.skipped.count) == (form, requests, 0)
    assert (sum(trace.prompt_tokens), sum(trace.output_tokens)) == (prompts, outputs)


@given(
    st.sampled_from([AZURE, MOONCAKE, USAGE, GATEWAY, VLLM, OLD_VLLM, CSV]),
    st.sampled_from(["", *FORMATS]),
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 5), st.binary(max_size=4) | st.sampled_from([b"9" * 400, b"e99", b"-", b"null"]))
    ),
)
def test_damage_is_an_input_error_or_rows_that_are_left(text: str, form: str, damage: list[tuple[int, int, bytes]]) -> None:
    """Whatever was cut out or put in, in whatever format it is said to be; what is read has a profile and a page."""
    data = text.encode()
    for at, cut, put in damage:
        data = data[:at] + put + data[at + cut :]
    try:
        trace = read_trace(io.BytesIO(data), "log", form=form)
    except InputError:
        return
    found = profile(trace, cache_tokens=(0, 1_000))
    assert len(trace) == found.requests > 0 and min(trace.arrival_s) == 0
    assert profile_page(found, trace, "log", Speed()) and profile_text(found, "log", "", kept="", width=80, colour=False)
