"""The ideal cache of 235 models against the reference table, which was computed apart from our code; exceptions by reason."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tonnage.facts.catalog import find_model
from tonnage.facts.shape import ModelShape
from tonnage.memory.kv import ContextCost, context_cost

# The table takes these for full attention; the published configs bound what their layers keep. (window, bytes a token within it)
WINDOWS = {
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (8192, 147_456, "attention_chunk_size 8192 on three layers of four"),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (8192, 147_456, "attention_chunk_size 8192 on three layers of four"),
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": (8192, 147_456, "attention_chunk_size 8192 on three layers of four"),
    "microsoft/Phi-3-medium-128k-instruct": (131_072, 204_800, "sliding_window 131072 on every layer"),
    "microsoft/Phi-3-mini-128k-instruct": (262_144, 393_216, "sliding_window 262144 on every layer"),
    "microsoft/Phi-3.5-mini-instruct": (262_144, 393_216, "sliding_window 262144 on every layer"),
    "microsoft/Phi-4-mini-instruct": (262_144, 131_072, "sliding_window 262144 on every layer: the engine's own rows have it"),
    "microsoft/Phi-3.5-MoE-instruct": (131_072, 131_072, "sliding_window 131072 on every layer"),
    "bigcode/starcoder2-15b": (4096, 81_920, "sliding_window 4096 on every layer"),
    "bigcode/starcoder2-7b": (4096, 65_536, "sliding_window 4096 on every layer"),
    "mistralai/Ministral-8B-Instruct-2410": (32_768, 147_456, "sliding_window 32768 on every layer"),
    "poolside/Laguna-XS.2": (512, 122_880, "sliding_window 512 on three layers of four"),
}

# The table takes every layer for latent attention; most are Kimi Delta Attention. (bytes a token, state without convolutions)
LINEAR = {
    "inclusionAI/Ling-3.0-flash": (7 * 1152, 35 * 32 * 128 * 128 * 4, "one latent layer in six gives the published parameter count"),
    "zai-org/GLM-5.3-Flash": (11 * (1024 + 132), 34 * 64 * 128 * 128 * 4, "its class has one latent layer in four"),
}

INDEX = {"MiniMaxAI/MiniMax-M3": (57 * 256, "a BF16 index key of 128 a token in its 57 sparse layers, which the table leaves out")}

SLIDES_ONE_MORE = {"CohereLabs/c4ai-command-a-03-2025", "CohereLabs/c4ai-command-r7b-12-2024"}
"""Cohere 2 keeps 4,096 tokens beside the current one, so that the engine's window is 4,097."""


@cache
def shape_of(name: str) -> ModelShape:
    """Return the catalogue's shape of a model."""
    return find_model(name).shape


def cost_of(name: str) -> ContextCost:
    """Return the BF16 cost of context with the state in FP32, as the table counts it for every model."""
    return context_cost(shape_of(name), state_dtype="float32")


@pytest.fixture(scope="module")
def table(shared: Path) -> dict[str, dict[str, Any]]:
    """The reference table: elements a token and bytes of state by model."""
    read: dict[str, dict[str, Any]] = json.loads((shared / "data/catalog/kv_table.json").read_bytes())
    return read


def test_every_model_of_the_table_equals_it_or_is_listed(table: dict[str, dict[str, Any]]) -> None:
    """Growth, window, recurrent state and convolution of 235 models, byte by byte.

    The table counts an index in elements: 128 FP8 ones have a scale of four bytes beside them.
    """
    differing = {}
    for name, row in table.items():
        if name in WINDOWS or name in LINEAR or name in INDEX:
            continue
        cost = cost_of(name)
        growth = 2 * row["kv_elems_full_per_token"] + row["index_elems"] // 128 * 132
        window = (row["window"] or 0) + (name in SLIDES_ONE_MORE)
        windows = ((window, 2 * row["kv_elems_sliding_per_token"]),) if row["sliding_layers"] else ()
        ours = (cost.per_token, cost.windows, cost.state_bytes - cost.conv_bytes, cost.conv_bytes)
        theirs = (growth, windows, row["state_bytes_fp32"], row["conv_state_bytes_bf16"])
        if ours != theirs:
            differing[name] = (ours, theirs)
    assert differing == {}
    assert len(table) == 235


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_the_table_leaves_out_keeps_the_sum(table: dict[str, dict[str, Any]], name: str) -> None:
    """Within the window growth equals the table's; beyond it only the full layers grow."""
    window, inside, _ = WINDOWS[name]
    cost = cost_of(name)
    assert cost.windows == ((window, inside),)
    assert cost.growth(window) == 2 * table[name]["kv_elems_full_per_token"]
    assert cost.growth(window + 1) == cost.per_token == 2 * table[name]["kv_elems_full_per_token"] - inside


@pytest.mark.parametrize("name", LINEAR)
def test_linear_layers_that_the_table_does_not_know(table: dict[str, dict[str, Any]], name: str) -> None:
    """Fewer layers grow than the table says, and the others hold a state."""
    per_token, state, _ = LINEAR[name]
    cost = cost_of(name)
    assert (cost.per_token, cost.state_bytes - cost.conv_bytes) == (per_token, state)
    assert per_token < 2 * table[name]["kv_elems_full_per_token"]


@pytest.mark.parametrize("name", INDEX)
def test_an_index_that_the_table_leaves_out(table: dict[str, dict[str, Any]], name: str) -> None:
    """The difference is the index alone."""
    assert cost_of(name).per_token - 2 * table[name]["kv_elems_full_per_token"] == INDEX[name][0]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", 2, id="qwen3-next"),
        pytest.param("ibm-granite/granite-4.0-h-small", 2, id="granite-4-h"),
        pytest.param("tiiuae/Falcon-H1-7B-Instruct", 2, id="falcon-h1"),
        pytest.param("Qwen/Qwen3.5-4B", 1, id="qwen3.5-declares-fp32"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 1, id="nemotron-3-declares-fp32"),
    ],
)
def test_the_state_is_kept_in_the_models_dtype_unless_its_config_says_fp32(name: str, share: int) -> None:
    """vllm-memory.md section 5: Qwen3-Next keeps its state in BF16, Qwen3.5 and Nemotron-3 in FP32; the table counts FP32 for all."""
    served, wide = context_cost(shape_of(name)), cost_of(name)
    assert (wide.state_bytes - wide.conv_bytes) == share * (served.state_bytes - served.conv_bytes)
    assert wide.conv_bytes == served.conv_bytes
