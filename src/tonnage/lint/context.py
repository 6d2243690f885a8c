"""What is known around a command or a log: engine, model, card, users. All of it may be missing.

The file form is that of docs and checks: `{engine, model, gpu, gpu_count, node_gpus, workload {...}, storage {...}, gateway
{...}, slo {...}}`, every key optional.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.errors import InputError, TonnageError, closest_hint
from tonnage.facts.engine import parse_engine
from tonnage.workload.spec import Workload

KEYS = ("engine", "model", "gpu", "gpu_count", "node_gpus", "workload", "storage", "gateway", "slo")
WORKLOAD = (
    "users", "context_tokens", "p99_tokens", "shared_prefix_tokens", "output_tokens", "users_average", "context_tokens_average",
    "max_num_seqs",
)  # fmt: skip


class Context(msgspec.Struct, frozen=True):
    """What was said beside the input; empty, 0 or None where nothing was. Times in seconds, rates in bytes a second.

    `shared_prefix_tokens` of 0 says that nothing repeats; None that nobody knows.
    """

    engine: str = ""
    release: tuple[int, int] | None = None
    model: str = ""
    gpu: str = ""
    gpu_count: int = 0
    node_gpus: int = 0
    users: int = 0
    context_tokens: int = 0
    p99_tokens: int = 0
    output_tokens: int = 0
    shared_prefix_tokens: int | None = None
    max_num_seqs: int = 0
    read_bytes_per_s: float = 0.0
    token_accounting: bool | None = None
    ttft_s: float = 0.0
    tpot_s: float = 0.0

    @property
    def load(self) -> Workload | None:
        """The workload, where users and context are both known."""
        if not self.users or not self.context_tokens:
            return None
        shared = min(self.shared_prefix_tokens or 0, self.context_tokens - 1)
        return Workload(self.users, self.context_tokens, 0, max(self.p99_tokens, 0), shared)


def beside(given: Context, known: Context) -> Context:
    """Return a context with what another knows where it says nothing."""
    fields = {name: getattr(known, name) for name in Context.__struct_fields__ if getattr(given, name) in ("", 0, 0.0, None)}
    return msgspec.structs.replace(given, **fields)


def engine_word(text: str) -> tuple[str, tuple[int, int] | None]:
    """Return engine and release from `vllm 0.24`, `vllm:0.24` or `ollama`; None where no release is said.

    >>> engine_word("vllm 0.24"), engine_word("ollama"), engine_word("vllm")
    (('vllm', (0, 24)), ('ollama', None), ('vllm', None))
    """
    plain = text.strip().replace(" ", ":", 1)
    name, release = parse_engine(plain)
    return name, release if ":" in plain and name == "vllm" else None


def read_context(data: bytes, where: str, *, lenient: bool = False) -> Context:
    """Return the context in a JSON file; `lenient` takes a release without a law for one that nobody named.

    Raises InputError: no JSON, a key nobody knows, or a value that is none.
    """
    try:
        value: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"is no JSON ({error})", where=where) from None
    if not isinstance(value, dict):
        raise InputError("is no JSON object", where=where, hint='write {"engine": "vllm 0.33", "gpu": "L4", "workload": {"users": 16}}')
    for key in value:
        if key not in KEYS:
            raise InputError(
                f"{key} is nothing we know of a context", where=where, hint=closest_hint(key, KEYS, f"known are {', '.join(KEYS)}")
            )
    try:
        engine, release = engine_word(_text(value, "engine", where)) if value.get("engine") else ("", None)
    except TonnageError:
        if not lenient:
            raise
        engine, release = "", None
    load, storage, gateway, slo = (_table(value, key, where) for key in ("workload", "storage", "gateway", "slo"))
    for key in load:
        if key not in WORKLOAD:
            raise InputError(
                f"{key} is nothing we know of a workload", where=where, hint=closest_hint(key, WORKLOAD, f"known are {', '.join(WORKLOAD)}")
            )
    return Context(
        engine,
        release,
        _text(value, "model", where),
        _text(value, "gpu", where),
        _count(value, "gpu_count", where),
        _count(value, "node_gpus", where),
        _count(load, "users", where),
        _count(load, "context_tokens", where),
        _count(load, "p99_tokens", where),
        _count(load, "output_tokens", where),
        _count(load, "shared_prefix_tokens", where) if load.get("shared_prefix_tokens") is not None else None,
        _count(load, "max_num_seqs", where),
        _number(storage, "read_gib_per_s", where) * 2**30,
        bool(gateway["token_accounting"]) if "token_accounting" in gateway else None,
        _number(slo, "ttft_s", where),
        _number(slo, "tpot_ms", where) / 1000,
    )


def _table(value: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    found = value.get(key) or {}
    if not isinstance(found, dict):
        raise InputError(f"{key} is no object", where=where)
    return found


def _text(value: dict[str, Any], key: str, where: str) -> str:
    found = value.get(key) or ""
    if not isinstance(found, str):
        raise InputError(f"{key} is no text", where=where)
    return found


def _count(value: dict[str, Any], key: str, where: str) -> int:
    found = value.get(key) or 0
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found < 10**9 or found != int(found):
        raise InputError(f"{key} = {found!r} is no whole number", where=where)
    return int(found)


def _number(value: dict[str, Any], key: str, where: str) -> float:
    found = value.get(key) or 0
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found < 10**9:
        raise InputError(f"{key} = {found!r} is no number", where=where)
    return float(found)
