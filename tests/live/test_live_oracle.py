"""Does `tonnage oracle` run where the real vLLM is, and do its rows equal what we compute?"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.memory.allocator import allocate
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.parallel import Parallelism
from tonnage.memory.weights import rank_weights
from tonnage.settings import EngineSettings

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
RELEASE = (0, 32)
CARD_BYTES = 80 * 2**30
CARD = "NVIDIA H100 80GB HBM3"
POOL_BYTES = 300_000_001


def oracle(python: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in the engine's environment, from this source tree."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [str(python), "-m", "tonnage", "oracle", *map(str, arguments)]
    return subprocess.run(command, env={**own, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(("model", "tp"), [("tiny-llama", 2), ("tiny-qwen3-next", 2)])
def test_a_row_equals_our_own_arithmetic(model: str, tp: int, tiny: Path, live_python: Path, tmp_path: Path) -> None:
    """Blocks, bytes of a block, tokens, concurrency and the weights of a rank, on a card that is not there."""
    file = tmp_path / "rows.jsonl"
    result = oracle(
        live_python, tiny / model, "--tp", str(tp), "--max-model-len", "2048", "--available-kv-bytes", str(POOL_BYTES), "--out", file
    )
    assert result.returncode == 0, result.stderr
    row: dict[str, Any] = json.loads(result.stdout)
    assert json.loads(file.read_text(encoding="utf-8")) == row
    answers = row["answers"]
    shape, rules = find_model(str(tiny / model)).shape, rules_for("vllm", RELEASE)
    asked = EngineSettings(release=RELEASE, parallel=Parallelism(tp=tp), max_model_len=2048)
    settings = resolved(asked, shape, Host(CARD_BYTES, (9, 0), CARD), rules)
    ours = allocate(shape, settings, rules, (9, 0), POOL_BYTES)
    assert (answers["resolved"]["max_num_seqs"], answers["resolved"]["max_num_batched_tokens"]) == (1024, 8192)
    assert (answers["bytes_per_block"], answers["num_gpu_blocks"]) == (ours.bytes_per_block, ours.num_blocks)
    assert (answers["kv_cache_size_tokens"], answers["max_concurrency"]) == (ours.printed_tokens, ours.concurrency(2048))
    weights = answers["weights_per_rank"]
    scales = weights["by_dtype"]["buffer:float32"][1]  # four a layer of attention, 16 bytes: left out of our arithmetic
    assert weights["param_and_buffer_bytes"] - scales == rank_weights(shape, settings.parallel).total


def test_a_refusal_is_a_row_too(tiny: Path, live_python: Path) -> None:
    """Heads that do not divide: the engine's own words, and exit code 1."""
    result = oracle(live_python, tiny / "tiny-llama", "--tp", "3")
    answers = json.loads(result.stdout)["answers"]
    assert (result.returncode, answers["refused"]) == (1, True)
    assert answers["reason"] == "Value error, Total number of attention heads (4) must be divisible by tensor parallel size (3)."
    assert answers["raised_in"].startswith("vllm/")


def test_a_pool_too_small_is_refused_with_what_was_decided_before(tiny: Path, live_python: Path) -> None:
    """The row tells the bytes of a block and of a request as well as the reason."""
    result = oracle(live_python, tiny / "tiny-llama", "--available-kv-bytes", "1 MiB", "--max-model-len", "4096")
    answers = json.loads(result.stdout)["answers"]
    assert (result.returncode, answers["refused"]) == (1, True)
    assert "larger than the available KV cache memory" in answers["reason"]
    assert (answers["bytes_per_block"], answers["max_len_request_bytes"]) == (16 * 1024, 4096 * 1024)
