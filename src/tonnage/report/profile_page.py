"""The picture of a traffic log: one HTML file with its charts drawn in it, that needs nothing else and prints well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tonnage.report.chart import BLUE, YELLOW, Series, bars, curve, document, figure
from tonnage.report.profile_text import headline, lasting, started
from tonnage.units import counted
from tonnage.workload.concurrency import Speed, intervals, over_time
from tonnage.workload.profile import Profile
from tonnage.workload.trace import Trace

BINS = 120


def profile_page(profile: Profile, trace: Trace, source: str, speed: Speed) -> str:
    """Return the page: arrivals and requests at once over time, lengths, hours of the day, what caches find again."""
    title = f"Traffic of {source}"
    body = [f"<h1>{escape(title)}</h1>", f"<p><b>{escape(headline(profile))}</b></p>", f"<p>{escape(_about(profile))}</p>"]
    span = profile.span_s or 1.0
    ticks = [(share, _clock(profile, share * span)) for share in (0, 0.25, 0.5, 0.75, 1)]
    body += figure("Arrivals", "requests a second", bars([Series("", _arrivals(trace, span))], ticks))
    if profile.concurrency is not None:
        at_once = tuple(float(each) for each in over_time(*intervals(trace, speed), BINS, span))
        kind = "exact" if profile.concurrency.confidence == "exact" else f"assumed: {speed.ttft_s:g} s, then {speed.tpot_s:g} s a token"
        body += figure(f"At once ({kind})", "most requests in flight", bars([Series("", at_once)], ticks))
    lengths = [(n, v, c) for n, v, c in (("prompt", trace.prompt_tokens, BLUE), ("answer", trace.output_tokens, YELLOW)) if v]
    if lengths:
        body += figure("Lengths", "requests by tokens, doubling", _lengths(lengths))
    if any(profile.by_hour):
        hours = tuple(rate * 3_600 for rate in profile.hour_per_s)
        body += figure("Time of day", "requests an hour", bars([Series("", hours)], [(h / 24, f"{h:02}:00") for h in (0, 6, 12, 18, 24)]))
    if profile.prefix is not None and profile.prefix.lru:
        body += figure("Found again", "share of prompt tokens by size of the cache", _hits(profile))
    notes = [*(f"The log lacks {lack}." for lack in profile.lacks), *(f"Note: {remark}." for remark in profile.remarks)]
    body += [f"<p>{escape(note)}</p>" for note in notes]
    return document(title, body)


def _about(profile: Profile) -> str:
    rate = profile.rate
    begins = started(profile)
    parts = [f"{counted(profile.requests, 'request')} in {lasting(profile.span_s)}" + (f" from {begins}" if begins else "")]
    parts.append(f"{rate.mean_per_s:,.2f}/s on average, {rate.peak_per_s:,.2f}/s in the busiest {lasting(rate.window_s)}")
    for name, found in (("prompts", profile.prompt_tokens), ("answers", profile.output_tokens), ("both", profile.total_tokens)):
        if found is not None:
            parts.append(f"{name} {found.p50:,} / {found.p95:,} / {found.p99:,} tokens (p50 / p95 / p99)")
    if profile.burstiness is not None:
        parts.append(f"burstiness {profile.burstiness:,.2f} (Poisson 1)")
    return "; ".join(parts) + "."


def _clock(profile: Profile, at_s: float) -> str:
    if profile.epoch_s is None:
        return lasting(at_s)
    seconds = int((profile.epoch_s + at_s) % 86_400)
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _arrivals(trace: Trace, span: float) -> tuple[float, ...]:
    counts = [0] * BINS
    for at in trace.arrival_s:
        counts[min(int(at / span * BINS), BINS - 1)] += 1
    return tuple(count * BINS / span for count in counts)


def _lengths(named: Sequence[tuple[str, Sequence[int], str]]) -> str:
    """Return the histogram: a pair of bars for each doubling of the length."""
    most = max(max(values) for _, values, _ in named)
    steps = max(1, most.bit_length())
    series = []
    for label, values, colour in named:
        counts = [0] * steps
        for value in values:
            counts[max(value, 1).bit_length() - 1] += 1
        series.append(Series(label, tuple(float(count) for count in counts), colour))
    return bars(series, [(power / steps, f"{2**power:,}") for power in range(0, steps + 1, max(1, steps // 6))])


def _hits(profile: Profile) -> str:
    shares = profile.prefix
    assert shares is not None
    points = [(float(held.cache_tokens), held.hit_share) for held in shares.lru if held.cache_tokens > 0]
    points = sorted([*points, (float(max(shares.distinct_tokens, shares.block_tokens)), shares.ideal_share)])
    low, high = math.log10(points[0][0]), math.log10(points[-1][0])
    wide = (high - low) or 1.0
    placed = [((math.log10(size) - low) / wide, share, f"{size:,.0f} tokens: {share:.1%}") for size, share in points]
    powers = range(math.ceil(low), math.floor(high) + 1)
    return curve(placed, [((power - low) / wide, f"{10**power:,}") for power in powers])
