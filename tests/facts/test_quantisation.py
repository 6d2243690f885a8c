"""What checkpoints declare about their storage: each method and form, which modules are left alone, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError, TonnageError, UnknownError
from tonnage.facts.model import read_model
from tonnage.facts.quantisation import PLAIN, Quantisation, Scheme, Target, read_quantisation
from tonnage.memory.weights import checkpoint_bytes
from tonnage.units import GIB

UP = "model.layers.7.mlp.up_proj"
HEAD = "lm_head"
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip


def declared(**fields: Any) -> Quantisation:
    """Return the quantisation of a config that declares these fields."""
    return read_quantisation({"quantization_config": fields}, "config.json")


def disk_gib(**fields: Any) -> float:
    """Return the size of Llama-3.1-8B's checkpoint with such a declaration."""
    return checkpoint_bytes(read_model({**LLAMA, "quantization_config": fields})) / GIB


def group(targets: list[str] | None = None, form: str = "", static: bool | None = None, **weights: Any) -> dict[str, Any]:
    """Return a config group of compressed-tensors."""
    out: dict[str, Any] = {"targets": ["Linear"] if targets is None else targets, "weights": weights}
    if form:
        out["format"] = form
    if static is not None:
        out["input_activations"] = {"num_bits": 8, "dynamic": not static}
    return out


def compressed(*groups: dict[str, Any], form: str = "", ignore: tuple[str, ...] = ("lm_head",), **rest: Any) -> dict[str, Any]:
    """Return a compressed-tensors declaration."""
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": list(ignore),
        "config_groups": {f"group_{index}": entry for index, entry in enumerate(groups)}, **rest,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "scheme", "label"),
    [
        pytest.param(
            {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            Scheme("fp8-block", 8, block=(128, 128)),
            "FP8",
            id="fp8-block-deepseek-qwen",
        ),
        pytest.param(
            {"quant_method": "fp8", "activation_scheme": "static"},
            Scheme("fp8-tensor", 8, static=True),
            "FP8",
            id="fp8-static-mistral",
        ),
        pytest.param({"quant_method": "fp8"}, Scheme("fp8-tensor", 8), "FP8", id="fp8-dynamic"),
        pytest.param({"quant_method": "FP8"}, Scheme("fp8-tensor", 8), "FP8", id="any-case"),
        pytest.param({"quant_method": "fbgemm_fp8"}, Scheme("fp8-channel", 8), "FP8", id="fbgemm-llama-405b"),
        pytest.param(
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
            Scheme("int4-awq", 4, group=128, zeros=True),
            "INT4 (AWQ)",
            id="awq",
        ),
        pytest.param(
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 64},
            Scheme("int4-awq", 4, group=64, zeros=True),
            "INT4 (AWQ)",
            id="awq-old-names",
        ),
        pytest.param(
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
            Scheme("int4-gptq", 4, group=128, zeros=True),
            "INT4 (GPTQ)",
            id="gptq-4",
        ),
        pytest.param(
            {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": True},
            Scheme("int4-gptq", 8, group=128, zeros=True, actorder=True),
            "INT8 (GPTQ)",
            id="gptq-8-is-called-so",
        ),
        pytest.param({"quant_method": "mxfp4"}, Scheme("mxfp4", 4, group=32), "MXFP4", id="mxfp4-gpt-oss"),
        pytest.param(
            compressed(group(type="float", num_bits=8, strategy="channel", static=False), form="float-quantized"),
            Scheme("fp8-channel", 8),
            "FP8",
            id="ct-fp8-dynamic-redhat",
        ),
        pytest.param(
            compressed(group(type="float", num_bits=8, strategy="tensor", static=True), form="float-quantized"),
            Scheme("fp8-tensor", 8, static=True),
            "FP8",
            id="ct-fp8-static",
        ),
        pytest.param(
            compressed(group(type="float", num_bits=8, strategy="block", block_structure=[128, 128], static=False)),
            Scheme("fp8-block", 8, block=(128, 128)),
            "FP8",
            id="ct-fp8-block",
        ),
        pytest.param(
            compressed(group(type="int", num_bits=8, strategy="channel", static=False), form="int-quantized"),
            Scheme("int8-channel", 8),
            "INT8",
            id="ct-w8a8",
        ),
        pytest.param(
            compressed(group(type="int", num_bits=4, group_size=128, strategy="group", symmetric=True), form="pack-quantized"),
            Scheme("int4-packed", 4, group=128),
            "INT4",
            id="ct-w4a16",
        ),
        pytest.param(
            compressed(
                group(type="int", num_bits=4, group_size=128, strategy="group", symmetric=False, actorder="group"), form="pack-quantized"
            ),
            Scheme("int4-packed", 4, group=128, zeros=True, actorder=True),
            "INT4",
            id="ct-w4a16-asymmetric-reordered",
        ),
        pytest.param(
            compressed(group(type="int", num_bits=8, group_size=128, strategy="group"), form="pack-quantized"),
            Scheme("int8-packed", 8, group=128),
            "INT8",
            id="ct-w8a16",
        ),
        pytest.param(
            compressed(group(type="float", num_bits=4, group_size=16, strategy="tensor_group", static=False), form="nvfp4-pack-quantized"),
            Scheme("nvfp4", 4, group=16),
            "NVFP4",
            id="ct-nvfp4",
        ),
        pytest.param(
            compressed(group(type="float", num_bits=4, group_size=32, strategy="group"), form="mxfp4-pack-quantized"),
            Scheme("mxfp4", 4, group=32),
            "MXFP4",
            id="ct-mxfp4",
        ),
        pytest.param(
            compressed(group(type="float", num_bits=8, group_size=32, strategy="group")),
            Scheme("mxfp8", 8, group=32),
            "MXFP8",
            id="ct-mxfp8",
        ),
        pytest.param({"quant_method": "modelopt", "quant_algo": "FP8"}, Scheme("fp8-tensor", 8, static=True), "FP8", id="modelopt-fp8"),
        pytest.param({"quant_algo": "NVFP4"}, Scheme("nvfp4", 4, group=16, static=True), "NVFP4", id="modelopt-without-a-method"),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, Scheme("fp8-block", 8, block=(128, 128)), "FP8", id="modelopt-block"
        ),
        pytest.param(
            {"quant_method": "modelopt_fp4", "quant_algo": "W4A16_NVFP4"}, Scheme("nvfp4", 4, group=16), "NVFP4", id="modelopt-w4a16"
        ),
    ],
)
def test_each_method_and_form_is_read_as_its_scheme(fields: dict[str, Any], scheme: Scheme, label: str) -> None:
    """Declarations as published checkpoints of each kind carry them."""
    found = declared(**fields)
    assert found.scheme(UP) == scheme
    assert found.label == label
    assert found.scheme(HEAD) == PLAIN


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"quantization_config": {"quant_method": "fp8"}}, id="at-the-top"),
        pytest.param({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, id="in-the-text-config"),
        pytest.param({"compression_config": {"quant_method": "fp8"}}, id="compression-config"),
        pytest.param({"quantization_config": None, "hf_quant_config": {"quant_algo": "FP8"}}, id="sibling-file-flat"),
        pytest.param({"hf_quant_config": {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}}, id="sibling-file"),
    ],
)
def test_a_declaration_is_found_wherever_it_stands(config: dict[str, Any]) -> None:
    """transformers nests it; ModelOpt writes hf_quant_config.json beside the config."""
    assert read_quantisation(config, "config.json").scheme(UP).form == "fp8-tensor"


@pytest.mark.parametrize("config", [{}, {"quantization_config": None}, {"quantization_config": {}}, {"hf_quant_config": {}}])
def test_nothing_declared_is_plain(config: dict[str, Any]) -> None:
    """No label, no targets, every module as the model's dtype."""
    found = read_quantisation(config, "config.json")
    assert (found.label, found.targets, found.scheme(UP)) == ("", (), PLAIN)


@pytest.mark.parametrize(
    ("pattern", "module", "left_alone"),
    [
        pytest.param("lm_head", "lm_head", True, id="literal"),
        pytest.param("model.layers.0.mlp.down_proj", "model.layers.0.mlp.down_proj", True, id="literal-path"),
        pytest.param("model.layers.0.mlp.down_proj", "model.layers.10.mlp.down_proj", False, id="literal-is-no-substring"),
        pytest.param("model.layers.1", "model.layers.1.mlp.up_proj", True, id="literal-prefix"),
        pytest.param("model.layers.1", "model.layers.11.mlp.up_proj", False, id="literal-prefix-of-a-number"),
        pytest.param("gate", "model.layers.1.mlp.gate", True, id="literal-tail"),
        pytest.param("gate", "model.layers.1.mlp.gate_proj", False, id="a-router-is-no-projection"),
        pytest.param("self_attn", "model.layers.1.self_attn.q_proj", True, id="literal-inside"),
        pytest.param("*lm_head*", "lm_head", True, id="glob"),
        pytest.param("model.layers.0*", "model.layers.0.mlp.up_proj", True, id="glob-tail"),
        pytest.param("model.layers.0.*", "model.layers.10.mlp.up_proj", False, id="glob-is-anchored"),
        pytest.param("*.self_attn", "model.layers.3.self_attn.q_proj", True, id="glob-names-a-parent"),
        pytest.param("re:.*self_attn.*", "model.layers.3.self_attn.o_proj", True, id="regex"),
        pytest.param("re:.*mlp.gate$", "model.layers.3.mlp.gate_proj", False, id="regex-end"),
        pytest.param("re:self_attn", "model.layers.3.self_attn.o_proj", False, id="regex-matches-from-the-start"),
        pytest.param("re:^model\\.layers\\.(0|1)\\..*", "model.layers.1.mlp.up_proj", True, id="regex-numbers"),
        pytest.param("model.language_model.layers.2.mlp.up_proj", "model.layers.2.mlp.up_proj", True, id="nested-language-model"),
        pytest.param("language_model.model.layers.2.mlp.up_proj", "model.layers.2.mlp.up_proj", True, id="llava-style-path"),
        pytest.param("backbone.layers.2.mixer.in_proj", "model.layers.2.mixer.in_proj", True, id="backbone"),
        pytest.param("re:(?i).*LM_HEAD.*", "lm_head", True, id="regex-with-flags"),
    ],
)  # fmt: skip
def test_which_modules_a_pattern_leaves_alone(pattern: str, module: str, left_alone: bool) -> None:
    """Literals name a module, its parent or its tail; globs and `re:` match whole paths, as compressed-tensors' do."""
    ways = ({"modules_to_not_convert": [pattern, "vision_tower"]}, {"ignored_layers": [pattern]})
    for fields in ways:
        assert declared(quant_method="fp8", **fields).ignores(module) is left_alone
    ignoring = declared(**compressed(group(type="float", num_bits=8, strategy="channel"), ignore=("unrelated", pattern)))
    assert (ignoring.scheme(module) == PLAIN) is (left_alone or module == HEAD)


def test_groups_give_each_module_its_own_scheme() -> None:
    """compressed-tensors with several groups: FP8 attention beside INT4 MLPs, as mixed-precision checkpoints declare."""
    found = declared(
        **compressed(
            group(["re:.*self_attn.*"], type="float", num_bits=8, strategy="channel", static=False),
            group(["re:.*mlp.*"], "pack-quantized", type="int", num_bits=4, group_size=128, strategy="group", symmetric=True),
            form="mixed-precision",
        )
    )
    assert found.scheme("model.layers.0.self_attn.q_proj").form == "fp8-channel"
    assert found.scheme(UP).form == "int4-packed"
    assert found.scheme(HEAD) == PLAIN
    assert found.label == "FP8 and INT4"


def test_modelopts_mixed_list_gives_each_module_its_own_scheme() -> None:
    """hf_quant_config of a mixed-precision checkpoint: a scheme for each named module, a head among them."""
    layers = {
        "model.layers.7.mlp.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.7.self_attn.q_proj": "FP8",
        "lm_head": {"quant_algo": "NVFP4"},
    }
    found = declared(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    forms = [found.scheme(module).form for module in (UP, "model.layers.7.self_attn.q_proj", HEAD, "model.layers.8.mlp.up_proj")]
    assert forms == ["nvfp4", "fp8-tensor", "nvfp4", "plain"]


@pytest.mark.parametrize(
    ("fields", "kv"),
    [
        pytest.param({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8", id="modelopt-fp8"),
        pytest.param({"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "nvfp4", id="modelopt-nvfp4"),
        pytest.param({"quant_algo": "FP8", "kv_cache_quant_algo": None}, "", id="modelopt-none"),
        pytest.param(
            compressed(group(type="float", num_bits=8), kv_cache_scheme={"num_bits": 8, "type": "float", "dynamic": False}), "fp8", id="ct"
        ),
        pytest.param(compressed(group(type="float", num_bits=8), kv_cache_scheme=None), "", id="ct-none"),
        pytest.param({"quant_method": "fp8"}, "", id="fp8-says-nothing"),
    ],
)
def test_the_cache_dtype_that_a_checkpoint_asks_for(fields: dict[str, Any], kv: str) -> None:
    """vllm-memory.md section 3: "auto" resolves to fp8 for checkpoints that declare a KV scheme."""
    assert declared(**fields).kv == kv


@pytest.mark.parametrize(
    ("dtype", "algo", "form"), [("fp4", None, "mxfp4"), ("FP4", None, "mxfp4"), ("fp4", "NVFP4", "nvfp4")], ids=["v4", "case", "v4-nvfp4"]
)
def test_experts_may_have_a_dtype_of_their_own(dtype: str, algo: str | None, form: str) -> None:
    """DeepSeek-V4: MXFP4 (or NVFP4) experts beside FP8 blocks."""
    inner = {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": algo}
    found = read_quantisation({"quantization_config": inner, "expert_dtype": dtype}, "config.json")
    assert found.scheme("model.layers.3.ffn.experts.up_proj").form == form
    assert found.scheme("model.layers.3.attn.wq_b").form == "fp8-block"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantisation 'bitsandbytes'", id="bitsandbytes"),
        pytest.param({"quant_method": "gguf"}, "quantisation 'gguf'", id="gguf"),
        pytest.param({"bits": 4}, "quantisation ''", id="no-method"),
        pytest.param({"quant_method": "awq", "bits": 3}, "bits 3", id="awq-3"),
        pytest.param({"quant_method": "gptq", "bits": 5}, "bits 5", id="gptq-5"),
        pytest.param({"quant_method": "modelopt", "quant_algo": "INT3"}, "quant_algo 'INT3'", id="modelopt-algo"),
        pytest.param({"quant_method": "modelopt", "quantized_layers": {"a.b": "INT3"}}, "quant_algo 'INT3' of a.b", id="modelopt-layer"),
        pytest.param(compressed(group(type="int", num_bits=3)), "weights of 3 bits and type 'int'", id="ct-3"),
        pytest.param(compressed({"targets": ["Linear"]}), "weights of None bits", id="ct-without-weights"),
    ],
)
def test_a_method_or_width_that_is_not_known_is_refused_by_name(fields: dict[str, Any], said: str) -> None:
    """A default would be a silently wrong weight; the hint lists what is known."""
    with pytest.raises(UnknownError) as caught:
        declared(**fields)
    assert said in str(caught.value)
    assert "quantization_config" in str(caught.value)
    assert caught.value.hint


def test_an_unknown_expert_dtype_is_refused_by_name() -> None:
    """The experts are nearly all of such a model."""
    with pytest.raises(UnknownError, match="expert_dtype 'fp3'"):
        read_quantisation({"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp3"}, "config.json")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"quant_method": "fp8", "weight_block_size": [128]}, id="one-side"),
        pytest.param({"quant_method": "fp8", "weight_block_size": [0, 128]}, id="zero-side"),
        pytest.param({"quant_method": "fp8", "weight_block_size": "128"}, id="text"),
        pytest.param({"quant_method": "awq", "group_size": "many"}, id="group-is-a-word"),
        pytest.param({"quant_method": "compressed-tensors"}, id="no-groups"),
        pytest.param({"quant_method": "compressed-tensors", "config_groups": []}, id="groups-are-a-list"),
        pytest.param({"quant_method": "compressed-tensors", "config_groups": {"group_0": "x"}}, id="group-is-a-text"),
        pytest.param({"quant_method": ["fp8"]}, id="method-is-a-list"),
        pytest.param({"quant_method": "awq", "group_size": -7}, id="group-below-minus-one"),
        pytest.param({"quant_method": "awq", "group_size": float("inf")}, id="group-infinite"),
        pytest.param({"quant_method": "fp8", "ignored_layers": ["re:("]}, id="regex-that-is-none"),
    ],
)
def test_a_malformed_declaration_is_an_input_error(fields: dict[str, Any]) -> None:
    """The form is wrong, not the method: one line with the place."""
    with pytest.raises(InputError, match="quantization_config"):
        declared(**fields)


@pytest.mark.parametrize("value", [[], "x", 7, None, True], ids=["list", "text", "number", "null", "true"])
def test_a_sibling_file_whose_quantization_is_no_object_is_an_input_error(value: Any) -> None:
    """hf_quant_config.json cut or edited by hand."""
    with pytest.raises(TonnageError):
        read_quantisation({"hf_quant_config": {"quantization": value}}, "config.json")


@pytest.mark.parametrize(
    ("fields", "gib"),
    [
        pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 5.33, id="awq-peers.md"),
        pytest.param({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 5.34, id="gptq-4"),
        pytest.param({"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}, 8.61, id="gptq-8"),
        pytest.param({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.46, id="fp8-block"),
        pytest.param(compressed(group(type="float", num_bits=8, strategy="channel", static=False)), 8.46, id="fp8-dynamic"),
        pytest.param(compressed(group(type="int", num_bits=8, strategy="channel", static=False), form="int-quantized"), 8.46, id="w8a8"),
        pytest.param({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True}, 5.22, id="gptq-one-group-a-row"),
        pytest.param(
            {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["self_attn"]}, 7.18, id="awq-mlp-only"
        ),
    ],
)
def test_llama_8b_in_each_form_weighs_what_its_checkpoints_do(fields: dict[str, Any], gib: float) -> None:
    """peers.md: AWQ 5.33 GiB; the others by hand: 6,979,321,856 quantised weights, the rest in BF16, and their scales."""
    assert disk_gib(**fields) == pytest.approx(gib, abs=0.011)


def test_a_gptq_head_and_modules_taken_out_are_read() -> None:
    """GPTQModel: `lm_head: true` quantises the head; `dynamic` with "-:" leaves modules alone, as vLLM reads both."""
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    assert declared(**base, lm_head=True).scheme(HEAD).form == "int4-gptq"
    assert declared(**base, dynamic={"-:.*down_proj.*": {}}).scheme("model.layers.0.mlp.down_proj") == PLAIN


def test_a_target_with_patterns_goes_before_the_general_one() -> None:
    """The order of groups does not decide; a module's own pattern does."""
    general, own = Scheme("fp8-channel", 8), Scheme("int4-packed", 4, group=128)
    for targets in ((Target(general), Target(own, ("mlp",))), (Target(own, ("mlp",)), Target(general))):
        found = Quantisation("compressed-tensors", targets)
        assert (found.scheme(UP), found.scheme("model.layers.0.self_attn.q_proj")) == (own, general)


@pytest.mark.parametrize(
    ("patterns", "by_layer"),
    [
        pytest.param(("lm_head", "re:.*self_attn.*"), False, id="all-layers-alike"),
        pytest.param(("model.layers.3.mlp.up_proj",), True, id="one-layer"),
        pytest.param(("re:.*layers\\.(0|1)\\..*",), True, id="a-few-by-regex"),
        pytest.param(("model.layers.[0-3].*",), True, id="a-few-by-glob"),
    ],
)
def test_by_layer_tells_whether_equal_layers_are_stored_alike(patterns: tuple[str, ...], by_layer: bool) -> None:
    """Layers alike are weighed once, so a pattern with a layer's number must be noticed."""
    assert Quantisation("fp8", (Target(Scheme("fp8-tensor", 8)),), patterns).by_layer is by_layer


WORDS = st.sampled_from(
    [
        "",
        "x",
        "4",
        "FP8",
        "NVFP4",
        "group",
        "tensor",
        "channel",
        "block",
        "float",
        "int",
        "pack-quantized",
        "Linear",
        "lm_head",
        "re:.*mlp.*",
        "*mlp*",
    ]
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(0, 200), WORDS, st.lists(st.one_of(WORDS, st.integers(0, 128), st.none()), max_size=3),
    st.dictionaries(WORDS, WORDS, max_size=2),
)  # fmt: skip
GROUP = st.fixed_dictionaries(
    {"weights": st.dictionaries(st.sampled_from(["num_bits", "type", "group_size", "strategy", "symmetric", "block_structure"]), JUNK)},
    optional={"targets": JUNK, "format": JUNK, "input_activations": JUNK},
)
DECLARATION = st.fixed_dictionaries(
    {"quant_method": st.sampled_from(["fp8", "fbgemm_fp8", "awq", "gptq", "mxfp4", "compressed-tensors", "modelopt"])},
    optional=dict.fromkeys(
        (
            "bits",
            "group_size",
            "desc_act",
            "modules_to_not_convert",
            "ignored_layers",
            "weight_block_size",
            "activation_scheme",
            "ignore",
            "kv_cache_scheme",
            "quant_algo",
            "kv_cache_quant_algo",
            "exclude_modules",
            "quantized_layers",
            "quantization",
        ),
        JUNK,
    )
    | {"config_groups": st.one_of(JUNK, st.dictionaries(st.sampled_from(["group_0", "group_1"]), st.one_of(GROUP, JUNK), max_size=2))},
)


@given(DECLARATION)
@settings(max_examples=400)
def test_no_declaration_breaks_the_reader_or_weighs_below_nothing(fields: dict[str, Any]) -> None:
    """Arbitrary declarations: a checkpoint between nothing and FP32, or an error of ours."""
    try:
        shape = read_model({**LLAMA, "num_hidden_layers": 2, "quantization_config": fields})
        weight = checkpoint_bytes(shape)
    except TonnageError:
        return
    assert 0 < weight <= 4 * shape.params_total
    assert isinstance(shape.quantisation.label, str)
