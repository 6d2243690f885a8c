"""Rules of an engine by release: exact between the oldest and newest known, assumed before, extrapolated after."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.engine import EngineRules, by_capability, newest, parse_engine, rules_for

KNOWN = range(19, 34)


def rules(minor: int) -> EngineRules:
    """Return the rules of vLLM 0.minor."""
    return rules_for("vllm", (0, minor))


@pytest.mark.parametrize(
    ("text", "release"),
    [
        pytest.param("vllm", (0, 33), id="newest"),
        pytest.param("vllm:", (0, 33), id="empty-release"),
        pytest.param("vllm:0.33", (0, 33), id="two-parts"),
        pytest.param("vllm:0.33.0", (0, 33), id="three-parts"),
        pytest.param("vllm:v0.28.1", (0, 28), id="v"),
        pytest.param("VLLM:0.19.1", (0, 19), id="case"),
        pytest.param(" vllm:0.20 ", (0, 20), id="spaces"),
        pytest.param("vllm:0.27.1rc2.dev3", (0, 27), id="a-build"),
        pytest.param("vllm:1.0", (1, 0), id="the-next-major"),
    ],
)
def test_an_engine_and_release_are_read_from_text(text: str, release: tuple[int, int]) -> None:
    """As `--engine` takes them."""
    assert parse_engine(text) == ("vllm", release)


@pytest.mark.parametrize(
    "text",
    [
        *("vllm:0", "vllm:x", "vllm:0.x", "vllm:0.-1", "vllm:..", "vllm:0.99999", "vllm:0.5", "vllm:-1.0"),
        pytest.param("vllm:²³.1", id="superscripts"),
    ],
)
def test_a_release_that_is_none_is_an_input_error(text: str) -> None:
    """No number, or older than any law that we know (the issue names 0.9.2 as the oldest of the tables)."""
    with pytest.raises(InputError) as caught:
        parse_engine(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["vlm:0.33", "gguf", "tritom:1.0", "", ":0.33"])
def test_an_engine_that_is_not_known_is_refused_by_name(text: str) -> None:
    """The hint says what is known."""
    with pytest.raises(UnknownError, match=r"engine .* is not known") as caught:
        parse_engine(text)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Whatever is typed after `--engine`."""
    for given_text in (text, f"vllm:{text}"):
        with contextlib.suppress(TonnageError):
            parse_engine(given_text)


@pytest.mark.parametrize(
    ("minor", "confidence"),
    [(9, "assumed"), (18, "assumed"), (19, "exact"), (26, "exact"), (33, "exact"), (34, "extrapolated"), (99, "extrapolated")],
)
def test_a_release_says_how_sure_its_rules_are(minor: int, confidence: str) -> None:
    """The rows of the engine's own allocator go from 0.19.1 to 0.33.0."""
    assert rules(minor).confidence == confidence
    assert newest("vllm") == (0, 33)


def test_a_newer_release_takes_the_newest_law_and_an_older_one_the_nearest() -> None:
    """Only release and confidence differ."""

    def law(found: EngineRules) -> dict[str, Any]:
        return {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("release", "confidence", "kv_cache_dtypes")}

    assert law(rules(40)) == law(rules(33))
    assert law(rules_for("vllm", (1, 2))) == law(rules(33))
    assert law(rules_for("vllm", (0, 6))) == law(rules(9))


@pytest.mark.parametrize(
    ("field", "since", "before", "after"),
    [
        pytest.param("default_utilization", 20, 0.90, 0.92, id="utilization"),
        pytest.param("graphs_charged", 20, False, True, id="graphs-charged"),
        pytest.param("printed_tokens", 20, "blocks", "requests", id="printed-tokens"),
        pytest.param("batches_in_flight", 26, "one", "all", id="batches-in-flight"),
        pytest.param("hybrid_prefix_caching", 28, False, True, id="prefix-caching-of-hybrids"),
        pytest.param("mamba2_prefix_mode", 28, "all", "align", id="mamba2-mode"),
        pytest.param("null_block_reserved", 29, False, True, id="null-block"),
        pytest.param("large_card_tier", 28, False, True, id="160-gib-tier"),
        pytest.param("multimodal_batch_floor", 22, {}, {"Gemma4ForConditionalGeneration": 2496}, id="gemma-4-batch"),
        pytest.param("state_alignment", 33, {}, {"gdn": {"9.0": 64}}, id="gdn-alignment"),
        pytest.param("wide_head_block", 33, {}, {"9.0": 64}, id="wide-heads"),
    ],
)
def test_a_rule_changes_in_the_release_where_the_engine_changed_it(field: str, since: int, before: object, after: object) -> None:
    """vllm-memory.md, sections 1 to 8: one value up to the release before, another from it on."""
    for minor in KNOWN:
        assert getattr(rules(minor), field) == (after if minor >= since else before), minor


@pytest.mark.parametrize(
    ("minor", "kinds"),
    [
        pytest.param(28, {}, id="none-yet"),
        pytest.param(29, {"flashkda": ["9.0"]}, id="kda-on-hopper"),
        pytest.param(32, {"flashkda": ["9.0"], "mamba2": ["8.0", "8.6", "8.9", "9.0"]}, id="mamba2-everywhere"),
        pytest.param(33, {"flashkda": ["9.0"], "mamba2": ["8.0", "8.6", "8.9", "9.0"], "gdn": ["9.0"]}, id="gdn-on-hopper"),
    ],
)
def test_checkpoint_blocks_by_kind_of_state_and_card(minor: int, kinds: dict[str, list[str]]) -> None:
    """vllm-memory.md section 5: which kinds keep one more state block a sequence, and where."""
    assert rules(minor).state_checkpoints == kinds


@pytest.mark.parametrize(
    ("dtype", "since"),
    [
        pytest.param("fp8", 9, id="fp8"),
        pytest.param("fp8_inc", 11, id="fp8-inc"),
        pytest.param("bfloat16", 11, id="bfloat16"),
        pytest.param("fp8_ds_mla", 11, id="sparse-latent"),
        pytest.param("float16", 18, id="float16"),
        pytest.param("nvfp4", 20, id="nvfp4"),
        pytest.param("int8_per_token_head", 20, id="int8-per-token-head"),
        pytest.param("fp8_per_token_head", 20, id="fp8-per-token-head"),
        pytest.param("int4_per_token_head", 25, id="int4-per-token-head"),
        pytest.param("nvfp4_ds_mla", 30, id="nvfp4-sparse-latent"),
    ],
)
def test_a_cache_dtype_is_known_from_its_release_on(dtype: str, since: int) -> None:
    """vllm-memory.md section 3, the timeline of KV dtypes."""
    for minor in range(9, 34):
        assert (dtype in rules(minor).kv_cache_dtypes) == (minor >= since), minor


@pytest.mark.parametrize(
    ("capability", "value"), [((9, 0), 64), ((8, 9), 16), (None, 16), ((12, 0), 16)], ids=["hopper", "ada", "unknown", "blackwell"]
)
def test_a_rule_by_card_falls_back_to_the_others(capability: tuple[int, int] | None, value: int) -> None:
    """A card that no row covers takes the entry "other"."""
    assert by_capability({"9.0": 64, "other": 16}, capability) == value
    assert by_capability({}, capability) is None
