"""Is a running vLLM adopted as it is? Blocks, tokens and settings of the plan are the server's, from its pages and from its log."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tonnage.cli import main

pytestmark = pytest.mark.live

Running = Callable[..., contextlib.AbstractContextManager[tuple[str, Path]]]


def said(*words: str) -> dict[str, Any]:
    """Return what a command prints as JSON."""
    result = CliRunner().invoke(main, [*words, "--json"], prog_name="tonnage", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_a_running_server_is_adopted_as_it_is(tiny: Path, running: Running) -> None:
    """From its pages alone, from its log alone, and from both: blocks, tokens, lengths, release, block size."""
    model = tiny / "tiny-llama"
    arguments = ["--max-model-len", "1024", "--max-num-seqs", "8", "--block-size", "32", "--num-gpu-blocks-override", "120"]
    with running(model, arguments, {"VLLM_CPU_KVCACHE_SPACE": "1"}) as (url, log):
        both = said("adopt", str(log), url, "--model", str(model))
        alone = said("adopt", str(log), "--model", str(model))
        page = said("diagnose", str(log))
    for plan in (both, alone):
        assert (plan["pool"]["blocks"], plan["pool"]["tokens"]) == (120, 3840)
        settings = plan["settings"]
        assert (settings["max_model_len"], settings["max_num_seqs"], settings["block_size"]) == (1024, 8, 32)
        assert (settings["engine"], settings["release"], settings["device"]) == ("vllm", "0.32", "cpu")
        assert sum(line["bytes"] for line in plan["ledger"]) == plan["card_bytes"]
        assert plan["users"]["admitted"] == 120 // 32
    assert page["measured"]["pool_tokens"] == 3840 and not page["causes"]
    assert not [text for text in both["adopted"]["unknown"] if text.startswith(("the pool", "the engine"))]


def test_the_hybrid_s_states_are_adopted_too(tiny: Path, running: Running) -> None:
    """A model with recurrent layers: the server's own blocks and tokens."""
    model = tiny / "tiny-qwen3-next"
    with running(model, ["--max-model-len", "2048", "--max-num-seqs", "8"], {"VLLM_CPU_KVCACHE_SPACE": "1"}) as (url, log):
        plan = said("adopt", url, str(log), "--model", str(model))
        told = said("diagnose", str(log))["measured"]
    assert plan["pool"]["tokens"] == told["pool_tokens"]
    assert plan["pool"]["block_bytes"] * plan["pool"]["blocks"] <= 2**30
    assert plan["pool"]["blocks"] == 2**30 // plan["pool"]["block_bytes"]
