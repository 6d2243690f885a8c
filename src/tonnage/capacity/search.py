"""Every configuration that holds the users: cards x precision x parallelism, replicas to cover the rest.

Tensor parallelism stays within a machine and divides the heads; stages go across machines, where one does not hold the
model. A size that needs one replica ends the search of its card and precision: more cards would only cost more.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from tonnage.capacity.inventory import Cost, Inventory, node_cards
from tonnage.errors import TonnageError
from tonnage.facts.catalog import find_model, published_in
from tonnage.facts.gpu import Card
from tonnage.memory.plan import MemoryPlan, Request, plan
from tonnage.memory.refusals import legal_tp
from tonnage.memory.weights import checkpoint_bytes
from tonnage.settings import Parallelism

MOST_STAGES = 4
LEAST_ROOM = 0.95
"""Weights above this share of a card leave nothing for an engine."""


class Limits(msgspec.Struct, frozen=True):
    """What the purchase may be at most; `spare` replicas are bought beyond those that hold the users."""

    cards: int | None = None
    usd_per_hour: float | None = None
    spare: int = 0


class Option(msgspec.Struct, frozen=True):
    """A configuration that holds the users: the plan of one replica with its share of them, and how many replicas."""

    plan: MemoryPlan
    replicas: int
    spare: int
    cost: Cost | None
    users: int

    @property
    def cards(self) -> int:
        """Cards of all replicas."""
        return self.replicas * self.plan.settings.parallel.cards

    @property
    def usd_per_hour(self) -> float | None:
        """What all cards cost an hour, where a price is known."""
        return self.cards * self.cost.usd_per_hour if self.cost else None

    @property
    def safe_users(self) -> int:
        """Users that all replicas but the spare ones hold at the low end of the pool."""
        return self.plan.users.safe * (self.replicas - self.spare)

    @property
    def headroom(self) -> float:
        """Share of the safe users that is not asked for."""
        return 1 - self.plan.request.workload.users / max(1, self.plan.users.safe)


def precisions(request: Request, weights: str, cache: str) -> list[Request]:
    """Return the same question in other precisions: "any" tries published checkpoints first, and rules where none exists.

    The first is always as asked. Checkpoints in FP8 and INT4 and an FP8 cache are other models: evaluate them.
    """
    out = [request]
    if weights == "any" and not request.model.shape.quantisation.targets:
        for word in ("fp8", "int4"):
            published = published_in(request.model.name, word)
            if published:
                out.append(msgspec.structs.replace(request, model=find_model(published)))
            else:
                out.append(msgspec.structs.replace(request, settings=msgspec.structs.replace(request.settings, weights=word)))
    if cache == "any":
        out += [msgspec.structs.replace(one, settings=msgspec.structs.replace(one.settings, kv_cache_dtype="fp8")) for one in out]
    return out


def search(request: Request, shelf: Inventory, limits: Limits) -> list[Option]:
    """Return every option within the limits, in no order; the request's card and parallelism are those of none."""
    return [option for card in shelf.cards for option in _on_card(request, card, shelf, limits)]


def _on_card(request: Request, card: Card, shelf: Inventory, limits: Limits) -> Iterator[Option]:
    most = min(shelf.stock.get(card.slug, limits.cards or 10**6), limits.cards or 10**6)
    enough, in_one = most, False
    for parallel in sizes(request, card):
        if parallel.cards > enough or (parallel.pp > 1 and in_one):
            continue
        cost = shelf.cost(card, parallel.cards)
        option = _option(request, card, parallel, cost, limits)
        if option is None and request.model.shape.experts and parallel.tp > 1 and not parallel.expert:
            option = _option(request, card, msgspec.structs.replace(parallel, expert=True), cost, limits)
        if option is None:
            continue
        if option.cards <= most and _within(option, limits):
            yield option
        in_one = in_one or parallel.pp == 1
        if option.replicas - option.spare == 1:
            enough = parallel.cards


def _within(option: Option, limits: Limits) -> bool:
    """Return whether an option is within the budget; an unknown price is within none."""
    price = option.usd_per_hour
    return limits.usd_per_hour is None or (price is not None and price <= limits.usd_per_hour)


def sizes(request: Request, card: Card) -> Iterator[Parallelism]:
    """Yield the parallelisms worth planning on a card, the fewest cards first."""
    shape, node = request.model.shape, node_cards(card)
    whole = checkpoint_bytes(shape)
    alone = card.sliced or request.settings.engine in ("ollama", "llama.cpp")  # neither cuts matrices over cards as we count it
    widths = [n for n in legal_tp(shape, 1 if alone else node) if n & (n - 1) == 0]
    expert = request.settings.parallel.expert
    for tp in widths:
        for pp in [1] if tp < max(widths) or alone else range(1, MOST_STAGES + 1):
            if whole > LEAST_ROOM * card.memory.best * tp * pp:
                continue
            yield Parallelism(tp=tp, pp=pp, expert=expert and tp > 1)
            if tp > 1 and pp == 1 and shape.latent and request.settings.engine == "vllm":
                yield Parallelism(tp=tp, dcp=tp)
            if tp > 1 and pp == 1 and shape.latent and shape.experts:
                yield Parallelism(tp=1, dp=tp, expert=True)


def _option(request: Request, card: Card, parallel: Parallelism, cost: Cost | None, limits: Limits) -> Option | None:
    settings = msgspec.structs.replace(request.settings, parallel=parallel)
    asked = msgspec.structs.replace(request, card=card, settings=settings)
    try:
        made = plan(asked)
    except TonnageError:
        return None
    if made.refusals or made.users.safe < 1:
        return None
    users = request.workload.users
    needed = ceil(users / made.users.safe)
    if needed > 1:  # a replica is planned for its share: what it says of users is of those
        share = msgspec.structs.replace(request.workload, users=ceil(users / needed))
        made = plan(msgspec.structs.replace(asked, workload=share))
    return Option(made, needed + limits.spare, limits.spare, cost, users)
