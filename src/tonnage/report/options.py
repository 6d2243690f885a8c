"""Options to buy, as a screen and as the value of `--json`."""

from __future__ import annotations

from typing import Any

from tonnage.capacity.choose import Ranked, WhatIf, arrangement, best_of_cards, picks, replicas_or_ranks
from tonnage.report.plan_value import plan_value
from tonnage.report.terminal import paint, table, wrapped
from tonnage.units import counted

SCHEMA = "tonnage.options/1"


def option_value(entry: Ranked) -> dict[str, Any]:
    """Return an option as the plan of one replica, with what is bought."""
    option = entry.option
    p = option.plan.settings.parallel
    return {
        **plan_value(option.plan, ()),
        "cards": option.cards,
        "cards_per_replica": p.cards,
        "replicas": option.replicas,
        "spare_replicas": option.spare,
        "safe_users": option.safe_users,
        "users_asked": option.users,
        "parallelism": {"tp": p.tp, "pp": p.pp, "dp": p.dp, "dcp": p.dcp, "ep": p.expert},
        "usd_per_hour": option.usd_per_hour,
        "price_source": option.cost.source if option.cost else "",
        "why": entry.why,
        "why_not_better": entry.why_not_better,
    }


def options_value(order: list[Ranked], answers: list[WhatIf], advice: str) -> dict[str, Any]:
    """Return the search as plain values: the chosen option, all others behind it, and the other questions."""
    return {
        "schema": SCHEMA,
        "fits": bool(order),
        "chosen": option_value(order[0]) if order else None,
        "options": [option_value(entry) for entry in order],
        "what_if": [{"what": answer.what, "cards": answer.cards, "answer": answer.answer} for answer in answers],
        "engine_advice": advice,
        "spread_advice": replicas_or_ranks(order[0].option) if order else "",
    }


def options_text(
    order: list[Ranked], answers: list[WhatIf], advice: str, users: int, model: str, also: str, *, width: int = 80, colour: bool = False
) -> str:
    """Return the screen of a search; `model` and `also` are how the next command names it, and its other options."""
    best = order[0].option
    made = best.plan
    name = made.request.card.name
    head = paint(f"Buy {best.cards} x {name}", "green", colour)
    cost = f" {best.usd_per_hour:,.2f} USD an hour ({best.cost.source})." if best.usd_per_hour is not None and best.cost else ""
    tokens = counted(made.request.workload.context_tokens, "token")
    text = f"{head}: {order[0].why}, for {counted(users, 'user')} at {tokens}.{cost}"
    precision = f"{made.request.model.name}, {made.weights_label} weights, {made.cache_dtype} cache, {made.settings.release_name}"
    sections = [
        [*wrapped(text, width + (9 if colour else 0)), *wrapped(precision, width)],
        _rows(best_of_cards(order)[:8], width),
        _named(order, width),
        ["What if:", *(line for answer in answers for line in wrapped(f"  {answer.what}: {answer.answer}", width, "", "    "))],
        [
            *wrapped(f"engine: {advice}", width, "", "  "),
            *(wrapped(f"spread: {spread}", width, "", "  ") if (spread := replicas_or_ranks(best)) else []),
        ],
        [line for text in made.warnings for line in wrapped(f"warning: {text}", width, "", "  ")],
        wrapped(
            f"next: the ledger of one replica: tonnage plan {model} {_flags(best)}{also}",
            width,
            "",
            "  ",
        ),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _flags(best: Any) -> str:
    workload, settings = best.plan.request.workload, best.plan.settings
    p = settings.parallel
    flags = f"--gpu {best.plan.request.card.slug} --users {workload.users} --context {workload.context_tokens} --tp {p.tp}"
    for word, count in (("pp", p.pp), ("dp", p.dp), ("dcp", p.dcp)):
        flags += f" --{word} {count}" if count > 1 else ""
    asked = best.plan.request.settings
    flags += f" --weights {asked.weights}" if asked.weights != "checkpoint" else ""
    flags += f" --kv {asked.kv_cache_dtype}" if asked.kv_cache_dtype != "auto" else ""
    return flags + (" --ep" if p.expert else "")


def _rows(entries: list[Ranked], width: int) -> list[str]:
    several = len({precision(entry) for entry in entries}) > 1
    priced = any(entry.option.usd_per_hour is not None for entry in entries)
    rows = [("cards", "replicas of", *(("precision",) if several else ()), "safe users", *(("USD/h",) if priced else ()), "why not")]
    for entry in entries:
        option = entry.option
        price = "-" if option.usd_per_hour is None else f"{option.usd_per_hour:,.2f}"
        name = f"{option.cards} x {option.plan.request.card.name}"
        told = (precision(entry),) if several else ()
        cells = (name, f"{option.replicas} x {arrangement(option)}", *told, f"{option.safe_users:,}", *((price,) if priced else ()))
        rows.append((*cells, entry.why_not_better or "chosen"))
    align = "ll" + "l" * several + "r" + "r" * priced + "l"
    lines = table(rows, align)
    if all(len(line) <= width for line in lines):
        return lines
    short = table([row[:-1] for row in rows], align[:-1])  # the reason below its row, where it does not stand beside it
    return [text for line, row in zip(short, rows, strict=True) for text in (line[:width], *wrapped(row[-1], width, "    "))]


def precision(entry: Ranked) -> str:
    """Return the weights and the cache of an option, in short."""
    made = entry.option.plan
    assumed = "?" if made.request.model.shape.quantisation.assumed else ""
    cache = " + FP8 cache" if made.cache_dtype.startswith("fp8") else ""
    return f"{made.weights_label}{assumed}{cache}"


def _named(order: list[Ranked], width: int) -> list[str]:
    out = []
    if len(order) > 1:
        second = next((entry for entry in best_of_cards(order)[1:]), order[1])
        out += wrapped(f"Runner-up: {second.option.cards} x {second.option.plan.request.card.name}: {second.why_not_better}.", width)
    for name, entry in picks(order).items():
        if entry is not order[0]:
            price = entry.option.usd_per_hour
            paid = f", {price:,.2f} USD an hour" if price is not None else ""
            out += wrapped(f"{name.capitalize()}: {entry.option.cards} x {entry.option.plan.request.card.name}, {entry.why}{paid}.", width)
    return out
