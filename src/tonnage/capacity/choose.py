"""Which option to buy, why, why not the others, and what would change the answer.

Every option holds the users at the low end of its pool. Among those: fewest cards, then cost where prices are known, then
least memory bought (what stands for cost where none is), then headroom, then simplicity.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from math import ceil, log

import msgspec

from tonnage.capacity.inventory import Inventory
from tonnage.capacity.search import Limits, Option, search
from tonnage.memory.pages import cache_bits
from tonnage.units import GIB, counted

SOON = datetime.timedelta(days=366 * 50)


class Ranked(msgspec.Struct, frozen=True):
    """An option and its reasons: what speaks for it, and what against it beside the chosen one (empty for that)."""

    option: Option
    why: str
    why_not_better: str = ""


class WhatIf(msgspec.Struct, frozen=True):
    """A change of the question, and what it would take of the chosen card; `cards` is 0 where nothing holds it."""

    what: str
    cards: int
    answer: str


def key(option: Option) -> tuple[float, ...]:
    """Return what options are ordered by, the best first."""
    price = option.usd_per_hour
    cost = price if price is not None else float("inf")
    return (option.cards, cost, _memory(option), _narrowed(option), -round(option.headroom, 1), _parts(option))


def ranked(options: Iterable[Option]) -> list[Ranked]:
    """Return the options, the best first, each with its reasons."""
    order = sorted(options, key=key)
    return [Ranked(option, why(option), why_not(option, order[0]) if place else "") for place, option in enumerate(order)]


def best_of_cards(order: list[Ranked]) -> list[Ranked]:
    """Return the best option of each kind of card, in order."""
    seen: dict[str, Ranked] = {}
    for entry in order:
        seen.setdefault(entry.option.plan.request.card.slug, entry)
    return list(seen.values())


def why(option: Option) -> str:
    """Return what an option is, in words."""
    each = option.plan.users.safe
    replicas = option.replicas - option.spare
    text = f"{counted(replicas, 'replica')} of {arrangement(option)}, {each:,} safe users each"
    return text + (f", {option.spare} spare" if option.spare else "")


def arrangement(option: Option) -> str:
    """Return how a replica spreads over its cards."""
    p = option.plan.settings.parallel
    parts = [f"{word} {count}" for word, count in (("TP", p.tp), ("PP", p.pp), ("DP", p.dp), ("DCP", p.dcp)) if count > 1]
    return ", ".join([*parts, *(["EP"] if p.expert else [])]) or "one card"


def why_not(option: Option, best: Option) -> str:
    """Return why another option is not the chosen one: the first rule by which it loses."""
    if option.cards > best.cards:
        return f"{counted(option.cards - best.cards, 'card')} more"
    mine, its = option.usd_per_hour, best.usd_per_hour
    if mine is not None and its is not None and mine > its:
        return f"{mine - its:.2f} USD/h more"
    if mine is None and its is not None:
        return "no price known"
    more = _memory(option) - _memory(best)
    if more > 0:
        return f"{more / GIB:.0f} GiB more memory" if more >= GIB else "a little more memory"
    if _narrowed(option) > _narrowed(best):
        return "a narrower precision"
    if round(option.headroom, 1) < round(best.headroom, 1):
        return f"headroom {option.headroom:.0%}, not {best.headroom:.0%}"
    return "more parts to run" if _parts(option) > _parts(best) else "as good"


def what_if(best: Option, shelf: Inventory, limits: Limits, *, growth: float = 0.0, today: datetime.date | None = None) -> list[WhatIf]:
    """Return what other questions would take of the chosen card; `growth` is a share a month, counted from `today`."""
    request = best.plan.request
    users = best.users
    card = Inventory((request.card,), {}, shelf.prices)
    whole = msgspec.structs.replace(request.workload, users=users)
    asked = msgspec.structs.replace(request, workload=whole)
    free = Limits(spare=limits.spare)

    def takes(what: str, changed: object) -> WhatIf:
        found = sorted(search(changed, card, free), key=key)  # type: ignore[arg-type]
        if not found:
            return WhatIf(what, 0, "nothing on this card holds it")
        return WhatIf(what, found[0].cards, f"{counted(found[0].cards, 'card')}: {why(found[0])}")

    longer = msgspec.structs.replace(whole, context_tokens=2 * whole.context_tokens, p99_tokens=2 * whole.p99_tokens)
    out = [takes(f"users x 2 ({2 * users:,})", msgspec.structs.replace(asked, workload=msgspec.structs.replace(whole, users=2 * users)))]
    if longer.longest <= request.model.shape.max_position:
        out.append(takes(f"context x 2 ({longer.context_tokens:,})", msgspec.structs.replace(asked, workload=longer)))
    modern = request.card.compute_capability is None or request.card.compute_capability >= (8, 9)
    if cache_bits(best.plan.cache_dtype) == 16 and modern:
        narrow = msgspec.structs.replace(request.settings, kv_cache_dtype="fp8")
        out.append(takes("an FP8 cache (evaluate it)", msgspec.structs.replace(asked, settings=narrow)))
    if not request.model.shape.quantisation.targets and modern:
        narrow = msgspec.structs.replace(request.settings, weights="fp8")
        out.append(takes("FP8 weights (evaluate them)", msgspec.structs.replace(asked, settings=narrow)))
    out.append(_one_lost(best, users))
    if growth > 0 and today is not None:
        out.append(_full(best, users, growth, today))
    return out


def _one_lost(best: Option, users: int) -> WhatIf:
    left = best.replicas - 1
    holds = left * best.plan.users.safe
    if holds >= users:
        return WhatIf("one card lost", best.cards, f"still holds: {holds:,} safe users are left")
    more = best.cards + best.plan.settings.parallel.cards
    text = f"{holds:,} of {users:,} users are left; --spare 1 makes it {counted(more, 'card')}" if holds else "nothing is left"
    return WhatIf("one card lost", more, text if holds else f"{text}; --spare 1 makes it {counted(more, 'card')}")


def _full(best: Option, users: int, growth: float, today: datetime.date) -> WhatIf:
    months = log(best.safe_users / users) / log(1 + growth)
    ahead = datetime.timedelta(days=months * 30.44)
    when = "not within fifty years" if ahead > SOON else f"full on {(today + ahead).isoformat()}, in {months:.1f} months"
    return WhatIf(f"growth of {growth:.0%} a month", best.cards, when)


def replicas_or_ranks(best: Option) -> str:
    """Return why an option runs replicas, or data-parallel ranks inside one engine; empty where there is one of either."""
    if best.plan.settings.parallel.dp > 1:
        return "data-parallel ranks in one engine: attention is copied, the experts are shared, so that no card holds them twice"
    if best.replicas - best.spare < 2:
        return ""
    if best.plan.request.model.shape.experts:
        return "replicas, not data-parallel ranks: each fails and rolls out alone; ranks would share the experts, at one failure for all"
    return "replicas, not data-parallel ranks in one engine: a dense model gains nothing from ranks, and replicas fail and roll out alone"


def engine_advice(users: int, engine: str, shared: bool) -> str:
    """Return which engine fits so many users, in a line."""
    if engine == "ollama" and users > 1:
        return f"Ollama serves one request at a time unless OLLAMA_NUM_PARALLEL is raised: {users:,} users queue; vLLM or SGLang batch them"
    if users <= 1:
        return "for one user or a demo llama.cpp or Ollama are fine; an engine that batches gains nothing"
    if shared:
        return "vLLM, or SGLang (worth a benchmark where prompts share long prefixes)"
    return "vLLM or SGLang for many users; TensorRT-LLM where a fixed model is worth building for"


def _narrowed(option: Option) -> int:
    """Return how far a precision is from what a team has evaluated: an FP8 cache, four-bit weights, weights by rule."""
    made = option.plan
    four = any(target.scheme.bits == 4 for target in made.request.model.shape.quantisation.targets)
    return (made.request.settings.kv_cache_dtype == "fp8") + 2 * four + made.request.model.shape.quantisation.assumed


def _memory(option: Option) -> int:
    return option.cards * option.plan.request.card.memory.best


def _parts(option: Option) -> int:
    p = option.plan.settings.parallel
    return (p.dcp > 1) + (p.dp > 1) + (p.pp > 1) + option.replicas


def picks(order: list[Ranked]) -> dict[str, Ranked]:
    """Return the options that somebody may ask for by name: fewest cards, cheapest (where prices are known), most headroom."""
    out = {"fewest cards": order[0]}
    priced = [entry for entry in order if entry.option.usd_per_hour is not None]
    if priced:
        out["cheapest of those with a price"] = min(priced, key=lambda entry: entry.option.usd_per_hour or 0.0)
    out["most headroom of these"] = max(order, key=lambda entry: (ceil(entry.option.headroom * 100), -entry.option.cards))
    return out
