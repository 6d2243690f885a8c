"""The start was ended from outside before it was done: a probe, or someone, sent SIGTERM."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "probe-killed"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    after = start.seconds(sign.at if sign.at is not None else start.ended_at)
    numbers: dict[str, float] = {"seconds_until_killed": after} if after is not None else {}
    loaded = ""
    wanted = 0
    if start.shards is not None and start.stage == "load":
        done, total, each = start.shards
        numbers["load_s_estimated"] = round(total * each, 1)
        loaded = f" with {done} of {total} shards read; all of them take about {total * each:,.0f} s"
        wanted = -(-int(2 * total * each + 180) // 60) * 60
    seconds = f" {after:,} s after it began" if after is not None else ""
    return Told(
        f"SIGTERM ended the start{seconds}{loaded}: the startup or liveness probe gives up before loading is done. "
        "Nothing is wrong with the GPU",
        f"let the startup probe wait {wanted} s (loading, compilation, graphs)"
        if wanted
        else "let the startup probe wait for loading and compilation: 15 minutes or more",
        numbers,
    )
