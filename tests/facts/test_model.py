"""config.json -> layers, caches and parameters: published totals, refusals by name, and configs that are broken at random."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.catalog import MODELS, all_names
from tonnage.facts.families import known
from tonnage.facts.model import read_model
from tonnage.facts.shape import IndexCache, KVCache, LatentCache, ModelShape, StateCache
from tonnage.memory.kv import context_cost
from tonnage.memory.weights import checkpoint_bytes

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_PARAMS = 8_030_261_248


@cache
def record(name: str) -> dict[str, Any]:
    """Return a catalogue record."""
    loaded: dict[str, Any] = json.loads((MODELS / f"{name.replace('/', '--', 1)}.json").read_bytes())
    return loaded


def llama(**changes: Any) -> dict[str, Any]:
    """Return Llama-3.1-8B's config with fields changed; a field set to ... is left out."""
    return {key: value for key, value in {**LLAMA, **changes}.items() if value is not ...}


EXACT = [name for name in all_names() if record(name).get("params_check") == "exact"]


def test_the_catalogue_has_all_its_exact_records() -> None:
    """The catalogue's README counts 162 models whose formula equals the published total."""
    assert len(EXACT) == 162


@pytest.mark.parametrize("name", EXACT)
def test_parameters_equal_the_published_total(name: str) -> None:
    """`safetensors.total` of the hub, from the config alone, without what the catalogue adds for unexplained rests."""
    found = record(name)
    assert read_model(found["config"], name=name).params_total == found["facts"]["params_total"]["value"]


@pytest.mark.parametrize(
    ("name", "active"),
    [
        pytest.param("openai/gpt-oss-120b", 5.71e9, id="gpt-oss-120b"),
        pytest.param("Qwen/Qwen3-30B-A3B", 3.35e9, id="qwen3-30b-a3b"),
        pytest.param("deepseek-ai/DeepSeek-V3", 37.55e9, id="deepseek-v3"),
        pytest.param("mistralai/Mixtral-8x7B-Instruct-v0.1", 12.88e9, id="mixtral-8x7b"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 8.03e9, id="dense-is-all-active"),
    ],
)
def test_active_parameters_leave_unselected_experts_and_drafts_out(name: str, active: float) -> None:
    """The catalogue's README: 5.71B for gpt-oss-120b, embeddings included; the others by the same rule."""
    assert read_model(record(name)["config"]).params_active == pytest.approx(active, rel=0.002)


def test_every_active_count_of_the_catalogue_is_ours() -> None:
    """`facts.params_active` where the total is exact: total less unselected experts and draft layers."""
    for name in EXACT:
        stated = record(name)["facts"].get("params_active")
        if stated is not None:
            assert read_model(record(name)["config"]).params_active == stated["value"], name


def test_every_record_of_the_catalogue_is_read_or_refused_by_name() -> None:
    """One record has no config at all: Mistral-Large-3, whose text was not found."""
    refused = []
    for name in all_names():
        try:
            shape = read_model(record(name)["config"], name=name)
            assert shape.layers and shape.params_total > 0
        except TonnageError:
            refused.append(name)
    assert refused == ["mistralai/Mistral-Large-3-675B-Instruct-2512"]


@pytest.mark.parametrize(
    ("changes", "params", "kv_heads", "head_dim"),
    [
        pytest.param({}, LLAMA_PARAMS, 8, 128, id="as-published"),
        pytest.param({"num_key_value_heads": ...}, LLAMA_PARAMS + 32 * 2 * 4096 * 3072, 32, 128, id="kv-heads-absent-is-multi-head"),
        pytest.param({"num_key_value_heads": None}, LLAMA_PARAMS + 32 * 2 * 4096 * 3072, 32, 128, id="kv-heads-null"),
        pytest.param({"head_dim": None}, LLAMA_PARAMS, 8, 128, id="head-dim-null"),
        pytest.param({"head_dim": 128.0}, LLAMA_PARAMS, 8, 128, id="head-dim-128.0"),
        pytest.param({"head_dim": 64}, LLAMA_PARAMS - 32 * (2 * 4096 * 2048 + 2 * 4096 * 512), 8, 64, id="head-dim-of-its-own"),
        pytest.param({"tie_word_embeddings": True}, LLAMA_PARAMS - 128256 * 4096, 8, 128, id="tied"),
        pytest.param({"tie_word_embeddings": None}, LLAMA_PARAMS, 8, 128, id="tie-null-is-the-family-default"),
        pytest.param({"architectures": ["LlamaForCausalLM", "Other"]}, LLAMA_PARAMS, 8, 128, id="first-architecture"),
        pytest.param({"quantization_config": {}}, LLAMA_PARAMS, 8, 128, id="empty-quantisation"),
        pytest.param({"attention_bias": True}, LLAMA_PARAMS + 32 * (4096 + 2048 + 4096), 8, 128, id="attention-bias"),
        pytest.param({"mlp_bias": True}, LLAMA_PARAMS + 32 * (2 * 14336 + 4096), 8, 128, id="mlp-bias"),
    ],
)
def test_odd_but_legal_configs_are_read_as_the_library_reads_them(
    changes: dict[str, Any], params: int, kv_heads: int, head_dim: int
) -> None:
    """Llama-3.1-8B's 8,030,261,248 with one field changed; the difference by hand, as transformers' LlamaConfig has it."""
    shape = read_model(llama(**changes))
    assert (shape.params_total, shape.kv_heads, shape.head_dim) == (params, kv_heads, head_dim)


def test_a_text_config_is_read_inside_and_out() -> None:
    """A multimodal fine-tune nests its decoder; the dtype may stand outside."""
    shape = read_model({"architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "text_config": llama(torch_dtype=...)})
    assert (shape.params_total, shape.dtype) == (LLAMA_PARAMS, "float16")


@pytest.mark.parametrize(
    ("config", "params"),
    [
        pytest.param(
            {"architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
             "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
             "num_experts": 60, "num_experts_per_tok": 4, "decoder_sparse_step": 1, "vocab_size": 151936, "max_position_embeddings": 8192,
             "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": False, "tie_word_embeddings": False},
            14_315_784_192, id="qwen1.5-moe-a2.7b",
        ),
        pytest.param(
            {"architectures": ["MistralForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
             "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768,
             "sliding_window": 4096},
            7_241_732_096, id="mistral-7b-v0.1",
        ),
        pytest.param(
            {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768,
             "tie_word_embeddings": True},
            494_032_768, id="qwen2.5-0.5b",
        ),
    ],
)  # fmt: skip
def test_models_outside_the_catalogue_have_their_published_totals(config: dict[str, Any], params: int) -> None:
    """`safetensors.total` of the hub for Qwen1.5-MoE-A2.7B and Mistral-7B-v0.1; Qwen2.5-0.5B as in the catalogue."""
    assert read_model(config).params_total == params


@pytest.mark.parametrize(
    ("name", "full", "windowed", "latent", "state", "other"),
    [
        pytest.param("Qwen/Qwen3.5-4B", 8, 0, 0, 24, 0, id="qwen3.5-4b"),
        pytest.param("openai/gpt-oss-20b", 12, 12, 0, 0, 0, id="gpt-oss-20b"),
        pytest.param("google/gemma-3-27b-it", 10, 52, 0, 0, 0, id="gemma-3-27b"),
        pytest.param("meta-llama/Llama-4-Scout-17B-16E-Instruct", 12, 36, 0, 0, 0, id="scout"),
        pytest.param("deepseek-ai/DeepSeek-V3", 0, 0, 61, 0, 0, id="deepseek-v3"),
        pytest.param("deepseek-ai/DeepSeek-V3.2", 0, 0, 61, 0, 61, id="deepseek-v3.2"),
        pytest.param("zai-org/GLM-5.2", 0, 0, 78, 0, 21, id="glm-5.2-shares-its-indexers"),
        pytest.param("moonshotai/Kimi-Linear-48B-A3B-Instruct", 0, 0, 7, 20, 0, id="kimi-linear"),
        pytest.param("tiiuae/Falcon-H1-7B-Instruct", 44, 0, 0, 44, 0, id="falcon-h1-has-both-in-a-layer"),
    ],
)
def test_layers_by_kind(name: str, full: int, windowed: int, latent: int, state: int, other: int) -> None:
    """vllm-memory.md section 4, and the layer lists of the published configs."""
    caches = read_model(record(name)["config"]).caches
    counts = (
        sum(isinstance(cache, KVCache) and cache.kind == "full" for cache in caches),
        sum(isinstance(cache, KVCache) and cache.kind != "full" for cache in caches),
        sum(isinstance(cache, LatentCache) for cache in caches),
        sum(isinstance(cache, StateCache) for cache in caches),
        sum(isinstance(cache, IndexCache) for cache in caches),
    )
    assert counts == (full, windowed, latent, state, other)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(llama(architectures=["GalaxyForCausalLM"]), "field 'architectures' holds 'GalaxyForCausalLM'", id="architecture"),
        pytest.param(llama(architectures=..., model_type="llama"), "field 'architectures' is missing", id="model-type-alone"),
        pytest.param(llama(kv_lora_rank=512), "field 'kv_lora_rank' (512) is not understood for LlamaForCausalLM", id="latent-llama"),
        pytest.param(llama(mamba_d_state=128), "field 'mamba_d_state' (128) is not understood", id="mamba-llama"),
        pytest.param(llama(num_local_experts=8), "field 'num_local_experts' (8) is not understood", id="llama-with-experts"),
        pytest.param(llama(layer_types=["full_attention"] * 31 + ["wavelet"], sliding_window=64), "holds 'wavelet'", id="kind-of-layer"),
        pytest.param(llama(architectures=["Olmo2ForCausalLM"], sliding_window=4096), "field 'sliding_window' is set", id="window"),
        pytest.param(llama(quantization_config={"quant_method": "bitsandbytes"}), "quantisation 'bitsandbytes'", id="quantisation"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_the_name_of_the_field(config: dict[str, Any], said: str) -> None:
    """design/style.md: refuse, don't guess; the message names the field and carries a way out."""
    with pytest.raises(UnknownError) as caught:
        read_model(config, where="m/config.json")
    assert said in str(caught.value)
    assert str(caught.value).startswith("m/config.json")
    assert caught.value.hint


def test_a_hybrids_unknown_layer_type_is_refused_by_its_name() -> None:
    """Qwen3.5 with a kind of layer that nobody has seen."""
    config = deepcopy(record("Qwen/Qwen3.5-4B")["config"])
    config["text_config"]["layer_types"][3] = "hyena"
    with pytest.raises(UnknownError, match="layer_types holds 'hyena', a kind of layer we do not know") as caught:
        read_model(config)
    assert "full_attention" in caught.value.hint


def test_the_hint_for_an_architecture_names_the_closest() -> None:
    """A slip, or a class renamed by a fine-tune."""
    with pytest.raises(UnknownError) as caught:
        read_model(llama(architectures=["LLaMAForCausalLM"]))
    assert "LlamaForCausalLM" in caught.value.hint
    assert "LlamaForCausalLM" in known()


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3.5-4B",
        "openai/gpt-oss-20b",
        "deepseek-ai/DeepSeek-V3",
        "google/gemma-3-27b-it",
        "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    ],
)
@pytest.mark.parametrize("tokens", [16_000, 131_072])
def test_assuming_full_attention_bounds_the_cache_from_above(name: str, tokens: int) -> None:
    """The same config under an unknown name: at lengths that people serve, never below what the model really caches."""
    config = {**record(name)["config"], "architectures": ["GalaxyForCausalLM"]}
    assumed = read_model(config, assume_full=True)
    assert context_cost(assumed).sequence_bytes(tokens) >= context_cost(read_model(record(name)["config"])).sequence_bytes(tokens)
    assert "GalaxyForCausalLM" in assumed.assumed[0]
    assert "upper bound" in assumed.assumed[0]


def test_assuming_changes_nothing_where_everything_is_known() -> None:
    """`--assume full-attention` is for the unknown only."""
    assert read_model(LLAMA, assume_full=True) == read_model(LLAMA)


def test_assuming_full_attention_still_refuses_an_unknown_quantisation() -> None:
    """The bound is one of the cache; a storage format cannot be bounded by a kind of layer."""
    with pytest.raises(UnknownError, match="quantisation 'gguf'"):
        read_model(llama(quantization_config={"quant_method": "gguf"}), assume_full=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"num_attention_heads": 0}, "field 'num_attention_heads' is 0", id="zero-heads"),
        pytest.param({"num_hidden_layers": "x"}, "field 'num_hidden_layers' is 'x', not a whole number", id="x-layers"),
        pytest.param({"num_hidden_layers": 10**7}, "no model has more than", id="ten-million-layers"),
        pytest.param({"hidden_size": -4096}, "is -4096", id="negative"),
        pytest.param({"hidden_size": float("nan")}, "not a whole number", id="nan"),
        pytest.param({"hidden_size": True}, "is True, not a whole number", id="bool"),
        pytest.param({"vocab_size": 10**30}, "not between", id="huge"),
        pytest.param({"vocab_size": ...}, "field 'vocab_size' is missing", id="missing"),
        pytest.param({"num_key_value_heads": 5}, "is not a multiple of num_key_value_heads 5", id="heads-do-not-go-together"),
        pytest.param({"architectures": "LlamaForCausalLM"}, "not a list of texts", id="architectures-is-a-text"),
        pytest.param({"architectures": [1]}, "not a list of texts", id="architectures-of-numbers"),
        pytest.param({"architectures": ...}, "has neither 'architectures' nor 'model_type'", id="nothing-to-go-by"),
        pytest.param({"tie_word_embeddings": "yes"}, "not true or false", id="flag-is-a-text"),
        pytest.param({"text_config": []}, "not an object", id="text-config-is-a-list"),
        pytest.param({"text_config": "x"}, "not an object", id="text-config-is-a-text"),
        pytest.param(
            {"layer_types": ["full_attention"] * 3, "sliding_window": 9}, "layer_types has 3 entries for 32 layers", id="short-list"
        ),
        pytest.param({"layer_types": 7}, "not a list of texts", id="list-is-a-number"),
        pytest.param({"quantization_config": "fp8"}, "is not an object", id="quantisation-is-a-text"),
        pytest.param({"quantization_config": {"quant_method": 3}}, "quant_method is 3", id="method-is-a-number"),
    ],
)
def test_a_config_that_cannot_be_right_is_an_input_error(changes: dict[str, Any], said: str) -> None:
    """The issue's list: zero heads, "x" layers, negative, NaN, huge, lists of the wrong length."""
    with pytest.raises(InputError) as caught:
        read_model(llama(**changes))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("config", [[], "x", 3, None, True], ids=["list", "text", "number", "null", "true"])
def test_a_config_that_is_no_object_is_an_input_error(config: Any) -> None:
    """JSON may hold anything at its top."""
    with pytest.raises(InputError, match="is not a JSON object"):
        read_model(config)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("", {"rope_scaling": {"rope_type": "linear", "factor": -3}}, id="rotary-factor-negative"),
        pytest.param("", {"rope_scaling": {"rope_type": "linear", "factor": 1e300}}, id="rotary-factor-huge"),
        pytest.param("", {"rope_scaling": {"rope_type": "linear", "factor": 10**400}}, id="rotary-factor-beyond-floats"),
        pytest.param("", {"rope_scaling": {"rope_type": "yarn", "factor": 0, "original_max_position_embeddings": 9}}, id="rotary-factor-0"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"num_nextn_predict_layers": 10**7}, id="ten-million-drafts"),
        pytest.param("google/gemma-3n-E4B-it", {"text_config": {"intermediate_size": []}}, id="gemma-3n-widths-empty"),
        pytest.param("moonshotai/Kimi-K2.5", {"vision_config": {"merge_kernel_size": []}}, id="kimi-tower-merge-empty"),
        pytest.param("meta-llama/Llama-4-Scout-17B-16E-Instruct", {"vision_config": {"pixel_shuffle_ratio": 0}}, id="llama4-tower-ratio-0"),
        pytest.param(
            "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
            {"block_configs": [{"attention": {"n_heads_in_group": 2**31}, "ffn": {"ffn_mult": 0.5}}]},
            id="nas-block-without-kv-heads",
        ),
    ],
)  # fmt: skip
def test_numbers_that_no_model_can_have_are_input_errors(name: str, changes: dict[str, Any]) -> None:
    """Found by breaking real configs at random; each would crash, hang, or weigh less than nothing."""
    config: dict[str, Any] = deepcopy(record(name)["config"]) if name else llama()
    for key, value in changes.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) and isinstance(config.get(key), dict) else value
    with pytest.raises(InputError):
        read_model(config)


VARIED = [
    "Qwen/Qwen3.5-4B", "Qwen/Qwen3.6-35B-A3B-FP8", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-32B-AWQ", "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", "openai/gpt-oss-20b",
    "google/gemma-2-9b-it", "google/gemma-3-4b-it", "google/gemma-3n-E4B-it", "google/gemma-4-26B-A4B-it", "google/gemma-4-E4B-it",
    "nvidia/Gemma-4-31B-IT-NVFP4", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/Llama-3.2-11B-Vision-Instruct", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
    "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-ai/DeepSeek-V4-Flash", "moonshotai/Kimi-K2.5",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct", "moonshotai/Kimi-K3", "zai-org/GLM-4.5-Air", "zai-org/GLM-5.2", "zai-org/GLM-5.3-Flash",
    "MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M3", "MiniMaxAI/MiniMax-M1-80k", "XiaomiMiMo/MiMo-V2-Flash", "stepfun-ai/Step-3.5-Flash",
    "inclusionAI/Ling-3.0-flash", "poolside/Laguna-XS.2", "ibm-granite/granite-4.0-h-small", "tiiuae/Falcon-H1-7B-Instruct",
    "ai21labs/AI21-Jamba-Mini-1.6", "LiquidAI/LFM2-8B-A1B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "microsoft/Phi-3.5-MoE-instruct",
    "CohereLabs/c4ai-command-r7b-12-2024", "OpenGVLab/InternVL3_5-8B", "BAAI/bge-m3", "baidu/ERNIE-4.5-300B-A47B-PT", "tencent/Hy3",
    "meituan-longcat/LongCat-Flash-Chat",
]  # fmt: skip
"""One or two models of every family, wrapped and plain, quantised and not."""

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**40, 2**40 + 1, 10**30, 10**400, -(10**20), 0.5, 1e300, float("nan"), float("inf"), 2000, 65_536]),
    st.sampled_from(["", "x", "float32", "full_attention", "fp8", "M*-E", "1,0", "int4", "bfloat16", "re:(", "[", "**"]),
    st.lists(st.one_of(st.integers(-2, 2000), st.text(max_size=4), st.none(), st.just({})), max_size=5),
    st.dictionaries(st.sampled_from(["num_bits", "factor", "rope_type", "hidden_size", "depth", "a"]), st.integers(-1, 9), max_size=3),
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every field, nested ones included, and the first and last entries of lists."""
    found = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += [(*here, key), *paths(inner, (*here, key))]
    elif isinstance(value, list) and value:
        for index in {0, len(value) - 1}:
            found += [(*here, index), *paths(value[index], (*here, index))]
    return found


@cache
def paths_of(name: str) -> list[tuple[Any, ...]]:
    """Return the paths of a catalogue model's config, but for the number of drafts: 2^31 of them is a row of its own above."""
    return [path for path in paths(record(name)["config"]) if path[-1] not in ("num_nextn_predict_layers", "mtp_num_hidden_layers")]


def has(holder: Any, step: Any) -> bool:
    """Return whether an object has a key, or a list an index."""
    return (isinstance(holder, dict) and step in holder) or (isinstance(holder, list) and isinstance(step, int) and step < len(holder))


def reached(value: Any, path: tuple[Any, ...]) -> Any:
    """Return what stands at a path, or None where an earlier change took it away."""
    for step in path:
        value = value[step] if has(value, step) else None
    return value


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a real config with one to three fields deleted or replaced by arbitrary JSON."""
    name = draw(st.sampled_from(VARIED))
    config: dict[str, Any] = deepcopy(record(name)["config"])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths_of(name)))
        holder = reached(config, path[:-1])
        if not has(holder, path[-1]):
            continue
        if draw(st.booleans()):
            holder[path[-1]] = draw(VALUES)
        else:
            del holder[path[-1]]
    return config


def weighed(config: dict[str, Any], *, assume_full: bool) -> ModelShape | None:
    """Return the shape of a config that could be read and weighed, or None where it was refused in our words."""
    try:
        shape = read_model(config, assume_full=assume_full)
        assert checkpoint_bytes(shape) >= 0
        assert context_cost(shape).sequence_bytes(16_000) >= 0
    except TonnageError as error:
        assert len(str(error)) < 2_000
        return None
    return shape


@given(config=broken(), assume_full=st.booleans())
@settings(max_examples=600)
def test_a_config_broken_at_random_is_read_or_refused_and_soon(config: dict[str, Any], assume_full: bool) -> None:
    """Never a traceback, never a negative size, and never longer than a moment."""
    started = perf_counter()
    weighed(config, assume_full=assume_full)
    assert perf_counter() - started < 2.0
