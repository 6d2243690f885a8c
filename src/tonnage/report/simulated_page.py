"""The picture of a simulated sweep: throughput against latency, and what load does to first tokens, cache and preemptions."""

from __future__ import annotations

from html import escape
from typing import Any

from tonnage.report.chart import YELLOW, Series, bars, curve, document, figure, round_up
from tonnage.report.simulated import simulated_text


def simulated_page(value: dict[str, Any]) -> str:
    """Return the page of a sweep's value."""
    points = value["points"]
    title = f"{value['model']} under load"
    body = [f"<h1>{escape(title)}</h1>", f"<pre>{escape(simulated_text(value, width=100))}</pre>"]
    most, slowest = (round_up(max(each)) for each in zip(*((p["output_tokens_per_s"], p["e2e_s"]["p99"]) for p in points), strict=True))
    placed = []
    for p in points:
        speed, late = p["output_tokens_per_s"], p["e2e_s"]["p99"]
        placed.append((speed / most, late / slowest, f"{p['load']:g}: {speed:,.0f} tokens/s, {late:.2f} s"))
    ticks = [(share, f"{share * most:,.0f}") for share in (0, 0.25, 0.5, 0.75, 1)]
    body += figure(
        "Throughput against latency", "end-to-end p99 in seconds, by output tokens a second", curve(placed, ticks, f"{slowest:g}")
    )
    marks = [((index + 0.5) / len(points), f"{p['load']:g}") for index, p in enumerate(points)]
    for heading, axis, values in (
        ("First token", "TTFT p95 in seconds, by load", [p["ttft_s"]["p95"] for p in points]),
        ("Each token", "TPOT p95 in milliseconds, by load", [p["tpot_s"]["p95"] * 1000 for p in points]),
        ("Cache", "most of the pool in use, by load", [p["cache_share"] for p in points]),
        ("Preemptions", "in the run, by load", [float(p["preemptions"]) for p in points]),
    ):
        body += figure(heading, axis, bars([Series("", tuple(values))], marks))
    shown = max((p for p in points if p["load"] == value["largest_within_targets"]), key=lambda p: p["load"], default=points[-1])
    moments = shown["timeline"]
    if len(moments) > 2:
        last = moments[-1]["at_s"] or 1.0
        clock = [(share, f"{share * last:,.0f} s") for share in (0, 0.25, 0.5, 0.75, 1)]
        lost = [after["preemptions"] - before["preemptions"] for before, after in zip([moments[0], *moments], moments, strict=False)]
        for heading, axis, values in (
            (f"Over time at {shown['load']:g}", "share of the pool in use, first replica", [m["cache_share"] for m in moments]),
            ("Running and waiting", "requests", []),
            ("Preempted", "requests, since the moment before", [float(each) for each in lost]),
        ):
            series = [Series("", tuple(values))] if values else [
                Series("running", tuple(float(m["running"]) for m in moments)),
                Series("waiting", tuple(float(m["waiting"]) for m in moments), YELLOW),
            ]  # fmt: skip
            body += figure(heading, axis, bars(series, clock))
    return document(title, body)
