"""workload.toml: what the users do, kept in a file beside the plan instead of in flags."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.errors import InputError, closest_hint
from tonnage.units import parse_share, parse_tokens

EXAMPLE = """\
# What the users do, at their peak. Numbers of tokens may be written "24k" (24,000) or "24Ki" (24,576).

users = 64                  # at once, at peak: not the average, not the number of accounts
context = "8k"              # tokens of a whole sequence, prompt and answer, at its p95
p99 = "12k"                 # the longest that must be served: sizes max-model-len
output = 500                # tokens of the answer, within the context
shared_prefix = "2k"        # tokens at the start that all share (system prompt); or a share: prefix_share = "25%"

[targets]                   # what is good enough; for simulate and bench
ttft_p95 = "1 s"
tpot_p95 = "50 ms"
"""

TOKENS = ("users", "context", "p99", "output", "shared_prefix")


class WorkloadFile(msgspec.Struct, frozen=True):
    """The values of a workload.toml; None where the file is silent. Targets in seconds."""

    users: int | None = None
    context: int | None = None
    p99: int | None = None
    output: int | None = None
    shared_prefix: int | None = None
    prefix_share: float | None = None
    targets: dict[str, float] = {}


def read_workload(text: str, where: str) -> WorkloadFile:
    """Return what a workload.toml says.

    >>> read_workload(EXAMPLE, "example").targets
    {'ttft_p95': 1.0, 'tpot_p95': 0.05}

    Raises InputError: no TOML, a key nobody knows, or a value that is none.
    """
    import tomllib

    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is no TOML ({error})", where=where, hint="tonnage plan --example-workload prints one") from None
    known = (*TOKENS, "prefix_share", "targets")
    for name in value:
        if name not in known:
            raise InputError(
                f"{name} is no key of a workload", where=where, hint=closest_hint(name, known, f"known are {', '.join(known)}")
            )
    fields: dict[str, Any] = {name: _count(value[name], f"{where}: {name}") for name in TOKENS if name in value}
    if "prefix_share" in value:
        fields["prefix_share"] = parse_share(str(value["prefix_share"]), where=f"{where}: prefix_share")
    targets = value.get("targets", {})
    if not isinstance(targets, dict):
        raise InputError("targets is no table", where=where, hint="write [targets], then lines like: ttft_p95 = '1 s'")
    return WorkloadFile(**fields, targets={name: seconds_in(given, f"{where}: targets.{name}") for name, given in targets.items()})


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InputError(f"{value!r} is no whole number", where=where)
    return parse_tokens(str(value), where=where)


def seconds_in(value: Any, where: str) -> float:
    """Return seconds from `1 s`, `50 ms` or a plain number of seconds."""
    text = str(value).strip().lower()
    number, unit = (text[:-2], 0.001) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = -1.0
    if isinstance(value, bool) or not 0 < seconds < 86_400:
        raise InputError(f"{value!r} is no time", where=where, hint='write it like "1 s" or "50 ms"')
    return seconds
