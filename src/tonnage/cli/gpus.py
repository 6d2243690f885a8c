"""`tonnage gpus`: the cards of the catalogue, and one of them with its sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from tonnage.facts.gpu import Card


@click.command("gpus")
@click.argument("name", required=False)
@click.option("--vendor", help="Only this vendor.")
@click.option("--min-memory", "least", metavar="SIZE", help='Only cards with at least this much memory: "40 GiB".')
@click.option("--facts", type=click.Path(path_type=Path), help="Folder with your own records of cards.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, vendor: str | None, least: str | None, facts: Path | None, as_json: bool) -> int:
    """The cards we know, or one of them: memory as CUDA reports it, bandwidth, formats, sources.

    \b
    tonnage gpus
    tonnage gpus l4
    """
    from tonnage.facts.cards import all_cards, find_card
    from tonnage.report.terminal import table
    from tonnage.units import gib, parse_bytes

    if name:
        choice = find_card(name, facts)
        if as_json:
            click.echo(
                msgspec.json.encode(
                    {"schema": "tonnage.gpu/1", "count": choice.count, "note": choice.note, **msgspec.to_builtins(choice.card)}
                ).decode()
            )
            return 0
        card = choice.card
        click.echo(f"{card.name}  ({card.slug}, {card.vendor} {card.arch})" + (f"  x {choice.count}" if choice.count else ""))
        memory = card.memory
        capability = f"{card.compute_capability[0]}.{card.compute_capability[1]}" if card.compute_capability else "-"
        rows = [
            ("memory", f"{gib(memory.best)} GiB as CUDA reports it ({gib(memory.low)} to {gib(memory.high)}), {memory.confidence}"),
            ("", memory.source),
            ("bandwidth", f"{card.bandwidth_bytes_per_s / 1e9:,.0f} GB/s"),
            ("capability", capability),
            ("formats", ", ".join(card.formats)),
            ("link", f"{card.link_name or card.link}" + (f", {card.link_bytes_per_s / 1e9:,.0f} GB/s" if card.link_bytes_per_s else "")),
            ("TFLOPS", ", ".join(f"{dtype} {rate / 1e12:g}" for dtype, rate in card.flops.items())),
            ("verified", f"{card.verified}; checked {card.checked}"),
            ("also called", ", ".join(card.aliases[:8])),
            *[("conflict", text) for text in card.conflicts],
            *[("source", text) for text in card.source],
            *([("note", choice.note)] if choice.note else []),
        ]
        for row in table(rows):
            click.echo(f"  {row}")
        return 0
    floor = parse_bytes(least, where="--min-memory") if least else 0
    cards = [card for card in all_cards(facts) if card.memory.best >= floor and (not vendor or card.vendor.lower() == vendor.lower())]
    if as_json:
        click.echo(msgspec.json.encode({"schema": "tonnage.gpus/1", "gpus": [msgspec.to_builtins(card) for card in cards]}).decode())
        return 0
    head = ("card", "name", "GiB", "GB/s", "cap.", "memory")
    body = [_row(each) for each in sorted(cards, key=lambda each: (each.vendor, each.memory.best))]
    click.echo("\n".join(table([head, *body], "llrrll")))
    click.echo(f"{len(cards)} cards. Memory is what CUDA reports, not the size on the box.")
    return 0


def _row(card: Card) -> tuple[str, ...]:
    from tonnage.units import gib

    capability = f"{card.compute_capability[0]}.{card.compute_capability[1]}" if card.compute_capability else "-"
    return card.slug, card.name, gib(card.memory.best), f"{card.bandwidth_bytes_per_s / 1e9:,.0f}", capability, card.memory.confidence
