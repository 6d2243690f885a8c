"""How long does a plan take, from the shell's point of view, and how large is a base install?

    .venv/bin/python bench/startup.py [--runs 15] [--json]     whole-process time, as a ratio to importing click and msgspec
    .venv/bin/python bench/startup.py --size [--json]          bytes of a base install beside Python

Machines are noisy, so only the ratio counts: both are run in turn, by the same interpreter, and medians are compared.
Exit code 1 above the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAN = ("plan", "qwen3.5-4b", "--gpu", "l4", "--users", "16", "--context", "24k")
RATIO_LIMIT = 2.0
SIZE_LIMIT_BYTES = 25_000_000
INSTALLER = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth", "pkg_resources", "wheel")


def main() -> int:
    """Measure what was asked for, print it, and return the exit code."""
    parser = argparse.ArgumentParser(description="time of a plan, or size of a base install")
    parser.add_argument("--runs", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("--size", action="store_true", help="build a base install and weigh it, instead of timing")
    parser.add_argument("--json", action="store_true", help="print the value")
    asked = parser.parse_args()
    value = install_size() if asked.size else startup(asked.runs)
    print(json.dumps(value) if asked.json else "\n".join(f"{name:16} {_text(each)}" for name, each in value.items()))
    return 0 if value["ok"] else 1


def startup(runs: int) -> dict[str, object]:
    """Return the medians in seconds of a plan and of the bare imports, run in turn, and their ratio."""
    plan = [sys.executable, str(Path(sys.executable).with_name("tonnage")), *PLAN]
    bare = [sys.executable, "-c", "import click, msgspec"]
    for command in (plan, bare):
        _seconds(command)
    pairs = [(_seconds(plan), _seconds(bare)) for _ in range(runs)]
    plan_s, bare_s = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = plan_s / bare_s
    return {
        "schema": "bench-startup/1",
        "plan_s": plan_s,
        "imports_s": bare_s,
        "ratio": ratio,
        "limit": RATIO_LIMIT,
        "runs": runs,
        "ok": ratio <= RATIO_LIMIT,
    }


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    elapsed = time.perf_counter() - start
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        sys.exit(f"{' '.join(command[1:])} failed ({done.returncode}):\n{done.stderr}")
    return elapsed


def install_size() -> dict[str, object]:
    """Return the bytes that `pip install .` adds to a new environment, compiled files included, by package."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT], check=True)
        (site,) = Path(folder, "lib").glob("python*/site-packages")
        kept = [each for each in site.iterdir() if each.name.split("-")[0] not in INSTALLER and each.name not in INSTALLER]
        parts = {each.name: sum(file.stat().st_size for file in (each, *each.rglob("*")) if file.is_file()) for each in kept}
    total = sum(parts.values())
    largest = dict(sorted(parts.items(), key=lambda part: -part[1])[:6])
    return {
        "schema": "bench-size/1",
        "bytes": total,
        "limit_bytes": SIZE_LIMIT_BYTES,
        "largest_bytes": largest,
        "ok": total <= SIZE_LIMIT_BYTES,
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each:,}" for name, each in value.items())
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    sys.exit(main())
