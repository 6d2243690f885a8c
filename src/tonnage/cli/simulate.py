"""`tonnage simulate`: a plan under load, before there is a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli.options import Count, Tokens, in_colour, read_file, terminal_width, write_beside
from tonnage.cli.traffic import read_traffic
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.sim.point import Point, Target
    from tonnage.sim.replica import Replica
    from tonnage.workload.requests import Requests
    from tonnage.workload.traffic import Lengths

BAND = {"ttft": 0.35, "tpot": 0.15, "throughput": 0.15}
"""Shares by which an uncalibrated simulation is off, by held-out measurements (reference, simulation physics section 5)."""
WIDE_BAND = {"ttft": 0.6, "tpot": 0.4, "throughput": 0.4}
"""The same for mixtures of experts, whose grouped matrices scatter most, and for several cards, where small batches wait for links."""
QUANTITIES = ("ttft", "tpot", "itl", "e2e")
STATISTICS = ("mean", "p50", "p95", "p99")
LOOPS = {
    "think": ("users",), "turns": ("users",), "ramp": ("users",), "burstiness": ("rate",), "arrivals": ("rate",), "faster": ("trace",),
    "mapping": ("trace",),
    "output": ("users", "rate"), "lengths": ("users", "rate"), "systems": ("users", "rate"), "workload": ("users", "rate", "trace"),
}  # fmt: skip
"""Which loads an option changes."""


class Asked(msgspec.Struct, frozen=True):
    """What is simulated: a replica, how many of it, and how load is made."""

    replica: Any
    law: Any
    by: str
    replicas: int
    router: Any
    requests: int
    burstiness: float
    seed: int
    targets: tuple[Any, ...]
    trace: Any = None
    turns: int = 1
    think_s: float = 0.0
    ramp_s: float = 0.0
    arrivals: Any = "poisson"
    wanted_users: int = 0
    assumed: tuple[str, ...] = ()


@click.command("simulate")
@click.argument("plan", type=click.Path(path_type=Path), metavar="PLAN.json")
@click.option("--rate", metavar="R|LOW..HIGH", help="Requests a second: one, several (1,2,5) or a range; an open loop.")
@click.option(
    "--users", metavar="N|LOW..HIGH", help="Users at once: one, several or a range; a closed loop. The default, around the plan's."
)
@click.option("--trace", type=click.Path(path_type=Path), help="A traffic log, replayed at its own times (formats as for profile).")
@click.option("--workload", type=click.Path(path_type=Path), help="workload.toml: lengths, shared prefix, targets.")
@click.option("--output", type=Tokens(), help="Tokens of an answer, on average.  [default: the workload's, else an eighth of the context]")
@click.option("--lengths", type=click.Choice(["lognormal", "fixed"]), default="lognormal", show_default=True,
              help="How prompts spread below the p95; fixed: every one as long.")  # fmt: skip
@click.option("--arrivals", type=click.Choice(["poisson", "constant", "diurnal"]), default="poisson", show_default=True,
              help="The law of an open loop; diurnal: a day with a peak three times its trough.")  # fmt: skip
@click.option("--systems", type=Count(), default=1, show_default=True, help="How many texts the shared part is one of (Zipf).")
@click.option("--turns", type=Count(), default=1, show_default=True, help="Turns of a conversation: each prompt holds what was said.")
@click.option("--think", type=float, default=0.0, show_default=True, metavar="S", help="Seconds a user thinks between two requests.")
@click.option("--ramp", type=float, default=0.0, show_default=True, metavar="S", help="Seconds over which users begin; 0: all at once.")
@click.option(
    "--burstiness", type=float, default=1.0, show_default=True, help="Squared variation of the gaps of an open loop; 1 is Poisson."
)
@click.option(
    "--map", "mapping", default="", metavar="NAME=COLUMN,...", help="Where the trace keeps arrival, prompt, output (see profile)."
)
@click.option("--faster", type=float, default=1.0, show_default=True, help="How many times as fast a trace is replayed.")
@click.option("--slo", multiple=True, metavar="WHAT:STAT:TIME", help="A target, like ttft:p95:1s or tpot:mean:50ms.")
@click.option("--replicas", type=Count(), default=1, show_default=True, help="Replicas behind the router.")
@click.option("--router", type=click.Choice(["round-robin", "least-request", "prefix"]), default="least-request", show_default=True,
              help="How requests are spread over replicas.")  # fmt: skip
@click.option("--requests", type=Count(), help="Requests of each point.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same points.")
@click.option("--jobs", type=Count(), default=1, show_default=True, help="Points that are computed side by side.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the picture to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON.")
def command(plan: Path, as_json: bool, html: Path | None, jobs: int, **given: Any) -> int:
    """How a plan behaves under load: latency and throughput, the knee, what limits, how many replicas.

    The engine's scheduler and block pool step by step, its step times from the card's figures: without a measured sweep of your own
    TTFT is within about 35 %, TPOT and throughput within 15 %; 60 and 40 % with experts or several cards a replica.

    \b
    tonnage simulate plan.json --users 1..512 --slo ttft:p95:1s --slo tpot:p95:50ms
    tonnage simulate plan.json --rate 0.5..20 --html load.html
    """
    import time

    from tonnage.report.simulated import simulated_text, simulated_value
    from tonnage.sim.sweep import knee, largest_within, met

    started = time.perf_counter()
    asked, wanted = _asked(plan, {**given, "html": html})
    points: list[Point] = []
    stopped = False
    try:
        for found in _points(asked, wanted, jobs):
            points.append(found)
            _progress(len(points), len(wanted), found)
        if asked.targets and len(points) > 1 and asked.trace is None:
            for found in largest_within(points, asked.targets, lambda load: _one(asked, load), whole=asked.by == "users"):
                points.append(found)
                _progress(len(points), len(wanted) + 6, found)
    except KeyboardInterrupt:
        stopped = True
    _progress(0, 0, None)
    if not points:
        raise InputError("nothing was computed before it was stopped", hint="--requests N makes a point shorter")
    bend = knee(points[: len(wanted)])
    points.sort(key=lambda point: point.load)
    best = max((point.load for point in points if met(point, asked.targets)), default=None) if asked.targets else None
    band = WIDE_BAND if asked.replica.model.experts or asked.replica.model.ranks > 1 else BAND
    value = simulated_value(points, bend, best, band, asked, time.perf_counter() - started, stopped=stopped)
    if html is not None:
        from tonnage.report.simulated_page import simulated_page

        write_beside(html, simulated_page(value).encode())
    if as_json:
        click.echo(msgspec.json.encode(value).decode())
    else:
        click.echo(simulated_text(value, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
        if html is not None:
            click.echo(f"wrote {html}", err=True)
    return int(stopped or (bool(asked.targets) and best is None))


def _asked(plan: Path, given: dict[str, Any]) -> tuple[Asked, list[float]]:
    """Return what is to be simulated, and the loads of its points.

    Raises InputError: no plan, one that does not start, a load or a target that is none.
    """
    from tonnage.sim.sweep import loads

    if sum(given[name] is not None for name in ("rate", "users", "trace")) > 1:
        raise InputError("--rate, --users and --trace exclude each other", hint="an open loop, a closed one, or what was recorded")
    _apply(given)
    made, replica = _planned(plan)
    file = _workload_file(given["workload"])
    load = made.request.workload
    context = file.context or load.context_tokens
    output = given["output"] or file.output or load.output_tokens or max(1, context // 8)
    shared = file.shared_prefix or (int(file.prefix_share * context) if file.prefix_share else 0) or load.shared_prefix_tokens
    from tonnage.workload.traffic import USUAL_SIGMA, lengths

    longest = replica.limits.max_model_len
    if context > longest:
        raise InputError(
            f"sequences of {context:,} tokens are longer than the plan's max-model-len of {longest:,}", where="the workload",
            hint="plan it again for that context: tonnage plan ... --context",
        )  # fmt: skip
    law = lengths(context, output, p99=file.p99 or load.p99_tokens, shared=shared, longest=longest, spread=given["lengths"])
    law = msgspec.structs.replace(law, systems=given["systems"])
    assumed = []
    if not (given["output"] or file.output or load.output_tokens):
        assumed.append(f"answers of {output:,} tokens are assumed, an eighth of the context: --output says otherwise")
    if law.sigma == USUAL_SIGMA:
        assumed.append("how prompts scatter below the p95 is assumed: a p99 in --workload, or --trace, tells")
    targets = tuple([_target(text) for text in given["slo"]] or _targets(file.targets))
    trace = None
    users = (file.users or load.users) * given["replicas"]
    if not 0 < given["faster"] < 1e6:
        raise InputError(f"{given['faster']:g} times as fast is none", where="--faster", hint="1 is as recorded")
    if given["trace"] is not None:
        from tonnage.workload.traces.fields import read_map
        from tonnage.workload.traffic import of_trace

        trace = of_trace(
            read_traffic(str(given["trace"]), given=read_map(given["mapping"])), faster=given["faster"], most=given["requests"] or 0
        )
        by, wanted = "trace", [float(given["faster"])]
    elif given["rate"] is not None:
        by, wanted = "rate", _range(given["rate"], "--rate", whole=False)
    else:
        by = "users"
        wanted = _range(given["users"], "--users", whole=True) if given["users"] else loads(1, max(2, 4 * users), 10, whole=True)
    asked = Asked(
        replica, law, by, given["replicas"], given["router"], given["requests"] or 0, given["burstiness"], given["seed"], targets, trace,
        given["turns"], given["think"], given["ramp"], given["arrivals"], users,
        () if trace is not None else tuple(assumed),
    )  # fmt: skip
    return asked, wanted


def _apply(given: dict[str, Any]) -> None:
    """Raise InputError where an option is given that the load it goes with does not know."""
    loop = "rate" if given["rate"] is not None else "trace" if given["trace"] is not None else "users"
    context = click.get_current_context()
    for name, loops in LOOPS.items():
        said = context.get_parameter_source(name)
        if loop not in loops and said is not None and said.name == "COMMANDLINE":
            raise InputError(f"goes with {' and '.join(f'--{each}' for each in loops)}, not with --{loop}", where=f"--{name}")
    if given["turns"] > 1 and (given["requests"] or given["ramp"]):
        raise InputError(
            "is not for conversations: users x turns are their requests", where="--requests" if given["requests"] else "--ramp"
        )
    for name in ("think", "ramp", "burstiness", "faster"):
        if not 0 <= given[name] < 1e7:
            raise InputError(f"{given[name]:g} is none", where=f"--{name}")
    if given["html"] is not None and not given["html"].parent.is_dir():
        raise InputError("there is no such folder", where=str(given["html"].parent), hint="make it first")


def _planned(path: Path) -> tuple[Any, Replica]:
    """Return the plan again, from the settings that were kept, and its replica; a measured pool stays as it was measured."""
    from tonnage.facts.cards import find_card
    from tonnage.facts.catalog import find_model
    from tonnage.facts.engine import rules_for
    from tonnage.facts.overheads import overhead_constants
    from tonnage.memory.measured import MeasuredPool, as_measured
    from tonnage.memory.plan import Request, plan
    from tonnage.render.plan_file import read_plan
    from tonnage.sim.replica import replica

    data = read_file(path)
    kept = read_plan(data, str(path))
    if kept.card.slug in ("cpu", "custom"):
        raise InputError("the card of the plan is not in the catalogue, so that its step times are not known", where=str(path))
    model = find_model(kept.model.path or kept.model.name)
    rules = rules_for(kept.settings.engine, kept.settings.release)
    made = plan(Request(model, find_card(kept.card.slug).card, kept.settings, kept.workload, rules, overhead_constants()))
    value = msgspec.json.decode(data)
    value = value.get("chosen") or value
    pool = value.get("pool", {})
    blocks = pool.get("blocks", 0) if isinstance(pool, dict) else 0
    if isinstance(blocks, int) and blocks > 0 and blocks != made.allocation.num_blocks:
        made = as_measured(made, MeasuredPool(blocks=blocks))
    return made, replica(made)


def _workload_file(path: Path | None) -> Any:
    from tonnage.workload.file import WorkloadFile, read_workload

    return read_workload(read_file(path).decode("utf-8", "replace"), str(path)) if path is not None else WorkloadFile()


def _range(text: str, where: str, *, whole: bool) -> list[float]:
    """Return loads from `8`, `1,2,5` or `1..50`."""
    from tonnage.sim.sweep import loads

    try:
        if ".." in text:
            low, high = (float(part) for part in text.split("..", 1))
            found = loads(low, high, 10, whole=whole) if 0 < low <= high < 1e6 else []
        else:
            found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or any(not 0 < each < 1e6 or (whole and each != int(each)) for each in found):
        raise InputError(f"{text!r} is no load", where=where, hint=f"write {where} 8, {where} 1,2,5 or {where} 1..50; above 0")
    return found


def _target(text: str) -> Target:
    """Return a target from `ttft:p95:1s`.

    Raises InputError: another quantity, statistic or time.
    """
    from tonnage.sim.point import Target
    from tonnage.workload.file import seconds_in

    parts = text.lower().split(":")
    parts = [parts[0], "p95", parts[1]] if len(parts) == 2 else parts
    if len(parts) != 3 or parts[0] not in QUANTITIES or parts[1] not in STATISTICS:
        raise InputError(
            f"{text!r} is no target", where="--slo", hint=f"write ttft:p95:1s; {', '.join(QUANTITIES)} and {', '.join(STATISTICS)}"
        )
    return Target(parts[0], parts[1], seconds_in(parts[2], "--slo"))


def _targets(named: dict[str, float]) -> list[Target]:
    """Return the targets of a workload.toml: `ttft_p95` and the like."""
    from tonnage.sim.point import Target

    found = []
    for name, seconds in named.items():
        quantity, _, statistic = name.partition("_")
        if quantity not in QUANTITIES or (statistic or "p95") not in STATISTICS:
            raise InputError(
                f"{name} is no target", where="targets", hint=f"like ttft_p95; {', '.join(QUANTITIES)} and {', '.join(STATISTICS)}"
            )
        found.append(Target(quantity, statistic or "p95", seconds))
    return found


def _points(asked: Asked, wanted: list[float], jobs: int) -> Any:
    """Yield the points, side by side where that was asked for."""
    if jobs <= 1 or len(wanted) == 1:
        yield from (_one(asked, load) for load in wanted)
        return
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial

    with ProcessPoolExecutor(min(jobs, len(wanted))) as pool:
        yield from pool.map(partial(_one, asked), wanted)


def _one(asked: Asked, load: float) -> Point:
    """Return one point."""
    from tonnage.sim.cluster import run
    from tonnage.sim.point import point

    requests = _requests(asked, load)
    last = max(requests.arrival_s)
    ranks = asked.replicas * asked.replica.ranks
    served = run(asked.replica, requests, replicas=ranks, router=asked.router, timeline_s=max(last / 400, 0.05))
    return point(served, load, asked.targets)


def _requests(asked: Asked, load: float) -> Requests:
    from random import Random

    from tonnage.workload.traffic import at_rate, by_users, conversations

    if asked.trace is not None:
        return asked.trace  # type: ignore[no-any-return]
    law: Lengths = asked.law
    draw = Random(asked.seed)
    if asked.by == "users" and asked.turns > 1:
        return conversations(law, int(load), asked.turns, asked.think_s, draw)
    if asked.by == "users":
        count = asked.requests or max(200, min(10_000, 10 * int(load)), 2 * int(load))
        return by_users(law, int(load), count, draw, think_s=asked.think_s, ramp_s=asked.ramp_s)
    return at_rate(
        law, load, asked.requests or max(1000, min(20_000, int(600 * load))), draw, arrivals=asked.arrivals, burstiness=asked.burstiness
    )


def _progress(done: int, whole: int, found: Point | None) -> None:
    """Show how far the work is, on a terminal only."""
    if not sys.stderr or not sys.stderr.isatty():
        return
    text = f"{done} of {whole} points; at {found.load:g} TTFT p95 {found.ttft_s.p95:.2f} s" if found is not None else ""
    click.echo(f"\r{text:<70}\r", err=True, nl=False)
