"""Is a line read whatever stands around it, and is a log of any length, with any bytes, read to its end?"""
# ruff: noqa: E501 - messages and lines are quoted as they are written

from __future__ import annotations

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.diagnose.diagnosis import diagnose
from tonnage.diagnose.lines import LONGEST, opened, parsed, read_lines
from tonnage.diagnose.reader import MOST_STARTS, read_starts
from tonnage.errors import InputError
from tonnage.lint.context import Context
from tonnage.monitor.page import is_page, read_page
from tonnage.monitor.verdicts import verdicts
from tonnage.monitor.window import windows

SAID = "Available KV cache memory: 42.03 GiB"
V1 = f"(EngineCore_DP0 pid=88) INFO 01-22 16:41:34 [gpu_worker.py:375] {SAID}"


def texts(data: bytes) -> list[str]:
    """Return the messages of a log."""
    return [parsed(number, text).text for number, text in read_lines(opened(io.BufferedReader(io.BytesIO(data))))]


@pytest.mark.parametrize(
    "line",
    [
        V1,
        f"\x1b[0;36m(EngineCore pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m01-22 16:41:34\x1b[0m \x1b[90m[gpu_worker.py:375]\x1b[0m {SAID}",
        f"vllm-1  | {V1}",
        f"2026-11-29T10:00:00.123456789Z {V1}",
        f"2026-11-29T10:00:00.123456789Z stdout F {V1}",
        f"[pod/llm-0/vllm] {V1}",
        f"Nov 29 10:00:00 host vllm[123]: {V1}",
        json.dumps({"log": V1 + "\n", "stream": "stderr", "time": "2026-11-29T10:00:00Z"}),
        f"INFO 01-22 16:41:34 gpu_worker.py:375] {SAID}",
        f"(VllmWorkerProcess pid=9) INFO 01-22 16:41:34 [gpu_worker.py:375] {SAID}",
        f"progress 10%\rprogress 20%\r{V1}",
        SAID,
    ],
)
def test_what_stands_around_a_message_is_taken_off(line: str) -> None:
    """Colours, containers, clocks, processes, Docker's JSON, progress bars."""
    assert texts(line.encode() + b"\n") == [SAID]


def test_gzip_is_unpacked() -> None:
    """By its first bytes, whatever the name."""
    assert texts(gzip.compress(V1.encode())) == [SAID]


def test_a_line_of_any_length_costs_no_more_than_the_longest() -> None:
    """And the next one is read."""
    assert [len(text) for text in texts(b"x" * (5 * LONGEST) + b"\n" + V1.encode())] == [LONGEST, len(SAID)]


def test_seconds_run_over_a_turn_of_the_year() -> None:
    """A start on New Year's Eve."""
    lines = ["INFO 12-31 23:59:50 [a.py:1] Starting to load model /m...", "INFO 01-01 00:00:10 [a.py:1] Available KV cache memory: 1.0 GiB"]
    (start,) = read_starts(enumerate(lines, 1))
    assert start.seconds() in (20, 20 + 86_400)


def test_a_log_of_many_starts_keeps_the_first_and_the_last() -> None:
    """Bounded, however often a pod was restarted."""
    lines = (f"INFO 01-22 16:41:34 [a.py:1] non-default args: {{'model': '/m', 'port': {number}}}" for number in range(3 * MOST_STARTS))
    starts = read_starts(enumerate(lines, 1))
    assert len(starts) <= MOST_STARTS + 1
    assert [starts[0].arguments["port"], starts[-1].arguments["port"]] == [0, 3 * MOST_STARTS - 1]


pieces = st.sampled_from(
    [
        V1, SAID, "Traceback (most recent call last):", '  File "/x.py", line 3, in load_model', "torch.OutOfMemoryError: CUDA out of memory.",
        "non-default args: {'model': '/m', 'x': [1, {}", "exited with code 1", "KeyboardInterrupt: terminated", "args: Namespace(model='/m', a=",
        "Initializing a V1 LLM engine (v0.11.2) with config: model='/m', tensor_parallel_size=2,", "version 0.24.0", "{\"log\": \"x", "\x1b[31",
        "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, Preemptions: 5, "
        "GPU KV cache usage: 99.1%, Prefix cache hit rate: 0.3%", "Loading safetensors checkpoint shards:  40% Completed | 12/30 [04:14<06:23, 21.31s/it]",
        "error: unrecognized arguments: --a 1", "GPU KV cache size: 1,2,3 tokens, Maximum concurrency for 1 tokens per request: 2.0x",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(pieces, st.text(max_size=60)), max_size=30), st.binary(max_size=60))
def test_any_log_is_told_of(lines: list[str], tail: bytes) -> None:
    """Whatever the order of lines, cut or doubled, there is a diagnosis and no crash."""
    data = "\n".join(lines).encode("utf-8", "replace") + tail
    starts = read_starts(read_lines(io.BytesIO(data)))
    for said in diagnose(starts, Context("vllm", (0, 24), "Qwen/Qwen3-8B", "l4", 1, 1, 8, 4000, 0, 0, 900)):
        assert all(cause.why and cause.fix for cause in said.causes)


series = st.sampled_from(
    ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:num_preemptions_total",
     "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count", "vllm:request_queue_time_seconds_sum", "sglang:token_usage", "x"]
)  # fmt: skip
samples = st.tuples(
    series,
    st.sampled_from(['{engine="0"}', '{engine="1"}', "", '{model_name="m"}', "{"]),
    st.sampled_from(["0", "1.5", "NaN", "+Inf", "-3", "x"]),
)


@given(st.lists(samples, max_size=20), st.lists(samples, max_size=20))
def test_any_two_pages_are_judged_or_refused(one: list[tuple[str, str, str]], two: list[tuple[str, str, str]]) -> None:
    """Missing, doubled, NaN, fallen counters, engines that come and go."""
    texts = ["".join(f"{name}{labels} {value}\n" for name, labels, value in part) for part in (one, two)]
    try:
        pages = [read_page(text, "page") for text in texts]
    except InputError:
        return
    for verdict in verdicts(windows(pages[1], pages[0], 30), Context(tpot_s=0.05, users=4, context_tokens=1000)):
        assert verdict.why and verdict.fix


@pytest.mark.parametrize(
    ("first", "page"), [(["# HELP a b"], True), (['vllm:x{a="b"} 1.0'], True), ([V1], False), (["", "INFO: x"], False)]
)
def test_a_page_is_told_from_a_log(first: list[str], page: bool) -> None:
    """By its first lines."""
    assert is_page(first) == page
