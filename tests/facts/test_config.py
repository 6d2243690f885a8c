"""Reading config.json: by any of a field's names, typed, in range, and with a memory of what was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.config import LARGEST, Config

WHERE = "m/config.json"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def config(**values: Any) -> Config:
    """Return a config of these fields."""
    return Config(values, WHERE)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(lambda c: c.integer("hidden_size"), 4096, id="integer"),
        pytest.param(lambda c: c.integer("n_embd", "hidden_size"), 4096, id="second-name"),
        pytest.param(lambda c: c.integer("absent", default=7), 7, id="default"),
        pytest.param(lambda c: c.integer("null", default=7), 7, id="null-is-absent"),
        pytest.param(lambda c: c.integer("whole"), 128, id="128.0-is-whole"),
        pytest.param(lambda c: c.number("theta", default=1.0), 1e6, id="number"),
        pytest.param(lambda c: c.number("hidden_size", default=1.0), 4096.0, id="number-from-integer"),
        pytest.param(lambda c: c.flag("tied"), True, id="flag"),
        pytest.param(lambda c: c.flag("absent"), False, id="flag-default"),
        pytest.param(lambda c: c.text("dtype"), "bfloat16", id="text"),
        pytest.param(lambda c: c.text("absent", default="x"), "x", id="text-default"),
        pytest.param(lambda c: c.texts("kinds"), ("full", "sliding"), id="texts"),
        pytest.param(lambda c: c.texts("absent"), (), id="texts-absent"),
        pytest.param(lambda c: c.integers("list"), (1, 2), id="integers"),
        pytest.param(lambda c: c.integers("commas"), (0, 1, 1), id="integers-in-a-text"),
        pytest.param(lambda c: c.integers("absent", default=[3]), (3,), id="integers-default"),
        pytest.param(lambda c: c.child("inner").integer("depth"), 2, id="child"),
        pytest.param(lambda c: c.child("absent"), None, id="no-child"),
        pytest.param(lambda c: c.has("absent", "tied"), True, id="has-any"),
        pytest.param(lambda c: c.has("null"), False, id="null-is-not-had"),
        pytest.param(lambda c: c.raw("list"), [1, 2], id="raw"),
    ],
)
def test_a_field_is_read_under_any_of_its_names(read: Callable[[Config], object], expected: object) -> None:
    """Null counts as absent, as transformers treats it."""
    values = {
        "hidden_size": 4096, "null": None, "whole": 128.0, "theta": 1e6, "tied": True, "dtype": "bfloat16",
        "kinds": ["full", "sliding"], "list": [1, 2], "commas": "0, 1,1", "inner": {"depth": 2},
    }  # fmt: skip
    assert read(Config(values, WHERE)) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param("x", "'x', not a whole number", id="text"),
        pytest.param("32", "not a whole number", id="digits-in-a-text"),
        pytest.param(True, "True, not a whole number", id="bool"),
        pytest.param(0.5, "not a whole number", id="half"),
        pytest.param(float("nan"), "not a whole number", id="nan"),
        pytest.param(float("inf"), "not a whole number", id="infinity"),
        pytest.param(0, "is 0, which is not between 1", id="zero"),
        pytest.param(-8, "is -8, which is not between 1", id="negative"),
        pytest.param(10**30, "not between", id="huge"),
        pytest.param(1e300, "not between", id="huge-float"),
        pytest.param([32], "not a whole number", id="list"),
        pytest.param({"a": 1}, "not a whole number", id="object"),
        pytest.param("y" * 5000, "...", id="long-text-is-cut"),
    ],
)
def test_a_number_of_the_wrong_kind_is_refused_with_its_place(value: object, said: str) -> None:
    """The message has the field and the value as given, shortened."""
    with pytest.raises(InputError) as caught:
        config(num_attention_heads=value).integer("num_attention_heads")
    assert str(caught.value).startswith(f"{WHERE}: field 'num_attention_heads' is ")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 220


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda c: c.number("f", default=0.0), id="number"),
        pytest.param(lambda c: c.flag("f"), id="flag"),
        pytest.param(lambda c: c.text("f"), id="text"),
        pytest.param(lambda c: c.texts("f"), id="texts"),
        pytest.param(lambda c: c.integers("f"), id="integers"),
        pytest.param(lambda c: c.child("f"), id="child"),
    ],
)
@given(value=JSON)
def test_no_value_breaks_a_reader(read: Callable[[Config], object], value: object) -> None:
    """Whatever JSON stands in a field, the answer is a value or an error of ours."""
    try:
        read(config(f=value))
    except TonnageError as error:
        assert isinstance(error, InputError)


def test_a_number_too_large_for_a_float_is_refused() -> None:
    """JSON has no largest integer; one of 400 digits is an error of the input, not of ours."""
    with pytest.raises(InputError):
        config(factor=10**400).number("factor", default=1.0)


def test_a_missing_field_without_a_default_is_named() -> None:
    """The first of the names is the one a person knows."""
    with pytest.raises(InputError, match="field 'vocab_size' is missing"):
        config().integer("vocab_size", "n_vocab")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("kv_lora_rank", 512, id="latent"),
        pytest.param("sliding_window", 4096, id="window"),
        pytest.param("layer_types", ["x"], id="kinds-of-layers"),
        pytest.param("linear_num_key_heads", 16, id="linear-attention"),
        pytest.param("mamba_d_state", 128, id="mamba"),
        pytest.param("num_local_experts", 8, id="experts"),
        pytest.param("index_head_dim", 128, id="indexer"),
        pytest.param("num_kv_shared_layers", 10, id="shared-caches"),
        pytest.param("attention_chunk_size", 8192, id="chunks"),
        pytest.param("Compress_Ratios", [4], id="any-case"),
    ],
)
def test_a_sizing_field_that_nobody_read_is_refused_by_name(name: str, value: object) -> None:
    """peers.md: refusing an unknown layout by the name of the field that is not understood."""
    made = config(hidden_size=1, **{name: value})
    with pytest.raises(UnknownError, match=f"field '{name}' .* is not understood for SomeForCausalLM") as caught:
        made.refuse_unread("SomeForCausalLM")
    assert "--assume full-attention" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("sliding_window", None, id="null"),
        pytest.param("mamba_d_state", 0, id="zero"),
        pytest.param("layer_types", [], id="empty"),
        pytest.param("use_moe_bias", False, id="false"),
        pytest.param("router_aux_loss_coef", 0.001, id="a-loss"),
        pytest.param("rope_theta", 1e6, id="rope"),
        pytest.param("hidden_act", "silu", id="no-sizing-word"),
    ],
)
def test_a_field_without_effect_on_memory_is_let_through(name: str, value: object) -> None:
    """Nothing set, a loss, a schedule: not worth a refusal."""
    config(**{name: value}).refuse_unread("SomeForCausalLM")


def test_reading_and_ignoring_mark_a_field_as_understood() -> None:
    """`filled` shares the memory of what was read."""
    made = config(kv_lora_rank=512, sliding_window=4096, q_lora_rank=1)
    made.integer("kv_lora_rank")
    made.ignore("sliding_window")
    made.filled({"vocab_size": 1}).integer("q_lora_rank")
    made.refuse_unread("SomeForCausalLM")


@given(st.integers())
def test_an_integer_is_taken_exactly_within_its_range(value: int) -> None:
    """1 to 2^40 comes back as it is; everything else is refused."""
    try:
        assert config(n=value).integer("n") == value
        assert 1 <= value <= LARGEST
    except InputError:
        assert not 1 <= value <= LARGEST
