"""Is what runs put together rightly from a log, a page and a command, and is what none of them says named?"""
# ruff: noqa: E501 - lines of logs are kept whole

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tonnage.errors import EndpointError, InputError
from tonnage.monitor.scrape import base_of, fetch

Run = Callable[..., tuple[int, str, str]]

LOG = """\
(APIServer pid=1) INFO 09-02 12:00:00 [api_utils.py:286] non-default args: {'model': '/models/qwen3-8b-fp8', 'max_model_len': 8192, 'max_num_seqs': 256}
(EngineCore pid=2) INFO 09-02 12:00:05 [core.py:1] Initializing a V1 LLM engine (v0.29.0) with config: model='/models/qwen3-8b-fp8', tensor_parallel_size=1,
(EngineCore pid=2) INFO 09-02 12:03:01 [gpu_model_runner.py:5477] Model loading took 8.85 GiB memory and 15.2 seconds
(EngineCore pid=2) INFO 09-02 12:04:24 [gpu_worker.py:612] Available KV cache memory: 28.00 GiB
(EngineCore pid=2) INFO 09-02 12:04:24 [kv_cache_utils.py:1] GPU KV cache size: 203,872 tokens, Maximum concurrency for 8,192 tokens per request: 24.89x
INFO:     Application startup complete.
"""
PAGE = """\
vllm:num_requests_running{engine="0",model_name="desk"} 0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.9",kv_cache_size_tokens="203872",num_gpu_blocks="12742"} 1.0
"""
COMMAND = "vllm serve /models/qwen3-8b-fp8 --max-model-len 8192 --max-num-seqs 256 --gpu-memory-utilization 0.9\n"


def plan(run: Run, *words: str | Path) -> dict[str, object]:
    """Return the adopted plan."""
    code, out, err = run("adopt", *words, "--json")
    assert code == 0, (out, err)
    value: dict[str, object] = json.loads(out)
    return value


@pytest.mark.parametrize("sources", [("log",), ("log", "page"), ("page", "command"), ("command", "page", "log")])
def test_the_pool_is_the_engine_s_own_whatever_tells_it(run: Run, tmp_path: Path, sources: tuple[str, ...]) -> None:
    """Blocks, tokens and lengths are those of the server; the ledger sums to the card."""
    texts = {"log": LOG, "page": PAGE, "command": COMMAND}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    made = plan(run, *[tmp_path / name for name in sources], "--gpu", "l40s", "--users", "20", "--context", "8k")
    pool, settings, ledger = made["pool"], made["settings"], made["ledger"]
    assert isinstance(pool, dict) and isinstance(settings, dict) and isinstance(ledger, list)
    assert (pool["tokens"], pool["blocks"]) == (203_872, 12_742)
    assert (settings["max_model_len"], settings["max_num_seqs"]) == (8192, 256)
    assert sum(line["bytes"] for line in ledger) == made["card_bytes"]
    assert pool["confidence"] == "read"


def test_what_nobody_says_is_named(run: Run, tmp_path: Path) -> None:
    """A command alone: no pool, no release, no users."""
    path = tmp_path / "run.sh"
    path.write_text(COMMAND)
    made = plan(run, path, "--gpu", "l40s")
    adopted = made["adopted"]
    assert isinstance(adopted, dict)
    said = " ".join(adopted["unknown"])
    assert "the pool" in said and "users and context" in said and "release" in said


def test_an_adopted_plan_is_rendered_and_linted(run: Run, tmp_path: Path) -> None:
    """It is a plan like any other; what tonnage would have chosen stands beside it."""
    (tmp_path / "log").write_text(LOG)
    out = tmp_path / "plan.json"
    code, text, _ = run("adopt", tmp_path / "log", "--gpu", "l40s", "--users", "20", "--context", "8k", "--out", out)
    assert code == 0 and "would have chosen otherwise" in text and "max-num-seqs" in text
    assert "--max-num-seqs" in run("render", out, "--to", "vllm")[1]
    assert run("lint", out)[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "words", "said"),
    [
        ("log", LOG, (), "names the card"),
        ("log", LOG.replace("qwen3-8b-fp8", "mine"), ("--gpu", "l4"), "a model that we know (/models/mine)"),
        ("notes", "hello\n", ("--gpu", "l4"), "is no log of an engine"),
    ],
)
def test_what_is_missing_is_one_error(run: Run, tmp_path: Path, name: str, text: str, words: tuple[str, ...], said: str) -> None:
    """With what to give."""
    (tmp_path / name).write_text(text)
    code, _, err = run("adopt", tmp_path / name, *words)
    assert code == 2 and said in err


class Pages(BaseHTTPRequestHandler):
    """A server that answers like an engine, wants a key for one page, and sends one elsewhere."""

    def do_GET(self) -> None:
        """Answer."""
        pages = {"/metrics": PAGE, "/v1/models": json.dumps({"data": [{"id": "desk", "root": "/models/qwen3-8b-fp8", "max_model_len": 8192}]}),
                 "/version": '{"version": "0.29.0"}'}  # fmt: skip
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/metrics")
            self.end_headers()
            return
        body = pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> object:
    """The address of such a server."""
    httpd = HTTPServer(("127.0.0.1", 0), Pages)
    thread = Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()


def test_a_server_s_own_pages_are_adopted(run: Run, server: str) -> None:
    """Release, model, length and pool from /version, /v1/models and /metrics; the command is named as unknown."""
    made = plan(run, f"{server}/v1", "--gpu", "l40s", "--users", "20", "--context", "8k")
    settings, adopted = made["settings"], made["adopted"]
    assert isinstance(settings, dict) and isinstance(adopted, dict)
    assert (settings["release"], settings["max_model_len"], settings["gpu_memory_utilization"]) == ("0.29", 8192, 0.9)
    assert any("the command" in text for text in adopted["unknown"])


def test_nobody_there_and_redirects_are_errors_of_the_endpoint(run: Run, server: str) -> None:
    """Exit 3, at once."""
    assert run("adopt", "http://127.0.0.1:9", "--gpu", "l4")[0] == 3
    with pytest.raises(EndpointError, match="answers 302"):
        fetch(f"{server}/elsewhere")
    with pytest.raises(InputError):
        base_of("ftp://x")


def test_sources_that_disagree_or_cannot_be_are_refused(run: Run, tmp_path: Path) -> None:
    """Two models, and more than the card holds: an error that says which, and no plan."""
    (tmp_path / "log").write_text(LOG)
    (tmp_path / "other.sh").write_text("vllm serve Qwen/Qwen3-0.6B\n")
    code, _, err = run("adopt", tmp_path / "log", tmp_path / "other.sh", "--gpu", "l40s")
    assert code == 2 and "Qwen3-8B-FP8" in err and "Qwen3-0.6B" in err
    code, _, err = run("adopt", tmp_path / "log", "--gpu", "l4")
    assert code == 2 and "more than the" in err and "L4" in err
    code, _, err = run("diagnose", tmp_path / "log", "--gpu", "l4", "--save-row", tmp_path / "rows.csv")
    assert code == 2 and "more than the" in err and not (tmp_path / "rows.csv").exists()


def test_a_plan_that_nobody_measured_is_the_planned_one(run: Run, tmp_path: Path) -> None:
    """And one that does not hold its users leaves with 1."""
    (tmp_path / "run.sh").write_text(COMMAND)
    made = plan(run, tmp_path / "run.sh", "--gpu", "l40s")
    assert isinstance(made["pool"], dict) and made["pool"]["confidence"] != "read"
    (tmp_path / "log").write_text(LOG)
    code, out, _ = run("adopt", tmp_path / "log", "--gpu", "l40s", "--users", "60", "--context", "8k")
    assert code == 1 and "fit" in out


def test_a_start_is_counted_once(run: Run, tmp_path: Path) -> None:
    """The same row twice is refused, and the file stays as it was."""
    (tmp_path / "log").write_text(LOG)
    words = ("diagnose", tmp_path / "log", "--gpu", "l40s", "--save-row", tmp_path / "rows.csv")
    assert run(*words)[0] == 0
    before = (tmp_path / "rows.csv").read_bytes()
    code, _, err = run(*words)
    assert code == 2 and "already" in err and (tmp_path / "rows.csv").read_bytes() == before
    code, _, err = run("diagnose", tmp_path / "log", "--gpu", "l40s", "--save-row", tmp_path)
    assert code == 2 and "Traceback" not in err
