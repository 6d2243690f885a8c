"""Does `tonnage profile` read, print, write and draw, and refuse in a sentence?"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

Run = Callable[..., tuple[int, str, str]]
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = HEAD + "".join(f"2023-11-16 {17 + n // 60:02}:{n % 60:02}:03.5,{100 + n},{n % 7}\n" for n in range(150))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 150 requests, one a minute."""
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    return path


def test_the_text_answers_first_and_fits_the_screen(run: Run, log: Path) -> None:
    """At 80 columns, with the next step last."""
    code, out, err = run("profile", log)
    assert (code, err) == (0, "")
    assert out.startswith("1 request at once at the peak (assumed speed), 245 tokens at the p95.\n")
    assert max(map(len, out.splitlines())) <= 80
    assert "too short for a p99" in out and "17:00" in out and out.splitlines()[-1].startswith("next: tonnage plan")


def test_the_workload_is_one_that_a_plan_takes(run: Run, log: Path, tmp_path: Path) -> None:
    """Written by --out, read by --workload."""
    path = tmp_path / "workload.toml"
    code, out, err = run("profile", log, "--out", path)
    assert code == 0 and f"--workload {path}" in re.sub(r"\s+", " ", out) and f"wrote {path}" in err
    code, out, _ = run("plan", "qwen3-8b", "--gpu", "h100", "--workload", path, "--json")
    assert code == 0 and json.loads(out)["workload"]["context_tokens"] == 245


def test_json_has_the_words_of_the_contract(run: Run, log: Path) -> None:
    """Tokens whole, seconds and shares floats."""
    value = json.loads(run("profile", log, "--json")[1])
    assert value["schema"] == "tonnage.profile/1" and value["requests"] == 150
    assert {"users", "context_tokens", "p99_tokens", "output_tokens"} == set(value["workload"])
    assert value["concurrency"]["confidence"] == "assumed" and value["started"] == "2023-11-16T17:00:03Z"
    assert sum(value["by_hour"]) == 150 and value["by_hour"][17:19] == [60, 60]


def test_a_slower_answer_means_more_at_once(run: Run, log: Path) -> None:
    """`--ttft` and `--tpot`, in s or ms."""
    peaks = [json.loads(run("profile", log, "--json", "--ttft", ttft)[1])["workload"]["users"] for ttft in ("500ms", "90", "200s")]
    assert peaks == sorted(peaks) and peaks[0] == 1 and peaks[-1] == 4


def test_the_page_needs_nothing_else(run: Run, shared: Path, tmp_path: Path) -> None:
    """Five charts, well formed, no address in it."""
    path = tmp_path / "page.html"
    assert run("profile", shared / "data" / "traces" / "mooncake-synthetic.jsonl", "--html", path)[0] == 0
    text = path.read_text()
    assert not re.search(r"https?:|src=|href=|@import|url\(|<script", text)
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(charts) == 4 and all(ElementTree.fromstring(chart).tag == "svg" for chart in charts)
    assert "Found again" in text and "nan" not in text.lower()


def test_gzip_is_read_and_a_cut_one_refused(run: Run, log: Path, tmp_path: Path) -> None:
    """Wherever it was cut."""
    packed = gzip.compress(ROWS.encode())
    path = tmp_path / "log.csv.gz"
    path.write_bytes(packed)
    assert json.loads(run("profile", path, "--json")[1])["requests"] == 150
    for cut in (1, 9, 100):
        path.write_bytes(packed[:-cut])
        code, out, err = run("profile", path)
        assert (code, out) == (2, "") and "gzip" in err and "hint" in err


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"", (), "is empty"),
        (b"\x00\xff\x80" * 999, (), "binary"),
        (b"\xff\xfe" + ROWS.encode("utf-16-le"), (), "binary"),
        (b"one line", (), "no log of requests"),
        (HEAD.encode() + b"2023-11-16 18:17:03,-4,5\nnan,4,5\n", (), "no request that can be read"),
        (ROWS.encode(), ("--format", "mooncake"), "no JSON object"),
        (ROWS.encode(), ("--format", "vllm-log"), "Received request"),
        (ROWS.encode(), ("--map", "arrival=when"), "no column when"),
        (ROWS.encode(), ("--tpot", "nan"), "no time"),
        (ROWS.encode(), ("--cache-tokens", "much"), "much"),
        (ROWS.encode(), ("--block-tokens", "0"), "between"),
        (ROWS.encode(), ("--out", "/nowhere/x.toml"), "cannot be written"),
    ],
)
def test_what_cannot_be_is_exit_2_and_a_sentence(run: Run, tmp_path: Path, content: bytes, options: tuple[str, ...], words: str) -> None:
    """On stderr, and as a value with --json."""
    path = tmp_path / "log"
    path.write_bytes(content)
    code, out, err = run("profile", path, *options)
    assert code == 2 and out == "" and err.startswith("error: ") and words in err
    code, out, _ = run("profile", path, *options, "--json")
    assert code == 2 and words in json.loads(out)["error"]["message"]


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """Or is a folder."""
    assert run("profile", tmp_path / "x")[0] == run("profile", tmp_path)[0] == 2


def test_no_text_of_a_prompt_is_printed_or_kept(run: Run, tmp_path: Path) -> None:
    """Not in the text, the JSON, the page or the workload; nor in what is said of rows that cannot be read."""
    row = {"created": 1_700_000_000, "prompt": "SECRET", "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    bad = {**row, "usage": {"prompt_tokens": "SECRET"}}
    path, page, toml = tmp_path / "usage.jsonl", tmp_path / "page.html", tmp_path / "w.toml"
    path.write_text("\n".join(json.dumps(each) for each in (row, bad, row)) + '\n{"SECRET\n')
    said = [*run("profile", path, "--html", page, "--out", toml), *run("profile", path, "--json"), page.read_text(), toml.read_text()]
    said += run("profile", path, "--map", "prompt=prompt")
    assert "SECRET" not in "".join(map(str, said)) and said[0] == 0
