"""What an engine release does with memory: one `EngineRules` value, read from data/engines.

Releases between the oldest and newest known are exact; older ones take the nearest law, marked assumed; newer ones the
newest, marked extrapolated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tonnage.errors import InputError, UnknownError, closest_hint
from tonnage.facts.provenance import Confidence
from tonnage.facts.tables import table

Release = tuple[int, int]
OLDEST: Release = (0, 6)
NAMES = ("vllm", "sglang", "trtllm", "llama.cpp", "ollama")
ALIASES = {"tensorrt-llm": "trtllm", "trt-llm": "trtllm", "llamacpp": "llama.cpp", "llama-server": "llama.cpp", "sgl": "sglang"}


class EngineRules(msgspec.Struct, frozen=True):
    """The memory rules of one release; each field is explained in the data file of the engine."""

    release: Release
    confidence: Confidence
    default_utilization: float
    graphs_charged: bool
    printed_tokens: str
    batches_in_flight: str
    hybrid_prefix_caching: bool
    mamba2_prefix_mode: str
    null_block_reserved: bool
    large_card_tier: bool
    compressed_block: str
    printed_concurrency: str
    unlike_heads: str
    multimodal_batch_floor: dict[str, int]
    fourfold_rope: str
    state_checkpoints: dict[str, list[str]]
    state_alignment: dict[str, dict[str, int]]
    wide_head_block: dict[str, int]
    latent_fp8_block: dict[str, int]
    mxfp4_expert_padding: dict[str, list[int]]
    fp8_expert_unit: int
    dropped_architectures: dict[str, str]
    kv_cache_dtypes: list[str]


def parse_engine(text: str) -> tuple[str, Release]:
    """Return engine and release from `vllm`, `vllm:0.33` or `vllm:0.33.0`; without a release the newest known.

    >>> parse_engine("vllm:0.28.1"), parse_engine("vllm")
    (('vllm', (0, 28)), ('vllm', (0, 33)))

    Raises UnknownError: an engine we do not know. InputError: a release that is none.
    """
    word, _, release = text.strip().lower().partition(":")
    name = ALIASES.get(word, word)
    if name not in NAMES:
        raise UnknownError(f"engine {word!r} is not known", hint=closest_hint(word, NAMES, f"known are {', '.join(NAMES)}"))
    if name != "vllm":
        return name, _release(_table(name)["release"])
    if not release:
        return name, newest(name)
    parts = release.removeprefix("v").split(".")
    if len(parts) < 2 or not all(re.fullmatch("[0-9]{1,4}", part) for part in parts[:2]):
        raise InputError(f"release {release!r} is none", hint="write it like vllm:0.33")
    found = (int(parts[0]), int(parts[1]))
    if found < OLDEST:
        raise InputError(f"release {release} is older than any law we know", hint=f"from {OLDEST[0]}.{OLDEST[1]} on")
    return name, found


@lru_cache(maxsize=8)
def _table(engine: str) -> dict[str, Any]:
    return table(f"engines/{engine}")


def _release(text: str) -> Release:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def newest(engine: str) -> Release:
    """Return the newest release whose rules are known."""
    known = _table(engine)
    return _release(known.get("newest_known") or known["release"])


def rules_for(engine: str, release: Release) -> EngineRules:
    """Return the rules of a release.

    Engines other than vLLM borrow what is true of models and cards; their own rules are `memory/others.py`'s.

    >>> rules_for("vllm", (0, 19)).default_utilization, rules_for("vllm", (0, 33)).default_utilization
    (0.9, 0.92)
    """
    if engine != "vllm":
        base, dtypes = rules_for("vllm", newest("vllm")), list(_table(engine)["kv_cache_dtypes"])
        return msgspec.structs.replace(base, release=release, confidence="assumed", dropped_architectures={}, kv_cache_dtypes=dtypes)
    known = _table(engine)
    oldest, latest = _release(known["oldest_known"]), _release(known["newest_known"])
    confidence: Confidence = "assumed" if release < oldest else ("extrapolated" if release > latest else "exact")
    fields = [field for field in EngineRules.__struct_fields__ if field not in ("release", "confidence")]
    values = {field: _value(known[field], release) for field in fields}
    return msgspec.convert({"release": release, "confidence": confidence, **values}, EngineRules)


def _value(history: Mapping[str, Any], release: Release) -> Any:
    past = [(_release(since), value) for since, value in history.items()]
    held = [value for since, value in sorted(past, key=lambda entry: entry[0]) if since <= release]
    return held[-1] if held else min(past, key=lambda entry: entry[0])[1]


def by_capability(rule: Mapping[str, Any], capability: tuple[int, int] | None) -> Any:
    """Return a rule's value for a compute capability: its own entry, or "other", or None."""
    key = "" if capability is None else f"{capability[0]}.{capability[1]}"
    return rule.get(key, rule.get("other"))
