"""The page for the budget review: question, answer, options, ledger, how sure, what would change it, sources.

One list of blocks (headings, paragraphs, tables, the ledger's bar), written as Markdown or as one HTML file that needs
nothing else and prints well.
"""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from tonnage.report.chart import document
from tonnage.units import counted, gib, size

HOURS_A_MONTH = 730
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2", "#97bbf5", "#9498a0")


class Block(msgspec.Struct, frozen=True):
    """A part of the page: a heading and paragraphs, a table (its first row the head), or the bar of a ledger."""

    heading: str = ""
    paragraphs: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    bar: tuple[tuple[str, int], ...] = ()


def page(value: dict[str, Any]) -> tuple[str, list[Block]]:
    """Return the title and blocks of a kept plan or search (`plan --out`), already checked to be one."""
    chosen = value.get("chosen", value)
    model, workload = chosen["model"]["name"], chosen["workload"]
    replicas = int(chosen.get("replicas", 1))
    users = int(chosen.get("users_asked", workload["users"]))
    title = f"{model} for {counted(users, 'user')}"
    blocks = [
        Block("Question", (f"How many cards does it take to serve {counted(users, 'user')} of {model} at once, "
                           f"each with {counted(int(workload['context_tokens']), 'token')} of context?",)),
        Block("Answer", tuple(_answer(chosen, users, replicas))),
        *([Block("Options", (), _options(value["options"]))] if value.get("options") else []),
        Block("Memory of one card", (f"The lines sum to the {gib(chosen['card_bytes'])} GiB that CUDA reports.",),
              _ledger(chosen), tuple((line["label"], max(0, int(line["bytes"]))) for line in chosen["ledger"])),
        Block("How sure", tuple(_how_sure(chosen))),
        *([Block("What would change the answer", (), _changes(value, chosen))] if _changes(value, chosen) else []),
        Block("Sources", tuple(_sources(chosen))),
    ]  # fmt: skip
    return title, blocks


def _answer(chosen: dict[str, Any], users: int, replicas: int) -> list[str]:
    cards = int(chosen.get("cards", 1))
    held = chosen["users"]
    verb = "hold" if cards > 1 else "holds"
    first = f"{cards} x {chosen['card']['name']}" + (f" in {counted(replicas, 'replica')}" if replicas > 1 else "")
    out = [
        f"{first} {verb} them." if chosen["fits"] else f"{first} do not hold them as planned.",
        f"One replica admits {held['admitted']:,} users by the best estimate and {held['safe']:,} at the low end of what memory is left; "
        f"the textbook formula says {held['ideal']:,}.",
    ]
    price = chosen.get("usd_per_hour")
    if price is not None:
        a_month = price * HOURS_A_MONTH
        source = f" ({chosen['price_source']})" if chosen.get("price_source") else ""
        out.append(f"{price:,.2f} USD an hour{source}, {a_month:,.0f} USD a month, {a_month / users:,.2f} USD for each user and month.")
    return out


def _options(options: list[dict[str, Any]]) -> tuple[tuple[str, ...], ...]:
    seen: dict[str, dict[str, Any]] = {}
    for option in options:
        seen.setdefault(option["card"]["slug"], option)
    rows = [("cards", "arrangement", "safe users", "USD an hour", "why not")]
    for option in list(seen.values())[:12]:
        price = option.get("usd_per_hour")
        rows.append(
            (
                f"{option['cards']} x {option['card']['name']}",
                option["why"],
                f"{option['safe_users']:,}",
                "-" if price is None else f"{price:,.2f}",
                option["why_not_better"] or "chosen",
            )
        )
    return tuple(rows)


def _ledger(chosen: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    rows = [("line", "GiB", "low to high", "confidence", "why")]
    for line in chosen["ledger"]:
        rows.append((line["label"], gib(line["bytes"]), f"{gib(line['low'])} to {gib(line['high'])}", line["confidence"], line["why"]))
    return tuple(rows)


def _how_sure(chosen: dict[str, Any]) -> list[str]:
    pool = chosen["pool"]
    words = {
        "exact": "arithmetic",
        "read": "read from a file or an engine",
        "measured": "inside what measured starts support",
        "extrapolated": "a law outside its measured rows",
        "assumed": "a stated assumption",
    }
    out = [f"The pool is {size(pool['bytes'])} ({size(pool['low_bytes'])} to {size(pool['high_bytes'])}), {pool['confidence']}."]
    used = [word for word in words if any(line["confidence"] == word for line in chosen["ledger"])]
    out.append("; ".join(f"{word}: {words[word]}" for word in used) + ".")
    return out + [f"Warning: {text}" for text in chosen.get("warnings", ())]


def _changes(value: dict[str, Any], chosen: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    if value.get("what_if"):
        return (("what if", "answer"), *((entry["what"], entry["answer"]) for entry in value["what_if"]))
    changes = chosen.get("changes", [])
    return (("change", "users admitted"), *((entry["what"], f"{entry['users']:,}") for entry in changes)) if changes else ()


def _sources(chosen: dict[str, Any]) -> list[str]:
    card, settings = chosen["card"], chosen["settings"]
    out = [
        f"Card: {card['name']}, {card.get('source') or 'catalogue'} ({card.get('confidence', '')}).",
        f"Engine: {settings['engine']} {settings['release']}, rules read in its code, overhead from measured starts.",
        "Written by tonnage from plan.json; `tonnage plan --explain` shows every formula with its numbers.",
    ]
    return out + [f"Note: {text}" for text in chosen["model"].get("notes", ())]


def markdown(title: str, blocks: list[Block]) -> str:
    """Return the page as Markdown."""
    out = [f"# {title}", ""]
    for block in blocks:
        out += [f"## {block.heading}", "", *(part for text in block.paragraphs for part in (text, ""))]
        if block.table:
            head, *rows = block.table
            out += [_row(head), _row(("---",) * len(head)), *map(_row, rows), ""]
    return "\n".join(out).rstrip() + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def html(title: str, blocks: list[Block]) -> str:
    """Return the page as one HTML file."""
    body = [f"<h1>{escape(title)}</h1>"]
    for block in blocks:
        body.append(f"<h2>{escape(block.heading)}</h2>")
        body += [f"<p>{escape(text)}</p>" for text in block.paragraphs]
        if block.bar:
            body.append(_svg(block.bar))
        if block.table:
            head, *rows = block.table
            body.append(
                "<table><thead>" + _cells("th", head) + "</thead><tbody>" + "".join(_cells("td", row) for row in rows) + "</tbody></table>"
            )
    return document(title, body, STYLE)


def _cells(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _svg(bar: tuple[tuple[str, int], ...]) -> str:
    """Return the ledger to scale, with its legend below."""
    whole, x, parts, legend = sum(amount for _, amount in bar) or 1, 0.0, [], []
    for index, (label, amount) in enumerate(bar):
        width, colour = 1000 * amount / whole, COLOURS[index % len(COLOURS)]
        parts.append(f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="40" fill="{colour}"><title>{escape(label)}</title></rect>')
        legend.append(f'<span><i style="background:{colour}"></i>{escape(label)} {gib(amount)} GiB</span>')
        x += width
    drawn = f'<svg viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label="memory of one card">{"".join(parts)}</svg>'
    return f'{drawn}<p class="legend">{" ".join(legend)}</p>'


STYLE = """h2 { margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #ddd; }
svg { height: 40px; }
@media print { table, svg { break-inside: avoid; } }
"""
