"""The real engine for the tests of tests/live: its Python, tiny models, and a server that starts, tells its blocks and ends.

`make live` installs it into .venv-live; without it these tests are skipped, saying so.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIVE = ROOT / ".venv-live"

READY_WITHIN_S = 180
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""With `--distributed-executor-backend uni` the worker lives in the engine's process: a third less to import."""

CAPACITY = re.compile(r"CPU KV cache size: ([\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")


@pytest.fixture(scope="session")
def live_python() -> Path:
    """The interpreter of the environment that has the real vLLM."""
    python = LIVE / "bin" / "python"
    if not (LIVE / ".installed").is_file() or not python.is_file():
        pytest.skip(f"needs the real engine, and there is none in {LIVE.name}; `make live` installs it")
    return python


@pytest.fixture(scope="session")
def tiny(live_python: Path) -> Path:
    """The folder of the tiny models that scripts/live made."""
    return LIVE / "models"


class StartedTooSlowly(Exception):
    """The server was not ready in time, and had not failed."""


@pytest.fixture
def started(live_python: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Start the engine on a tiny model, and return what its metrics page and its log say of the cache.

    `started(folder, ["--max-model-len", "2048"], {"VLLM_CPU_KVCACHE_SPACE": "1"})`; retried once if it is not ready in time.
    """

    def start(model: Path, arguments: Sequence[str], environment: dict[str, str]) -> dict[str, str]:
        try:
            return _started(live_python, model, arguments, environment, tmp_path / "first.log")
        except StartedTooSlowly:
            return _started(live_python, model, arguments, environment, tmp_path / "second.log")

    return start


@pytest.fixture
def running(live_python: Path, tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[tuple[str, Path]]]:
    """A server for the length of a `with`: its address, and its log, once it is ready."""

    @contextlib.contextmanager
    def run(model: Path, arguments: Sequence[str], environment: dict[str, str]) -> Iterator[tuple[str, Path]]:
        log = tmp_path / "server.log"
        with _server(live_python, model, arguments, environment, log):
            ports = re.findall(r"Starting vLLM server on (http://\S+)", log.read_text(encoding="utf-8", errors="replace"))
            yield ports[-1], log

    return run


def _started(python: Path, model: Path, arguments: Sequence[str], environment: dict[str, str], log: Path) -> dict[str, str]:
    with _server(python, model, arguments, environment, log) as page:
        labels = dict(
            re.findall(r'(\w+)="([^"]*)"', next(line for line in page.splitlines() if line.startswith("vllm:cache_config_info{")))
        )
    told = CAPACITY.search(log.read_text(encoding="utf-8", errors="replace"))
    assert told is not None, f"the log has no line of the cache's size:\n{_end(log)}"
    return {**labels, "log_tokens": told[1].replace(",", ""), "log_concurrency": told[2]}


@contextlib.contextmanager
def _server(python: Path, model: Path, arguments: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run a server, and give its metrics page once it is ready. It and its children are a session of their own, and end with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--enforce-eager", "--distributed-executor-backend", "uni", *arguments,
    ]  # fmt: skip
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, stdout=out, stderr=out, env={**own, **ENVIRONMENT, **ONE_PROCESS, **environment}, start_new_session=True
        )
        try:
            yield _page_when_ready(server, f"http://127.0.0.1:{port}", log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _page_when_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> str:
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        assert server.poll() is None, f"the engine ended before it was ready:\n{_end(log)}"
        try:
            _read(f"{url}/health")
            return _read(f"{url}/metrics")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise StartedTooSlowly(f"not ready within {READY_WITHIN_S} s:\n{_end(log)}")


def _read(url: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=10) as answer:
        return str(answer.read().decode("utf-8"))


def _end(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
