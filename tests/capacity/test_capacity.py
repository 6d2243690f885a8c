"""Which cards to buy: every option is what `plan --gpu` says of it, the order follows its rules, the limits hold."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.capacity.choose import engine_advice, key, picks, ranked, replicas_or_ranks, what_if
from tonnage.capacity.inventory import Cost, Inventory, inventory, node_cards, proposed
from tonnage.capacity.search import Limits, Option, precisions, search
from tonnage.cli.options import number_table
from tonnage.errors import InputError, UnknownError
from tonnage.facts.cards import all_cards, find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.plan import Request, plan
from tonnage.settings import EngineSettings
from tonnage.workload.spec import workload

CARDS = "l4,l40s,a100-80g,h100,h200,b200,mi300x"


def request(model: str, users: int, context: int) -> Request:
    """Return a question without a card."""
    return Request(
        find_model(model),
        find_card("l4").card,
        EngineSettings(),
        workload(users, context),
        rules_for("vllm", (0, 33)),
        overhead_constants(),
    )


def options(model: str, users: int, context: int, cards: str = CARDS, **limits: int) -> list[Option]:
    """Return the options of a question."""
    return search(request(model, users, context), inventory(cards), Limits(**limits))


@pytest.mark.parametrize(
    ("model", "users", "context"),
    [
        ("qwen3-32b", 64, 8_000),
        ("qwen3-32b-fp8", 64, 8_000),
        ("deepseek-v3", 200, 16_000),
        ("gpt-oss-120b", 300, 8_000),
        ("qwen3.6-35b-a3b", 100, 32_000),
        ("kimi-k2-instruct", 50, 32_000),
    ],
)
def test_every_option_is_what_a_plan_says_of_it(model: str, users: int, context: int) -> None:
    """The same card and parallelism, planned alone, admits the same; and the replicas hold the users at the low end."""
    found = options(model, users, context)
    assert found
    for option in found:
        asked = msgspec.structs.replace(option.plan.request, settings=option.plan.request.settings)
        alone = plan(asked)
        assert (alone.users, alone.pool, alone.ledger) == (option.plan.users, option.plan.pool, option.plan.ledger)
        assert alone.fits
        assert option.safe_users >= users
        assert (option.replicas - 1) * option.plan.users.safe < users


@given(users=st.integers(1, 400), spare=st.integers(0, 2))
def test_more_users_never_need_fewer_cards(users: int, spare: int) -> None:
    """On one kind of card, and a spare replica is bought on top."""
    few = ranked(options("qwen3-8b", users, 8_000, "l40s", spare=spare))
    many = ranked(options("qwen3-8b", users + 50, 8_000, "l40s", spare=spare))
    assert few[0].option.cards <= many[0].option.cards
    assert few[0].option.spare == spare and few[0].option.replicas > spare


def test_the_order_follows_its_rules() -> None:
    """Fewest cards first; the chosen one has nothing against it, all others have."""
    order = ranked(options("qwen3-32b", 64, 8_000))
    assert [entry.option.cards for entry in order] == sorted(entry.option.cards for entry in order)
    assert order[0].why_not_better == "" and all(entry.why_not_better for entry in order[1:])
    assert [key(entry.option) for entry in order] == sorted(key(entry.option) for entry in order)
    assert picks(order)["fewest cards"] is order[0]


def test_tensor_parallelism_stays_in_a_machine() -> None:
    """And divides the heads; stages go across."""
    for option in options("deepseek-v3", 200, 16_000):
        parallel, card = option.plan.settings.parallel, option.plan.request.card
        assert parallel.tp <= node_cards(card)
        assert parallel.pp == 1 or parallel.tp == node_cards(card) or parallel.tp == 8


def test_limits_hold() -> None:
    """At most so many cards; a stock bounds its own card."""
    few = search(request("qwen3-32b", 64, 8_000), inventory(CARDS), Limits(cards=2))
    assert few and all(option.cards <= 2 for option in few)
    shelf = Inventory((find_card("l40s").card,), {"l40s": 4})
    assert all(option.cards <= 4 for option in search(request("qwen3-8b", 100, 8_000), shelf, Limits()))


def test_what_cannot_be_planned_is_not_proposed() -> None:
    """No TPU, Gaudi, Jetson, slice or desktop card unasked."""
    names = {card.slug for card in all_cards(None) if proposed(card)}
    assert {"l4", "h100-sxm", "b200", "mi300x"} <= names
    assert not names & {"tpu-v5e", "gaudi3", "thor", "orin-64g", "gb10", "rtx-4090", "p40", "t4"}


def test_prices_and_stock_are_files_of_the_user(tmp_path: Path) -> None:
    """By any name of a card; a typo is an error, and so is a number that is none."""
    prices, stock = tmp_path / "prices.toml", tmp_path / "stock.toml"
    prices.write_text("[usd_per_hour]\nL4 = 0.5\nh100 = 3\n")
    stock.write_text("[in_stock]\nl4 = 8\n")
    shelf = inventory("", prices=number_table(prices, "usd_per_hour"), stock=number_table(stock, "in_stock"))
    assert [card.slug for card in shelf.cards] == ["l4"] and shelf.stock == {"l4": 8}
    cost = shelf.cost(shelf.cards[0])
    assert cost is not None and cost.usd_per_hour == 0.5
    with pytest.raises(UnknownError):
        inventory("", stock={"l5x": 8})
    for text, words in (("l4 = 8\n", "in_stock"), ("[in_stock]\nl4 = -1\n", "-1"), ("[in_stock]\nl4 = 'x'\n", "'x'"), ("[", "TOML")):
        stock.write_text(text)
        with pytest.raises(InputError, match=words):
            number_table(stock, "in_stock")
    with pytest.raises(InputError, match="no such file"):
        number_table(tmp_path / "none.toml", "in_stock")


def test_other_questions_are_answered() -> None:
    """Twice the users take no fewer cards; a spare replica survives a loss; growth ends on a date."""
    shelf = inventory("l40s")
    best = ranked(search(request("qwen3-32b", 64, 8_000), shelf, Limits(spare=1)))[0].option
    answers = {
        entry.what.split(" (")[0]: entry for entry in what_if(best, shelf, Limits(spare=1), growth=0.1, today=datetime.date(2026, 11, 29))
    }
    assert answers["users x 2"].cards >= best.cards
    assert answers["an FP8 cache"].cards <= best.cards
    assert answers["one card lost"].answer.startswith("still holds")
    assert "full on 202" in answers["growth of 10% a month"].answer


def test_engines_are_advised_by_users() -> None:
    """One user needs no batching; sixteen on Ollama queue."""
    assert "llama.cpp" in engine_advice(1, "vllm", False)
    assert "queue" in engine_advice(16, "ollama", False)
    assert "SGLang" in engine_advice(64, "vllm", True)


def test_other_precisions_are_searched_where_asked_for() -> None:
    """Published checkpoints before rules; the question as asked comes first, and its cards are never fewer than with all."""
    asked = request("qwen3-32b", 64, 8_000)
    ways = precisions(asked, "any", "any")
    assert ways[0] is asked and len(ways) == 6
    assert {one.model.name for one in ways} == {"Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-AWQ"}
    shelf = inventory("h100")
    alone = ranked(search(asked, shelf, Limits()))
    every = ranked(option for one in ways for option in search(one, shelf, Limits()))
    assert every[0].option.cards <= alone[0].option.cards
    assert precisions(asked, "checkpoint", "auto") == [asked]


def test_an_unknown_price_is_within_no_budget() -> None:
    """Missing data is unknown, never ok."""
    shelf = Inventory((find_card("l4").card, find_card("h100").card), {}, {"l4": Cost(0.5, "a file")})
    found = search(request("qwen3-8b", 10, 8_000), shelf, Limits(usd_per_hour=4.0))
    assert found and {option.plan.request.card.slug for option in found} == {"l4"}
    assert all((option.usd_per_hour or 0) <= 4.0 for option in found)


def test_replicas_or_ranks_have_a_reason() -> None:
    """Several replicas of a dense model; none where one suffices."""
    many = ranked(options("qwen3-32b", 640, 8_000, "h100"))[0].option
    assert "dense" in replicas_or_ranks(many)
    one = ranked(options("qwen3-8b", 4, 8_000, "h100"))[0].option
    assert replicas_or_ranks(one) == ""
