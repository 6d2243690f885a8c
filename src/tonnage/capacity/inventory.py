"""What can be bought: which cards a search proposes, how many share a machine, what they cost, how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.facts.cards import all_cards, find_card
from tonnage.facts.gpu import Card

if TYPE_CHECKING:
    from pathlib import Path

NODE_LIMITS = {"nvlink": 8, "infinity-fabric": 8, "nvlink-bridge": 8, "pcie": 8, "ethernet": 1, "none": 1}
DESKTOP_NODE = 4
"""Cards of one machine where no cloud shape says more: eight on a server board, four in a desktop's slots."""
LEAST_CAPABILITY = (8, 0)
"""The least that a search proposes: BF16 in the card's arithmetic."""


class Cost(msgspec.Struct, frozen=True):
    """What one card costs an hour, and who says so."""

    usd_per_hour: float
    source: str


class Inventory(msgspec.Struct, frozen=True):
    """The cards of a search; `stock` bounds a card's number, by its slug; `prices` are those a user gave, by slug."""

    cards: tuple[Card, ...]
    stock: dict[str, int] = {}
    prices: dict[str, Cost] = {}

    def cost(self, card: Card, together: int = 1) -> Cost | None:
        """Return what a card costs where so many are in one machine: as the user says, else a dated price, else nothing.

        A catalogue price is of an instance: the smallest that holds them is paid whole.
        """
        if card.slug in self.prices:
            return self.prices[card.slug]
        known = [price for price in card.prices if price.date and price.gpus >= together]
        if self.prices or not known:
            return None
        least = min(price.gpus for price in known)
        last = max((price for price in known if price.gpus == least), key=lambda price: price.date)
        return Cost(last.usd_per_hour / together, f"{last.instance or last.provider}, {last.date.split(' ')[0]}")


def proposed(card: Card) -> bool:
    """Return whether a search proposes a card unasked: its memory is known, an engine runs on it, and it is for servers."""
    if card.memory.confidence == "assumed" or card.unified or card.display or card.sliced:
        return False
    if card.vendor == "AMD":
        return card.link == "infinity-fabric"
    return card.vendor == "NVIDIA" and card.compute_capability is not None and card.compute_capability >= LEAST_CAPABILITY


def node_cards(card: Card) -> int:
    """Return how many cards share a machine: the largest cloud shape, else what is usual for its link."""
    shapes = [count for provider in card.cloud.values() for count in provider.values()]
    usual = DESKTOP_NODE if card.display else NODE_LIMITS.get(card.link, 1)
    return max(shapes, default=usual)


def inventory(
    names: str,
    *,
    facts: Path | None = None,
    prices: dict[str, float] | None = None,
    source: str = "",
    stock: dict[str, float] | None = None,
) -> Inventory:
    """Return the cards that a list names ("l4,l40s", "all", or nothing: those in stock, else those worth proposing).

    `prices` (USD an hour, from `source`) and `stock` go by any name of a card. Raises UnknownError: a card nobody knows.
    """
    held = {find_card(name, facts).card.slug: int(value) for name, value in (stock or {}).items()}
    costs = {find_card(name, facts).card.slug: Cost(value, source) for name, value in (prices or {}).items()}
    if not names and held:
        cards = [find_card(slug, facts).card for slug in held]
    elif names in ("", "all"):
        cards = [card for card in all_cards(facts) if proposed(card) or (names == "all" and _runs(card))]
    else:
        cards = [find_card(name.strip(), facts).card for name in names.split(",") if name.strip()]
    if held:
        cards = [card for card in cards if held.get(card.slug)]
    return Inventory(tuple(cards), held, costs)


def _runs(card: Card) -> bool:
    return card.vendor in ("NVIDIA", "AMD") and card.memory.confidence != "assumed" and not card.sliced
