"""A simulated sweep as a value, and as a screen: what the load comes to, where its knee is, what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import msgspec

from tonnage.report.terminal import paint, table, wrapped
from tonnage.sim.point import Point
from tonnage.sim.sweep import Knee
from tonnage.units import counted

UNIT = {"users": "users at once", "rate": "requests a second", "trace": "times as fast as recorded"}


def simulated_value(
    points: Sequence[Point], knee: Knee | None, best: float | None, band: Mapping[str, float], asked: Any, wall_s: float, *, stopped: bool
) -> dict[str, Any]:
    """Return the sweep as JSON holds it."""
    return {
        "schema": "tonnage.simulation/1", "load": asked.by, "model": asked.replica.name, "replicas": asked.replicas,
        "ranks": asked.replica.ranks, "remarks": [*asked.replica.remarks, *asked.assumed],
        "wanted_users": asked.wanted_users, "router": asked.router,
        "lengths": msgspec.to_builtins(asked.law), "seed": asked.seed, "limits": msgspec.to_builtins(asked.replica.limits),
        "points": msgspec.to_builtins(list(points)), "knee": msgspec.to_builtins(knee) if knee is not None else None,
        "targets": msgspec.to_builtins(list(asked.targets)), "largest_within_targets": best, "band": dict(band),
        "simulated_requests": sum(point.finished for point in points), "wall_s": wall_s, "stopped": stopped,
        "confidence": "extrapolated",
    }  # fmt: skip


def simulated_text(value: dict[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Return the screen of a sweep."""
    points, by = value["points"], value["load"]
    lines = [paint(line, "bold", colour) for line in wrapped(_headline(value), width)]
    lines += wrapped(_about(value), width)
    if value["stopped"]:
        lines += wrapped("Stopped before it was done: these are the points that were computed.", width)
    kept = range(9) if width >= 84 else (0, 1, 3, 6, 7, 8)
    rows = [_head(by, narrow=width < 84), *(_row(point) for point in points)]
    lines += ["", *("  " + line for line in table([tuple(row[at] for at in kept) for row in rows], "r" * (len(kept) - 1) + "l"))]
    most = max((point["output_tokens_per_s"] for point in points), default=0.0)
    if len(points) > 1 and most:
        lines += ["", "  tokens a second (=), TTFT p95 (o), each against its largest"]
        slowest = max(point["ttft_s"]["p95"] for point in points) or 1.0
        room = min(width, 100) - 14
        for point in points:
            bar = ["="] * max(1, round(room * point["output_tokens_per_s"] / most)) + [" "] * room
            bar[min(room - 1, round((room - 1) * point["ttft_s"]["p95"] / slowest))] = "o"
            lines.append(f"  {point['load']:>8,g}  {''.join(bar[:room]).rstrip()}")
    lines.append("")
    knee = value["knee"]
    if knee is not None:
        lines += wrapped(
            f"Knee: {knee['load']:g} ({knee['low']:g} to {knee['high']:g}). {knee['why'][:1].upper()}{knee['why'][1:]}.", width
        )
    hits = max(point["hit_share"] for point in points)
    if hits:
        least = min(point["hit_share"] for point in points)
        lines += wrapped(f"The prefix cache finds {least:.0%} to {hits:.0%} of prompt tokens again." if len(points) > 1 else
                         f"The prefix cache finds {hits:.1%} of prompt tokens again.", width)  # fmt: skip
    lines += wrapped(_paged(points[-1]), width)
    rejected = sum(point["rejected"] for point in points)
    if rejected:
        most = value["limits"]["max_model_len"]
        lines += wrapped(f"Rejected: {counted(rejected, 'request')}, longer than max-model-len {most:,} or than the whole pool.", width)
    lines += [part for remark in value["remarks"] for part in wrapped(f"note: {remark}", width, "", "  ")]
    lines += wrapped(
        f"Not calibrated: TTFT +-{value['band']['ttft']:.0%}, TPOT and throughput +-{value['band']['tpot']:.0%}. "
        "A short sweep of the real server narrows it.", width,
    )  # fmt: skip
    lines += ["", *wrapped(_next(value), width, "", "      ")]
    return "\n".join(lines) + "\n"


def _headline(value: dict[str, Any]) -> str:
    best, unit = value["largest_within_targets"], UNIT[value["load"]]
    said = ", ".join(f"{target['quantity'].upper()} {target['statistic']} {target['seconds']:g} s" for target in value["targets"])
    if not value["targets"]:
        top = max(value["points"], key=lambda point: point["output_tokens_per_s"])
        return f"At most {top['output_tokens_per_s']:,.0f} tokens a second, at {top['load']:g} {unit}; limited by {top['limit']}."
    if best is None:
        worst = value["points"][0]
        seen = f"TTFT p95 is {worst['ttft_s']['p95']:.2f} s, TPOT p95 {_ms(worst['tpot_s']['p95'])} ms"
        turned = f", and {counted(worst['rejected'], 'request')} were turned away" if worst["rejected"] else ""
        return f"No load meets {said}: at {worst['load']:g} {unit} {seen}{turned}."
    off = value["band"]["tpot"]
    low, high = best * (1 - off), best * (1 + off)
    form = ",.0f" if value["load"] == "users" else ",.3g"
    if _open_ended(value):
        return f"{best:{form}} {unit} and perhaps more meet {said}: no larger load was tried."
    return f"{best:{form}} {unit} meet {said} ({low:{form}} to {high:{form}})."


def _open_ended(value: dict[str, Any]) -> bool:
    """Return whether the largest load that was tried met the targets: where they are missed is not known."""
    return bool(value["stopped"]) or bool(value["largest_within_targets"] == max(point["load"] for point in value["points"]))


def _about(value: dict[str, Any]) -> str:
    law, limits = value["lengths"], value["limits"]
    loop = {"users": "closed loop", "rate": "open loop", "trace": "as recorded"}[value["load"]]
    shape = f"context {law['context']:,} (p95), answers of {law['output']:,}"
    shape += f", {law['shared']:,} shared" if law["shared"] else ""
    many = (
        f"{counted(value['replicas'], 'replica')}"
        + (f" of {value['ranks']} ranks" if value["ranks"] > 1 else "")
        + (f" by {value['router']}" if value["replicas"] > 1 else "")
    )
    what = "" if value["load"] == "trace" else f", {shape}"
    bounds = f"pool of {limits['blocks']:,} blocks, max-num-seqs {limits['max_num_seqs']}; seed {value['seed']}"
    return f"{value['model']}, {many}, {loop}{what}; {bounds}."


def _head(by: str, *, narrow: bool) -> tuple[str, ...]:
    if narrow:
        return (*_head(by, narrow=False)[:3], "TTFT p95", "", "", "TPOT p95", "cache", "limit")
    return (
        "users" if by == "users" else "req/s" if by == "rate" else "speed",
        "tokens/s",
        "TTFT p50",
        "p95",
        "p99",
        "TPOT p50",
        "p95",
        "cache",
        "limit",
    )


def _row(point: dict[str, Any]) -> tuple[str, ...]:
    lost = f", {point['preemptions']:,} preempted" if point["preemptions"] else ""
    return (
        f"{point['load']:,g}", f"{point['output_tokens_per_s']:,.0f}", *(_s(point["ttft_s"][name]) for name in ("p50", "p95", "p99")),
        *(f"{_ms(point['tpot_s'][name])} ms" for name in ("p50", "p95")), f"{point['cache_share']:.0%}", point["limit"] + lost,
    )  # fmt: skip


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g}"


def _paged(point: dict[str, Any]) -> str:
    idle = f"{point['wasted_share']:.0%}"
    return f"A server that reserves the longest sequence for each request would leave {idle} of the cache idle; pages do not."


def _next(value: dict[str, Any]) -> str:
    best, unit = value["largest_within_targets"], UNIT[value["load"]]
    if not value["targets"]:
        return "next: give targets, as --slo ttft:p95:1s --slo tpot:p95:50ms, for the largest load and the replicas it takes"
    if value["load"] == "trace":
        return "next: tonnage render writes its manifests" if best is not None else "next: try more of it: --replicas N, or a larger card"
    if best is None:
        return "next: shorter prompts, faster cards or more of them a replica; the smallest load tried misses them already"
    if _open_ended(value):
        return f"next: larger loads find where it ends: --{value['load']} {best:g}..{4 * best:g}"
    wanted = value["wanted_users"] if value["load"] == "users" else max(point["load"] for point in value["points"])
    need = max(1, ceil(wanted * value["replicas"] / best))
    return f"next: {wanted:g} {unit} take {counted(need, 'replica')} of this; tonnage render writes their manifests"
