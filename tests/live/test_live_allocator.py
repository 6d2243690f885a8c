"""Does the real engine cut its cache as we say? Blocks, tokens and concurrency of vLLM's CPU build, started for each case.

Expected are the figures on the engine's own metrics page and in its log; ours are computed beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.memory.allocator import Allocation, allocate
from tonnage.memory.defaults import Host, resolved
from tonnage.settings import EngineSettings

pytestmark = pytest.mark.live

RELEASE = (0, 32)
GIB = 2**30


class Case(NamedTuple):
    """A cache size: how the engine is told, what that is in our settings, and the pool: bytes, or blocks."""

    arguments: list[str]
    environment: dict[str, str]
    settings: dict[str, Any]
    pool_bytes: int = 0
    pool_blocks: int = 0


CASES = {
    "no-whole-number-of-blocks": Case(
        ["--kv-cache-memory-bytes", "300000001", "--max-model-len", "2048"], {}, {"max_model_len": 2048}, pool_bytes=300_000_001
    ),
    "one-gib-no-prefix-caching": Case(
        ["--no-enable-prefix-caching"], {"VLLM_CPU_KVCACHE_SPACE": "1"}, {"enable_prefix_caching": False}, pool_bytes=GIB
    ),
    "77-blocks-of-32": Case(
        ["--num-gpu-blocks-override", "77", "--block-size", "32", "--max-model-len", "1000"],
        {"VLLM_CPU_KVCACHE_SPACE": "1"},
        {"block_size": 32, "max_model_len": 1000},
        pool_blocks=77,
    ),
}  # fmt: skip


def ours(model: Path, case: Case) -> Allocation:
    """Return our allocation for the CPU build; states are kept in FP32, as the engine is told to."""
    shape, rules = find_model(str(model)).shape, rules_for("vllm", RELEASE)
    asked = EngineSettings(release=RELEASE, device="cpu", mamba_ssm_cache_dtype="float32", **case.settings)
    settings = resolved(asked, shape, Host(16 * GIB, None, "cpu"), rules)
    pool = case.pool_bytes or case.pool_blocks * allocate(shape, settings, rules, None, 0).bytes_per_block
    return allocate(shape, settings, rules, None, pool)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen3", "tiny-qwen3-next"])
def test_the_real_engine_has_as_many_blocks_tokens_and_requests(
    model: str, case: Case, tiny: Path, started: Callable[..., dict[str, str]]
) -> None:
    """Three models, three cache sizes: to the block, the token, and the last digit of the concurrency."""
    told = started(tiny / model, ["--mamba-ssm-cache-dtype", "float32", *case.arguments], case.environment)
    allocation = ours(tiny / model, case)
    longest = allocation.settings.max_model_len or 0
    seen = {
        "blocks": int(told["num_gpu_blocks"]), "block": int(told["block_size"]), "tokens": int(told["kv_cache_size_tokens"]),
        "concurrency": float(told["kv_cache_max_concurrency"]), "log": (int(told["log_tokens"]), told["log_concurrency"]),
    }  # fmt: skip
    assert seen == {
        "blocks": allocation.num_blocks, "block": allocation.block_size, "tokens": allocation.printed_tokens,
        "concurrency": allocation.concurrency(longest), "log": (allocation.printed_tokens, f"{allocation.concurrency(longest):.2f}"),
    }  # fmt: skip
