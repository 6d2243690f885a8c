"""The profile of a traffic log for a terminal, and as a value for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tonnage.report.terminal import paint, sentence, table, wrapped
from tonnage.units import counted
from tonnage.workload.concurrency import WINDOW_S
from tonnage.workload.profile import HOUR_S, Lengths, Profile
from tonnage.workload.profile_file import workload_values

BARS = 40


def profile_value(profile: Profile, source: str, toml: str) -> dict[str, Any]:
    """Return the profile as `profile --json` prints it."""
    value = msgspec.to_builtins(profile)
    skipped = profile.skipped
    return {
        "schema": "tonnage.profile/1", "source": source, **value,
        "started": started(profile),
        "skipped": {
            "count": skipped.count, "reasons": [{"reason": reason, "count": count} for reason, count in skipped.reasons],
            "first": [{"line": line, "reason": reason} for line, reason in skipped.first],
        },
        "workload": workload_values(profile), "workload_toml": toml,
    }  # fmt: skip


def started(profile: Profile) -> str:
    """Return when the log begins, in ISO 8601; a time alone where it gives no year, "" where times are relative."""
    if profile.epoch_s is None:
        return ""
    moment = datetime.fromtimestamp(profile.epoch_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if profile.dated else "%H:%M:%S")


def profile_text(profile: Profile, source: str, toml: str, *, kept: str, width: int, colour: bool) -> str:
    """Return the profile as people read it; `kept` is the file that the workload was written to, "" for none."""
    out = [*wrapped(paint(headline(profile), "bold", colour), width), *wrapped(_origin(profile, source), width), ""]
    rows: list[tuple[str, ...]] = [("tokens", "mean", "p50", "p95", "p99", "longest")]
    named = (("prompt", profile.prompt_tokens), ("answer", profile.output_tokens), ("both", profile.total_tokens))
    rows += [(name, *_cells(lengths)) for name, lengths in named if lengths is not None]
    if len(rows) > 1:
        out += [f"  {line}" for line in table(rows, "lrrrrr")] + [""]
    for label, text in _lines(profile):
        out += wrapped(text, width, f"  {label:<10}  ", " " * 14)
    out += ["", *_bars(profile, colour)] if sum(map(bool, profile.by_hour)) > 1 else []
    out += ["", *_caches(profile)] if profile.prefix is not None else []
    out.append("")
    for lack in profile.lacks:
        out += wrapped(f"the log lacks {lack}", width, "", "  ")
    for remark in (*profile.remarks, *_skips(profile)):
        out += wrapped(paint("note: ", "yellow", colour) + remark, width, "", "  ")
    if kept:
        out.append("")
    else:
        out += ["", "workload.toml (--out workload.toml keeps it):", "", *(f"  {line}".rstrip() for line in toml.splitlines())]
        out.append("")
    known = workload_values(profile)
    asked = "".join(f" {option}" for key, option in (("users", "--users N"), ("context_tokens", "--context T")) if key not in known)
    out += wrapped(f"next: tonnage plan MODEL --gpu CARD --workload {kept or 'workload.toml'}{asked}", width)
    return "\n".join(out) + "\n"


def headline(profile: Profile) -> str:
    """Return the answer in a sentence: how many at once, of how many, how long they are."""
    found, both = profile.concurrency, profile.total_tokens
    if found is None:
        return f"{counted(profile.requests, 'request')} in {lasting(profile.span_s)}; how many at once, the log does not tell."
    first = f"{counted(found.peak, 'request')} at once at the peak" + (" (assumed speed)" if found.confidence != "exact" else "")
    return f"{first}{f', {both.p95:,} tokens at the p95' if both is not None else ''}."


def _origin(profile: Profile, source: str) -> str:
    begins = started(profile).replace("T", " ").replace("Z", " UTC")
    over = lasting(profile.span_s) + (f" from {begins}" if begins else "")
    return f"{counted(profile.requests, 'request')} in {over}: {source}, {profile.format}"


def lasting(seconds: float) -> str:
    """Return a span of time as people say it.

    >>> lasting(59.2), lasting(3537), lasting(90_000), lasting(400_000)
    ('59.2 s', '58 min 57 s', '25 h 0 min', '4.6 days')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < HOUR_S:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // HOUR_S)} h {int(seconds % HOUR_S // 60)} min" if seconds < 48 * HOUR_S else f"{seconds / 86_400:.1f} days"


def _cells(found: Lengths) -> tuple[str, ...]:
    return (f"{found.mean:,.0f}", f"{found.p50:,}", f"{found.p95:,}", f"{found.p99:,}", f"{found.longest:,}")


def _lines(profile: Profile) -> list[tuple[str, str]]:
    """Return the figures that are no lengths, a label and a sentence each."""
    out, rate, found = [], profile.rate, profile.concurrency
    if found is not None and found.confidence == "exact":
        out.append(("at once", f"{found.peak:,}, exact, from starts and ends, waiting included; the worst moment {lasting(found.at_s)} in"))
    elif found is not None:
        out.append(
            ("at once",
             f"{found.peak:,} ({found.low:,} to {found.high:,} at twice and half the speed), assumed: first token after "
             f"{found.speed.ttft_s:g} s, then {found.speed.tpot_s:g} s a token (--ttft, --tpot); the worst moment "
             f"{lasting(found.at_s)} in; Little's law over the busiest minute {found.little:,.1f}")
        )  # fmt: skip
    if rate.window_s < WINDOW_S and rate.mean_per_s:
        out.append(("arrivals", f"{rate.mean_per_s:,.2f}/s on average; the log is shorter than a minute"))
    elif rate.mean_per_s:
        out.append(("arrivals", f"{rate.mean_per_s:,.2f}/s on average, {rate.peak_per_s:,.2f}/s in the busiest minute"))
    if profile.burstiness is not None:
        kind = (
            "steadier than independent users"
            if profile.burstiness < 0.7
            else "as of independent users"
            if profile.burstiness < 1.5
            else "in bursts"
        )
        out.append(("burstiness", f"{profile.burstiness:,.2f}, {kind} (a clock 0, Poisson 1)"))
    if profile.reported_hit_share is not None:
        out.append(("cached", f"{profile.reported_hit_share:.1%} of prompt tokens, as the server said"))
    return out


def _bars(profile: Profile, colour: bool) -> list[str]:
    """Return the hours of the day, from the first to the last with requests, to scale."""
    rates = [rate * HOUR_S for rate in profile.hour_per_s]
    busy = [hour for hour, rate in enumerate(rates) if rate]
    wide, most = len(f"{max(rates):,.0f}"), max(rates)
    out = ["  requests an hour by hour of the day (UTC, or as the log writes it)"]
    for hour in range(busy[0], busy[-1] + 1):
        drawn = paint("#" * round(BARS * rates[hour] / most), "cyan", colour)
        out.append(f"  {hour:02}:00  {rates[hour]:>{wide},.0f}  {drawn}".rstrip())
    return out


def _caches(profile: Profile) -> list[str]:
    shares = profile.prefix
    assert shares is not None
    rows = [(f"a cache of {held.cache_tokens:,} tokens", f"{held.hit_share:.1%}") for held in shares.lru]
    rows.append((f"one that forgets nothing ({shares.distinct_tokens:,} tokens)", f"{shares.ideal_share:.1%}"))
    return [
        f"  prompt tokens found again, in blocks of {shares.block_tokens}",
        *(f"    {line}" for line in table(rows, "lr")),
        f"    shared by those in flight at the peak: {counted(shares.shared_prefix_tokens, 'token')} a request",
    ]


def _skips(profile: Profile) -> list[str]:
    if not profile.skipped.count:
        return []
    reasons = "; ".join(f"{count:,} x {reason}" for reason, count in profile.skipped.reasons[:3])
    lines = ", ".join(str(line) for line, _ in profile.skipped.first)
    return [f"{counted(profile.skipped.count, 'row')} skipped: {sentence(reasons)}" + (f" First in line {lines}." if lines else "")]
