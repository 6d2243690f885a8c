"""How fast is the simulator beside a public one?

    .venv/bin/python bench/sim_peers.py [--json] [--venv DIR] [--seconds 30] [--runs 3]

W1 of sim.py: Poisson at 8/s, prompts of 512, answers of 256; Llama-3.1-8B in BF16 on one H100 here, Llama 3 8B on one H100 there, of the
same size in every layer. Both get the same arrivals, as many as the peer serves in about so many seconds, and each side's time is that of
constructing and running a simulation: imports, and the training of the peer's predictor, are outside. The best of the runs counts, and
both run in turn, for a machine is at times slower than it is.

Vidur 0.0.26 is installed into an environment of its own, in a temporary folder or in DIR, to be used again. Its wheel holds no profiles,
so synthetic ones are written: made-up times of the right order, such that a step takes about as long as here and both do as many
steps a request. Only the speed of simulating is compared; nothing that Vidur would predict from these profiles means anything.
How it is set up, and the one method its wheel lacks: peer_vidur.py.

AISimulate is not timed. What the Python package index has of it is a stub, which fetches the wheel from its maker's own index and
fails to install where that cannot be reached; the other way is a build from source, with a Rust toolchain.

Exit code 1 when Vidur could not be run; the reason is printed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

from sim import llama, w1
from tonnage.sim.cluster import run
from tonnage.workload.requests import Requests

PEER = "vidur==0.0.26"
FIRST = 500
"""Requests of the peer's first run, which trains its predictor and tells how many it serves in a second."""

HEADS = {"n_kv_head": 8, "n_embd": 4096, "num_tensor_parallel_workers": 1}
MLP = {**HEADS, "n_head": 32, "n_expanded_embd": 14336, "use_gated_mlp": True, "vocab_size": 128256}
ATTENTION = {**HEADS, "n_q_head": 32, "block_size": 16}
OPERATIONS_MS = {
    "attn_pre_proj": (0.0205, 7e-5),
    "attn_post_proj": (0.0135, 4e-5),
    "mlp_up_proj": (0.081, 1.6e-4),
    "mlp_down_proj": (0.0405, 8e-5),
    "mlp_act": (0.002, 1e-5),
    "input_layernorm": (0.002, 2e-6),
    "post_attention_layernorm": (0.002, 2e-6),
    "attn_rope": (0.002, 2e-6),
    "add": (0.001, 1e-6),
}
"""Made up: milliseconds of an operation in one layer, and more for each token of the step."""


class Failed(Exception):
    """The peer could not be installed or run."""


def environment(folder: Path) -> Path:
    """Return a Python with the peer, installed into the folder unless it is there."""
    python = folder / "bin" / "python"
    wanted = ["-c", f"import sys; from importlib.metadata import version; sys.exit(version('vidur') != {PEER.split('==')[1]!r})"]
    if python.exists() and subprocess.run([python, *wanted], capture_output=True, check=False).returncode == 0:
        return python
    venv.create(folder, with_pip=True)
    _output([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", "vidur", PEER])
    return python


def write_profiles(folder: Path) -> None:
    """Write the two profiles that one GPU needs: of what depends on a step's tokens, and of attention."""
    tokens = range(8, 8193, 64)
    times = [{f"time_stats.{name}.median": least + each * count for name, (least, each) in OPERATIONS_MS.items()} for count in tokens]
    _write(folder / "mlp.csv", [{**MLP, "num_tokens": count, **row} for count, row in zip(tokens, times, strict=True)])
    cached = range(0, 8193, 512)
    decode = [_attention(batch, held, 0, decode=0.004 + 1.4e-6 * batch * held) for batch in (1, 4, 16, 64, 256) for held in cached]
    prefill = [_attention(1, held, chunk, prefill=0.01 + 1e-8 * chunk * held) for chunk in (32, 128, 512, 2048, 4096) for held in cached]
    _write(folder / "attention.csv", decode + prefill)


def _attention(batch: int, held: int, chunk: int, *, prefill: float = 0.0, decode: float = 0.0) -> dict[str, object]:
    sizes = {"batch_size": batch, "kv_cache_size": held, "prefill_chunk_size": chunk}
    times = {"attn_kv_cache_save": 0.002, "attn_prefill": prefill, "attn_decode": decode}
    return {**ATTENTION, **sizes, **{f"time_stats.{name}.median": each for name, each in times.items()}}


def _write(file: Path, rows: Sequence[dict[str, object]]) -> None:
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def theirs(python: Path, folder: Path, requests: Requests) -> tuple[float, int]:
    """Return the peer's seconds and steps."""
    columns = zip(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, strict=True)
    names = ("Time", "PromptTokenCount", "CompletionTokenCount")
    _write(folder / "trace.csv", [{"Date": "1970-01-01", **dict(zip(names, row, strict=True))} for row in columns])
    printed = _output([python, Path(__file__).resolve().with_name("peer_vidur.py"), folder], folder)
    found = json.loads(printed.splitlines()[-1])
    return found["seconds"], found["steps"]


def ours(requests: Requests) -> tuple[float, int]:
    """Return our seconds and steps, the plan that the replica comes from included."""
    started = time.perf_counter()
    served = run(llama(prefix_caching=False), requests)
    return time.perf_counter() - started, sum(engine.steps for engine in served.engines)


def compared(python: Path, folder: Path, seconds: float, runs: int) -> dict[str, float]:
    """Return requests a second of both, and what they were measured on."""
    write_profiles(folder)
    first = w1(FIRST, 1)
    ours(first)
    requests = w1(max(FIRST, round(seconds * FIRST / theirs(python, folder, first)[0])), 1)
    pairs = [(theirs(python, folder, requests), ours(requests)) for _ in range(runs)]
    peer, own = (min(each) for each in zip(*pairs, strict=True))
    count = len(requests)
    return {
        "tonnage": count / own[0],
        "vidur": count / peer[0],
        "ratio": peer[0] / own[0],
        "requests": count,
        "tonnage_steps": own[1],
        "vidur_steps": peer[1],
    }


def _output(command: Sequence[str | Path], folder: Path | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=kept | quiet)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise Failed(next((line for line in said if line.startswith("ERROR")), said[-1]).strip())
    return done.stdout


def main() -> int:
    """Measure both, print them, and return 0, or 1 when the peer could not be run."""
    parser = argparse.ArgumentParser(description="requests a second of the simulator and of a public one")
    parser.add_argument("--json", action="store_true", help="print the numbers alone")
    parser.add_argument("--venv", type=Path, help="the environment with Vidur, made if absent (default: a temporary one)")
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long a run of Vidur takes (default 30)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            python = environment((asked.venv or folder / "venv").absolute())
            found = compared(python, folder, asked.seconds, asked.runs)
        except Failed as failed:
            print(json.dumps({"vidur": None, "reason": str(failed)}) if asked.json else f"vidur was not run: {failed}")
            return 1
    if asked.json:
        print(json.dumps({each: found[each] for each in ("tonnage", "vidur", "ratio")}))
        return 0
    print(f"{found['requests']:,.0f} requests of W1; Vidur on made-up profiles, so that only its speed counts")
    for each in ("tonnage", "vidur"):
        print(f"{each:10} {found[each]:12,.0f} requests/s {found[f'{each}_steps']:12,.0f} steps")
    print(f"{'ratio':10} {found['ratio']:12,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
