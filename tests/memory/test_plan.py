"""A plan as a whole: the ledger sums, the verdict follows from it, and the laws that every plan obeys."""

from __future__ import annotations

from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.facts.cards import find_card
from tonnage.facts.catalog import find_model
from tonnage.facts.engine import rules_for
from tonnage.facts.overheads import overhead_constants
from tonnage.memory.changes import changes
from tonnage.memory.explain import explain
from tonnage.memory.plan import MemoryPlan, Request, plan
from tonnage.report.plan_value import plan_value
from tonnage.settings import EngineSettings, Parallelism
from tonnage.workload.spec import Workload

MODELS = (
    "qwen3.5-4b",
    "qwen3-8b",
    "gpt-oss-20b",
    "gemma-3-27b-it",
    "deepseek-v2-lite",
    "granite-4.0-h-small",
    "qwen3-30b-a3b-fp8",
    "phi-4-mini",
)
CARDS = ("l4", "a100-80g", "h100", "rtx-4090", "t4", "b200", "mi300x", "l40s")
RELEASES = ((0, 12), (0, 19), (0, 20), (0, 27), (0, 28), (0, 33), (0, 40))


def request(
    model: str = "qwen3.5-4b", card: str = "l4", users: int = 16, context: int = 16_000, shared: int = 0, **fields: object
) -> Request:
    """Return a request with vLLM 0.33's rules unless a release is among the fields."""
    settings = msgspec.convert(fields, EngineSettings) if not fields else msgspec.structs.replace(EngineSettings(), **fields)
    rules = rules_for("vllm", settings.release)
    load = Workload(users, context, shared_prefix_tokens=shared)
    return Request(find_model(model), find_card(card).card, settings, load, rules, overhead_constants())


def made(model: str = "qwen3.5-4b", card: str = "l4", **fields: object) -> MemoryPlan:
    """Return the plan of such a request."""
    return plan(request(model, card, **fields))  # type: ignore[arg-type]


@given(st.sampled_from(MODELS), st.sampled_from(CARDS), st.sampled_from(RELEASES), st.sampled_from([1024, 8192, 24_000]))
def test_the_ledger_sums_to_the_card(model: str, card: str, release: tuple[int, int], context: int) -> None:
    """Whatever the model, card and release: every byte that CUDA reports is on a line, once."""
    result = made(model, card, context=context, release=release)
    assert sum(entry.bytes for entry in result.ledger) == result.card_bytes
    assert result.requested_bytes == ceil(result.card_bytes * (result.settings.gpu_memory_utilization or 0))


@given(st.sampled_from(MODELS), st.sampled_from(CARDS), st.sampled_from(RELEASES))
def test_bands_hold_their_numbers(model: str, card: str, release: tuple[int, int]) -> None:
    """low <= best <= high on every line and on the pool; safe users are never more than admitted ones."""
    result = made(model, card, release=release)
    assert all(entry.low <= entry.bytes <= entry.high for entry in result.ledger)
    assert result.pool.low_bytes <= result.pool.bytes <= result.pool.high_bytes
    assert result.users.safe <= result.users.admitted


@given(st.sampled_from(MODELS), st.sampled_from([2048, 8192, 16_000]), st.integers(1, 64))
def test_more_users_or_longer_contexts_never_fit_better(model: str, context: int, users: int) -> None:
    """The users admitted do not depend on the users asked for, and fall with the context."""
    few = made(model, "h100", context=context, users=users, max_model_len=32_768)
    many = made(model, "h100", context=context, users=users + 8, max_model_len=32_768)
    longer = made(model, "h100", context=context * 2, users=users, max_model_len=32_768)
    assert few.users.admitted == many.users.admitted
    assert longer.users.admitted <= few.users.admitted
    assert not (many.fits and not few.fits)


@given(st.sampled_from(MODELS), st.sampled_from([4096, 16_000]))
def test_the_pool_does_not_depend_on_the_length_limit(model: str, context: int) -> None:
    """max_model_len decides who is admitted, not what is left."""
    short, long = made(model, "h100", context=context, max_model_len=16_384), made(model, "h100", context=context, max_model_len=32_768)
    assert short.pool.bytes == long.pool.bytes


@given(st.sampled_from(MODELS), st.floats(0.5, 0.9))
def test_more_of_the_card_never_admits_fewer(model: str, share: float) -> None:
    """A higher utilization leaves a larger pool."""
    low, high = made(model, "h100", gpu_memory_utilization=share), made(model, "h100", gpu_memory_utilization=share + 0.05)
    assert low.pool.bytes <= high.pool.bytes
    assert low.users.admitted <= high.users.admitted


def test_the_demo_fits() -> None:
    """The published example: 16 users at 24,000 tokens in FP8 on an L4; cache a token and state by hand from the config."""
    result = made(context=24_000, weights="fp8", kv_cache_dtype="fp8")
    assert result.fits
    assert result.cost.per_token == 16_384
    assert result.cost.state_bytes - result.cost.conv_bytes == 48 * 2**20
    assert result.allocation.block_size == 1056
    assert result.users.ideal >= result.users.admitted >= 16


@pytest.mark.parametrize(
    ("model", "card", "count", "users", "context"),
    [
        pytest.param("qwen3-32b", "l4", 2, 1, 2000, id="qwen3-32b-bf16-on-2-l4"),
        pytest.param("qwen3.6-35b-a3b-fp8", "l4", 1, 1, 2000, id="moe-by-active-parameters"),
        pytest.param("deepseek-v3", "h100", 1, 1, 2000, id="deepseek-v3-on-one-h100"),
    ],
)
def test_what_others_emit_as_a_deployment_does_not_fit(model: str, card: str, count: int, users: int, context: int) -> None:
    """Weights alone are larger than the budget (peers.md, mission.md 1): no pool, and a shortfall."""
    result = made(model, card, users=users, context=context, parallel=Parallelism(tp=count))
    assert not result.fits
    assert result.pool.bytes < 0
    assert result.shortfall_bytes > 0


def test_deepseek_v3_on_eight_h200_before_overhead() -> None:
    """44 users at 16,000 tokens at utilization 0.90, 46 or 47 at 0.92, when overhead is left out (peers.md)."""
    for share, expected in ((0.90, {44}), (0.92, {46, 47})):
        result = made("deepseek-v3", "h200", users=1, parallel=Parallelism(tp=8), gpu_memory_utilization=share)
        weights = next(entry.bytes for entry in result.ledger if entry.label == "weights")
        assert (result.requested_bytes - weights) // result.cost.sequence_bytes(16_000) in expected


def test_a_shared_prefix_is_stored_once() -> None:
    """With prefix caching half a context in common lets more users in; without, none more."""
    alone, shared = made("qwen3-8b", "h100", context=8000), made("qwen3-8b", "h100", context=8000, shared=4000)
    off = made("qwen3-8b", "h100", context=8000, shared=4000, enable_prefix_caching=False)
    assert shared.users.admitted > alone.users.admitted
    assert off.users.admitted == alone.users.admitted


def test_draft_layers_cost_cache() -> None:
    """Multi-token prediction adds the draft layer's cache and weights (vllm-memory.md 6)."""
    plain, drafted = made(context=16_000), made(context=16_000, num_speculative_tokens=1)
    assert drafted.cost.per_token == plain.cost.per_token * 9 // 8
    assert drafted.users.admitted < plain.users.admitted


def test_graphs_are_charged_from_0_20_on() -> None:
    """Before 0.20 they are captured into what is kept back, and the line says so."""
    old, new = made("qwen3-8b", "h100", release=(0, 19)), made("qwen3-8b", "h100", release=(0, 20))
    assert "CUDA graphs" not in {entry.label for entry in old.ledger}
    assert "CUDA graphs" in {entry.label for entry in new.ledger}
    assert "uncharged" in old.ledger[-1].why


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"card": "a100-80g", "model": "qwen3-30b-a3b-fp8"}, "FP8 weights on", id="fp8-before-8.9"),
        pytest.param({"gpu_memory_utilization": 0.97}, "no headroom", id="utilization"),
        pytest.param({"model": "qwen3-30b-a3b-fp8", "card": "h100"}, "experts are loaded", id="active-parameters"),
        pytest.param({"model": "phi-4", "card": "h100", "context": 20_000}, "beyond the model's", id="context-above-model"),
        pytest.param({"card": "rtx-4090"}, "display", id="display"),
        pytest.param({"card": "gb10"}, "operating system and its page cache", id="unified"),
        pytest.param({"kv_cache_dtype": "fp8"}, "change of model", id="fp8-cache"),
    ],
)
def test_warnings(fields: dict[str, object], words: str) -> None:
    """Each mistake that people make is named."""
    assert any(words in text for text in made(**fields).warnings)  # type: ignore[arg-type]


def test_the_value_carries_the_contract() -> None:
    """Every field that checks from outside read is there, and bytes are integers."""
    result = made(context=24_000, weights="fp8", kv_cache_dtype="fp8")
    value = plan_value(result, changes(result))
    fields = "fits model card settings card_bytes ledger pool kv_bytes_per_token state_bytes_per_sequence per_user users"
    assert {*fields.split(), "rules_of_thumb", "warnings", "changes"} <= set(value)
    assert value["schema"] == "tonnage.plan/1"
    assert all(isinstance(entry[key], int) for entry in value["ledger"] for key in ("bytes", "low", "high"))
    assert {"label", "bytes", "low", "high", "confidence", "why"} == set(value["ledger"][0])
    assert {"bytes", "low_bytes", "high_bytes", "blocks", "tokens"} <= set(value["pool"])
    assert {"context_tokens", "ideal_bytes", "admitted_bytes"} <= set(value["per_user"])
    assert set(value["users"]) == {"ideal", "admitted", "safe"}
    assert [rule["name"] for rule in value["rules_of_thumb"]] == ["guide", "reference", "worked-example"]
    assert msgspec.json.decode(msgspec.json.encode(value)) == value


def test_the_worked_example_stands_beside_the_answer() -> None:
    """47 users in FP8 and 18 in BF16 at 16,000 tokens on an L4, by the example's own arithmetic."""
    fp8, bf16 = made(weights="fp8", kv_cache_dtype="fp8"), made()
    for result, expected in ((fp8, 47), (bf16, 18)):
        rules = {rule["name"]: rule["users"] for rule in plan_value(result, ())["rules_of_thumb"]}
        assert rules["worked-example"] == expected


def test_changes_are_gains_and_end_with_the_least() -> None:
    """What would help most comes first, and nothing is listed that does not help."""
    result = made("gemma-3-27b-it", "h100", context=16_000)
    gains = [change.users for change in changes(result)]
    assert gains == sorted(gains, reverse=True)
    assert all(users > result.users.admitted for users in gains)


@pytest.mark.parametrize("model", MODELS)
def test_every_formula_can_be_shown(model: str) -> None:
    """--explain has lines for the budget, the pages and the users of every kind of model."""
    text = "\n".join(explain(made(model, "h100")))
    for words in ("requested = ceil(", "pool = requested", "bytes a block =", "admitted users = floor("):
        assert words in text
