"""docs/worked-examples.md: the purchase, and the users of one replica, as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.capacity.choose import ranked
from tonnage.capacity.inventory import inventory
from tonnage.capacity.search import Limits, search
from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request
from tonnage.settings import EngineSettings
from tonnage.workload.spec import workload

PAGE = Path(__file__).parents[2] / "docs" / "worked-examples.md"


@pytest.mark.parametrize(
    ("model", "users", "context", "cards", "expected"),
    [
        ("qwen3-32b", 64, 8_000, "1 x MI325X", (85, 85, 84)),
        ("qwen3-32b-fp8", 64, 8_000, "1 x B200", (65, 65, 64)),
        ("deepseek-v3", 200, 16_000, "4 x MI325X", (254, 254, 235)),
        ("gpt-oss-120b", 300, 8_000, "1 x B300", (634, 322, 320)),
        ("qwen3.6-35b-a3b", 100, 32_000, "1 x B200", (141, 127, 126)),
        ("kimi-k2-instruct", 50, 32_000, "8 x B200", (131, 131, 123)),
    ],
)
def test_the_page_says_what_is_chosen(model: str, users: int, context: int, cards: str, expected: tuple[int, int, int]) -> None:
    """And the row of the page holds the same words."""
    request = Request(
        find_model(model),
        find_card("l4").card,
        EngineSettings(),
        workload(users, context),
        rules_for("vllm", (0, 33)),
        overhead_constants(),
    )
    best = ranked(search(request, inventory(""), Limits()))[0].option
    held = best.plan.users
    assert (held.ideal, held.admitted, held.safe) == expected
    assert f"{best.cards} x {best.plan.request.card.slug.upper()}" == cards
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith((f"| {model} ", f"| {model},")))
    assert cards in row and ", ".join(str(count) for count in expected) in row
