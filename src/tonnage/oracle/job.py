"""What is asked of the engine: a model folder, a card, bytes for the cache, and vLLM's own arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tonnage.errors import InputError

OPTIONS = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel", "kv_cache_dtype": "kv_cache_dtype", "block_size": "block_size", "max_model_len": "max_model_len",
    "max_num_batched_tokens": "max_num_batched_tokens", "max_num_seqs": "max_num_seqs",
}  # fmt: skip
"""Options of the command, and what vLLM calls them."""


class Card(msgspec.Struct, frozen=True):
    """The card that vLLM is made to see: compute capability, the name CUDA reports, its total memory."""

    capability: tuple[int, int] = (9, 0)
    name: str = "NVIDIA H100 80GB HBM3"
    bytes: int = 80 * 2**30


class Job(msgspec.Struct, frozen=True):
    """One question. `args` are vLLM's engine arguments under their own names; the profile run is not done, so the bytes
    that the cache may take are given."""

    model: Path
    card: Card
    available_kv_bytes: int
    args: dict[str, Any]

    def inputs(self, engine: str) -> dict[str, Any]:
        """Return the question as a row tells it; the model by its folder's name."""
        return {
            "model": self.model.resolve().name,
            "engine": engine,
            "capability": f"{self.card.capability[0]}.{self.card.capability[1]}",
            "gpu_name": self.card.name,
            "gpu_bytes": self.card.bytes,
            "available_kv_bytes": self.available_kv_bytes,
            "args": self.args,
        }


def row_id(inputs: dict[str, Any]) -> str:
    """Return a row's id: the same question has the same.

    >>> row_id({"model": "a"}) == row_id({"model": "a"}) != row_id({"model": "b"})
    True
    """
    return "O" + hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()[:12]


def parse_capability(text: str, *, where: str = "") -> tuple[int, int]:
    """Return a compute capability.

    >>> parse_capability("8.9")
    (8, 9)

    Raises InputError: not two numbers with a dot.
    """
    major, _, minor = text.strip().partition(".")
    if not (major.isdigit() and minor.isdigit() and len(major) < 3 and len(minor) == 1):
        raise InputError(f"{text!r} is no compute capability", where=where, hint="write it like 8.9 or 9.0")
    return int(major), int(minor)


def parse_engine_args(pairs: Iterable[str], *, where: str = "--engine-arg") -> dict[str, Any]:
    """Return vLLM arguments from KEY=VALUE; a value that is JSON is read as JSON, anything else is text.

    >>> parse_engine_args(["async-scheduling=false", "dtype=half", 'speculative_config={"method": "mtp"}'])
    {'async_scheduling': False, 'dtype': 'half', 'speculative_config': {'method': 'mtp'}}

    Raises InputError: no `=`, a key that is no name, or the same key twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().lstrip("-").replace("-", "_")
        if not equals or not name.isidentifier():
            raise InputError(f"{pair!r} is not KEY=VALUE", where=where, hint="write it like async_scheduling=false")
        if name in found:
            raise InputError(f"{name} is given twice", where=where)
        found[name] = _value(value)
    return found


def engine_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return vLLM's arguments for the options of the command; what was not asked for is left to vLLM.

    >>> engine_arguments({"tp": 2, "max_model_len": 16384, "engine_args": ["dtype=half"]})["tensor_parallel_size"]
    2

    Raises InputError: an engine argument that an option gives too.
    """
    base = {
        "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "kv_cache_dtype": "auto", "dtype": "auto",
        "decode_context_parallel_size": 1, "enable_expert_parallel": False,
    }  # fmt: skip
    asked = {name: given.get(option) for option, name in OPTIONS.items()}
    asked["enable_prefix_caching"] = False if given.get("no_prefix_caching") else None
    defaults = {**base, "data_parallel_size": 1}
    explicit = {name: value for name, value in asked.items() if value is not None and value != defaults.get(name)}
    other = parse_engine_args(given.get("engine_args", ()))
    if both := sorted(explicit.keys() & other.keys()):
        raise InputError(f"{both[0]} is given twice", where="--engine-arg", hint="it has an option of its own")
    return {**base, **explicit, **other}


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)
