"""A profile -> workload.toml: the peak, the p95 and what is shared, each with where it comes from."""

from __future__ import annotations

from typing import Any

from tonnage.units import counted
from tonnage.workload.profile import Profile


def workload_values(profile: Profile) -> dict[str, int]:
    """Return what a plan is asked with, by the names of a workload; what the log does not tell is not there.

    The context is the p95 of prompt and answer together, the answer its mean within that: what a load is made of.
    """
    values: dict[str, int] = {}
    if profile.concurrency is not None:
        values["users"] = profile.concurrency.peak
    both, output = profile.total_tokens, profile.output_tokens
    if both is not None and output is not None:
        context = max(both.p95, 1)
        values |= {"context_tokens": context, "p99_tokens": max(both.p99, context), "output_tokens": min(round(output.mean), context - 1)}
        shared = profile.prefix.shared_prefix_tokens if profile.prefix is not None else 0
        if shared:
            values["shared_prefix_tokens"] = min(shared, context - 1)
    return values


def workload_text(profile: Profile, source: str) -> str:
    """Return a workload.toml, as `read_workload` reads it."""
    values = workload_values(profile)
    name = "".join(each if each.isprintable() else "?" for each in source)
    lines = [f"# tonnage profile of {counted(profile.requests, 'request')}: {name}", ""]
    for ours, key, why in (
        ("users", "users", _users(profile)),
        ("context_tokens", "context", "p95 of prompt and answer"),
        ("p99_tokens", "p99", f"sizes max-model-len; the longest is {_longest(profile):,}"),
        ("output_tokens", "output", "mean of the answers"),
        ("shared_prefix_tokens", "shared_prefix", "in common with others in flight at the peak"),
    ):
        if ours in values:
            lines.append(f"{f'{key} = {values[ours]}':<22}  # {why}")
    if profile.prefix is not None:
        lines.append(f"# a cache that forgets nothing finds {profile.prefix.ideal_share:.0%} of the prompt tokens again")
    lines += [f"# not told by the log: {lack}" for lack in profile.lacks if not lack.startswith(("dates", "block"))]
    return "\n".join(lines) + "\n"


def _users(profile: Profile) -> str:
    found: Any = profile.concurrency
    if found is None:
        return ""
    if found.confidence == "exact":
        return "at once at the worst moment, from the log's ends"
    return f"at once; {found.low} to {found.high}: assumes {found.speed.ttft_s:g} s + {found.speed.tpot_s:g} s a token"


def _longest(profile: Profile) -> int:
    return profile.total_tokens.longest if profile.total_tokens is not None else 0
