"""The picture of a traffic log: one HTML file with its charts drawn in it, that needs nothing else and prints well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

from tonnage.report.profile_text import headline, lasting, started
from tonnage.units import counted
from tonnage.workload.concurrency import Speed, intervals, over_time
from tonnage.workload.profile import Profile
from tonnage.workload.trace import Trace

BINS = 120
WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 720, 200, 64, 28, 10
BLUE, YELLOW = "#4269d0", "#efb118"


class Series(msgspec.Struct, frozen=True):
    """Values over equal steps of the axis below, drawn as bars, or as a line through points."""

    label: str
    values: tuple[float, ...]
    colour: str = BLUE


def profile_page(profile: Profile, trace: Trace, source: str, speed: Speed) -> str:
    """Return the page: arrivals and requests at once over time, lengths, hours of the day, what caches find again."""
    title = f"Traffic of {source}"
    body = [f"<h1>{escape(title)}</h1>", f"<p><b>{escape(headline(profile))}</b></p>", f"<p>{escape(_about(profile))}</p>"]
    span = profile.span_s or 1.0
    ticks = [(share, _clock(profile, share * span)) for share in (0, 0.25, 0.5, 0.75, 1)]
    body += _figure("Arrivals", "requests a second", bars([Series("", _arrivals(trace, span))], ticks))
    if profile.concurrency is not None:
        at_once = tuple(float(each) for each in over_time(*intervals(trace, speed), BINS, span))
        kind = "exact" if profile.concurrency.confidence == "exact" else f"assumed: {speed.ttft_s:g} s, then {speed.tpot_s:g} s a token"
        body += _figure(f"At once ({kind})", "most requests in flight", bars([Series("", at_once)], ticks))
    lengths = [(n, v, c) for n, v, c in (("prompt", trace.prompt_tokens, BLUE), ("answer", trace.output_tokens, YELLOW)) if v]
    if lengths:
        body += _figure("Lengths", "requests by tokens, doubling", _lengths(lengths))
    if any(profile.by_hour):
        hours = tuple(rate * 3_600 for rate in profile.hour_per_s)
        body += _figure("Time of day", "requests an hour", bars([Series("", hours)], [(h / 24, f"{h:02}:00") for h in (0, 6, 12, 18, 24)]))
    if profile.prefix is not None and profile.prefix.lru:
        body += _figure("Found again", "share of prompt tokens by size of the cache", _hits(profile))
    notes = [*(f"The log lacks {lack}." for lack in profile.lacks), *(f"Note: {remark}." for remark in profile.remarks)]
    body += [f"<p>{escape(note)}</p>" for note in notes]
    return PAGE.format(title=escape(title), body="\n".join(body))


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


def bars(series: Sequence[Series], ticks: Sequence[tuple[float, str]]) -> str:
    """Return an SVG of bars, those of several series side by side; ticks are (share of the width, text)."""
    top = _round_up(max((max(each.values, default=0.0) for each in series), default=0.0))
    steps = max(len(each.values) for each in series)
    inner, tall = WIDTH - LEFT - 10, HEIGHT - BELOW - ABOVE
    wide = inner / steps / len(series)
    parts = []
    for number, each in enumerate(series):
        for index, value in enumerate(each.values):
            x, high = LEFT + (index * len(series) + number) * wide, tall * value / top
            place = f'x="{x:.2f}" y="{ABOVE + tall - high:.2f}" width="{max(wide * 0.92, 0.5):.2f}" height="{high:.2f}"'
            parts.append(f'<rect {place} fill="{each.colour}"><title>{escape(f"{each.label} {value:,.6g}".strip())}</title></rect>')
    legend = "".join(f'<span><i style="background:{each.colour}"></i>{escape(each.label)}</span>' for each in series if each.label)
    return _svg("".join(parts), ticks, f"{top:,.6g}") + (f'<p class="legend">{legend}</p>' if legend else "")


def curve(points: Sequence[tuple[float, float, str]], ticks: Sequence[tuple[float, str]]) -> str:
    """Return an SVG of a line through points: (share of the width, share of the height, what a pointer over it says)."""
    inner, tall = WIDTH - LEFT - 10, HEIGHT - BELOW - ABOVE
    placed = [(LEFT + x * inner, ABOVE + tall * (1 - y), text) for x, y, text in points]
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y, _ in placed)
    dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{BLUE}"><title>{escape(text)}</title></circle>' for x, y, text in placed)
    return _svg(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>{dots}', ticks, "100%")


def _svg(drawn: str, ticks: Sequence[tuple[float, str]], top: str) -> str:
    inner, ground = WIDTH - LEFT - 10, HEIGHT - BELOW
    axis = f'<path d="M{LEFT} {ABOVE}V{ground}H{WIDTH - 10}" fill="none" stroke="#888"/>'
    texts = f'<text x="{LEFT - 6}" y="{ABOVE + 8}" text-anchor="end">{escape(top)}</text>'
    texts += f'<text x="{LEFT - 6}" y="{ground}" text-anchor="end">0</text>'
    for share, text in ticks:
        anchor = "start" if share < 0.05 else "end" if share > 0.95 else "middle"
        texts += f'<text x="{LEFT + share * inner:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{escape(text)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{drawn}{axis}{texts}</svg>'


def _round_up(value: float) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten, not below the value.

    >>> _round_up(34.0), _round_up(0.0), _round_up(0.15)
    (50.0, 1.0, 0.2)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _figure(heading: str, axis: str, drawn: str) -> list[str]:
    return [f"<h2>{escape(heading)}</h2>", f"<figure><figcaption>{escape(axis)}</figcaption>{drawn}</figure>"]


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; background: #fff; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }}
figure {{ margin: 0; }} figcaption {{ color: #555; font-size: .85em; }}
svg {{ width: 100%; height: auto; }} svg text {{ font: 11px system-ui, sans-serif; fill: #555; }}
.legend {{ margin: 0; }} .legend span {{ display: inline-block; margin-right: 1rem; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .3em; }}
@media print {{
  body {{ margin: 0; font-size: 11px; }} h2 {{ break-after: avoid; }} figure {{ break-inside: avoid; }} * {{ print-color-adjust: exact; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""
