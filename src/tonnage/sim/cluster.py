"""Requests -> replicas behind a router -> what happened to each request.

round-robin    the next replica for the next request, whatever they do
least-request  the replica with the fewest requests running and waiting when one arrives
prefix         requests that begin alike go to the same replica, unless it has far more to do than the least busy one
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf, nextafter
from typing import Literal

import msgspec

from tonnage.sim.engine import Engine
from tonnage.sim.replica import Replica
from tonnage.sim.serve import serve
from tonnage.workload.requests import Requests

Router = Literal["round-robin", "least-request", "prefix"]
ROUTERS: tuple[Router, ...] = ("round-robin", "least-request", "prefix")
SKEW = 1.25
"""How much more than the mean a replica may have to do before its prefixes are sent elsewhere."""


class Served(msgspec.Struct, frozen=True):
    """What happened: the engines, and by request when it was sent and which engine took it (-1: rejected by all)."""

    engines: tuple[Engine, ...]
    requests: Requests
    sent_s: Sequence[float]
    taken_by: Sequence[int]


def run(replica: Replica, requests: Requests, *, replicas: int = 1, router: Router = "round-robin", timeline_s: float = 0.0) -> Served:
    """Return what happens when so many replicas serve the requests."""
    count = len(requests)
    engines = tuple(replica.engine(timeline_s=timeline_s) for _ in range(replicas))
    linked = bool(requests.after) and any(before >= 0 for before in requests.after)
    if linked or requests.priority or (replicas > 1 and (router != "round-robin" or requests.in_flight)):
        return _event_by_event(engines, requests, router)
    _load(engines, requests)
    order = sorted(range(count), key=requests.arrival_s.__getitem__) if not requests.in_flight else range(count)
    taken = [0] * count
    for number, engine in enumerate(engines):
        own = order[number::replicas]
        serve(engine, own, requests.arrival_s, requests.in_flight)
        if replicas > 1:
            for index in own:
                taken[index] = number
        for index in engine.rejected:
            taken[index] = -1
    sent = engines[0].submitted_s if requests.in_flight else requests.arrival_s
    return Served(engines, requests, sent, taken)


def _load(engines: Sequence[Engine], requests: Requests) -> None:
    """Give all engines the requests' columns, once."""
    first = engines[0]
    first.load(requests.prompt_tokens, requests.output_tokens, requests.pieces, requests.answer, requests.priority)
    for engine in engines[1:]:
        engine.share(first)


def _event_by_event(engines: tuple[Engine, ...], requests: Requests, router: Router) -> Served:
    """Send each request when its time has come: by the clock, after another one, or when a place is free."""
    count = len(requests)
    _load(engines, requests)
    sent_s, taken = [0.0] * count, [-1] * count
    due: list[tuple[float, int]] = []
    followers: dict[int, list[int]] = {}
    queued = 0
    if requests.in_flight:
        queued = min(requests.in_flight, count)
        for index in range(queued):
            heappush(due, (0.0, index))
    else:
        for index in range(count):
            before = requests.after[index] if requests.after else -1
            if before >= 0:
                followers.setdefault(before, []).append(index)
            else:
                heappush(due, (requests.arrival_s[index], index))
    seen = [0] * len(engines)
    turn = 0
    homes: dict[object, int] = {}
    while True:
        at = due[0][0] if due else inf
        busy = [engine for engine in engines if engine.now < at and (engine.running or engine.waiting)]
        if busy:
            # no further than the first finish that may be: what follows it may arrive anywhere
            until = min(at, min(engine.finishes_after() for engine in busy))
            for engine in busy:
                engine.advance(max(until, nextafter(engine.now, inf)))
            for number, engine in enumerate(engines):
                for index in engine.finished[seen[number] :]:
                    for follower in followers.pop(index, ()):
                        heappush(due, (engine.finish_s[index] + requests.arrival_s[follower], follower))
                    if requests.in_flight and queued < count:
                        heappush(due, (engine.finish_s[index], queued))
                        queued += 1
                seen[number] = len(engine.finished)
            continue
        if not due:
            break
        when, index = heappop(due)
        number = turn % len(engines) if router == "round-robin" else _chosen(engines, requests, index, router, homes)
        turn += 1
        sent_s[index] = when
        if engines[number].submit(index, when):
            taken[index] = number
        else:
            for follower in followers.pop(index, ()):
                heappush(due, (when + requests.arrival_s[follower], follower))
            if requests.in_flight and queued < count:
                heappush(due, (when, queued))
                queued += 1
    return Served(engines, requests, sent_s, taken)


def _chosen(engines: Sequence[Engine], requests: Requests, index: int, router: Router, homes: dict[object, int]) -> int:
    loads = [engine.running + len(engine.waiting) for engine in engines]
    least = loads.index(min(loads))
    if router == "least-request" or not requests.pieces or not requests.pieces[index]:
        return least
    first = requests.pieces[index][0] if len(requests.pieces[index]) == 1 else requests.pieces[index][:2]
    home = homes.get(first)
    if home is None or loads[home] > SKEW * (sum(loads) + 1) / len(loads) + 1:
        homes[first] = home = least
    return home
