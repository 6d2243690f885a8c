"""Is what cannot be diagnosed refused with what to do, never answered as if it were fine?"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
PAGE = """\
process_start_time_seconds 1.79e+09
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:generation_tokens_total{engine="0"} %d
"""


def test_a_file_with_nothing_of_an_engine_is_no_clean_log(run: Run, tmp_path: Path) -> None:
    """A manifest, an empty file."""
    for text in ("apiVersion: v1\nkind: Pod\n", ""):
        (tmp_path / "x").write_text(text)
        code, out, err = run("diagnose", tmp_path / "x")
        assert (code, out) == (2, "") and "tonnage lint" in err


@pytest.mark.parametrize("command", ["diagnose", "adopt"])
@pytest.mark.parametrize("cut", [1, 5, 12, 40])
def test_a_cut_gzip_names_the_file(run: Run, tmp_path: Path, command: str, cut: int) -> None:
    """Wherever it was cut."""
    whole = gzip.compress(b"INFO 01-22 16:41:34 [gpu_worker.py:375] Available KV cache memory: 42.03 GiB\n" * 20)
    (tmp_path / "x.gz").write_bytes(whole[: max(len(whole) - cut, 3)])
    code, _, err = run(command, tmp_path / "x.gz", "--gpu", "h100", "--model", "qwen3-8b")
    assert code == 2 and "x.gz" in err and "gzip" in err


def test_pages_in_the_wrong_order_or_twice_are_refused(run: Run, tmp_path: Path) -> None:
    """Counters that fell without a later start are no restart."""
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text(PAGE % 100)
    two.write_text(PAGE % 900)
    code, _, err = run("diagnose", two, one, "--seconds-between", "30")
    assert code == 2 and "order" in err
    code, _, err = run("diagnose", one, one, "--seconds-between", "30")
    assert code == 2 and "same page" in err
    code, _, err = run("diagnose", one, "--seconds-between", "30")
    assert code == 2 and "later page" in err
    code, _, err = run("diagnose", "http://127.0.0.1:8000")
    assert code == 2 and "curl" in err


def test_no_engine_is_called_healthy_beside_one_in_trouble(run: Run, tmp_path: Path) -> None:
    """And a stuck queue is not healthy either; an engine that is gone is said."""
    base = 'vllm:num_requests_waiting{engine="%s"} 0\nvllm:kv_cache_usage_perc{engine="%s"} 0.2\n'
    rest = 'vllm:num_preemptions_total{engine="%s"} 0\nvllm:request_queue_time_seconds_sum{engine="%s"} 0\n'
    rest += 'vllm:request_inference_time_seconds_sum{engine="%s"} 9\n'
    engine = base + rest
    head = "process_start_time_seconds 1.79e+09\n"

    def page(tokens: tuple[int, int], both: bool = True) -> str:
        text = head
        for label, count in zip("01", tokens, strict=True):
            if label == "0" or both:
                text += f'vllm:num_requests_running{{engine="{label}"}} 3\nvllm:generation_tokens_total{{engine="{label}"}} {count}\n'
                text += engine.replace("%s", label)
        return text

    one, two, three = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    one.write_text(page((100, 100)))
    two.write_text(page((900, 100)))
    three.write_text(page((900, 0), both=False))
    code, out, _ = run("diagnose", one, two, "--seconds-between", "30")
    assert code == 1 and "HUNG" in out and "HEALTHY" not in out
    code, out, _ = run("diagnose", one, three, "--seconds-between", "30")
    assert code == 1 and "METRIC-MISSING" in out and "HEALTHY" not in out
