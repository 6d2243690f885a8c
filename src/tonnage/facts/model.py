"""config.json -> ModelShape: which family a model belongs to, and a refusal by name where we do not know."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from tonnage.errors import InputError, UnknownError, closest_hint
from tonnage.facts.blocks import Tensors
from tonnage.facts.config import Config
from tonnage.facts.families import READERS, WRAPPERS, known
from tonnage.facts.quantisation import read_quantisation
from tonnage.facts.shape import Layer, ModelShape

HEAD_EVERYWHERE = {
    "HYV3ForCausalLM", "InternLM2ForCausalLM", "JambaForCausalLM", "MixtralForCausalLM", "NemotronHForCausalLM", "PhiMoEForCausalLM",
    "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM", "Qwen3VLMoeForConditionalGeneration",
}  # fmt: skip
"""Classes of vLLM that make the head on every pipeline stage, not on the last alone."""
NO_ROPE_TABLE = {"SeedOssForCausalLM", "SmolLM3ForCausalLM"}
"""Run by vLLM's Transformers backend, which keeps frequencies and no table of sines."""


def read_model(config: Mapping[str, Any], *, name: str = "", where: str = "config.json", assume_full: bool = False) -> ModelShape:
    """Return the shape of a model from its config.json.

    `assume_full` counts every layer of an unknown architecture as full attention and says so (`shape.assumed`).

    >>> shape = read_model({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    ...     "max_position_embeddings": 131072})
    >>> shape.params_total  # Llama-3.1-8B as published
    8030261248

    Raises InputError: a field is missing or of the wrong kind. UnknownError: an architecture, a kind of layer, a
    quantisation or a field that would change the memory and that we do not understand.
    """
    if not isinstance(config, Mapping):
        raise InputError("is not a JSON object", where=where, hint="expected a model's config.json")
    outer = Config(config, where)
    architecture = _architecture(outer)
    try:
        shape = _read(outer, architecture)
    except UnknownError:
        if not assume_full:
            raise
        shape = _as_full_attention(config, where, architecture)
    quantisation = read_quantisation(config, where)
    return msgspec.structs.replace(
        shape,
        name=name,
        architecture=architecture,
        quantisation=quantisation,
        head_everywhere=shape.head_everywhere or architecture in HEAD_EVERYWHERE,
        rope_tables=() if architecture in NO_ROPE_TABLE else shape.rope_tables,
    )


def _architecture(c: Config) -> str:
    names = c.texts("architectures")
    if names:
        return names[0]
    model_type = c.text("model_type")
    if not model_type:
        raise InputError("has neither 'architectures' nor 'model_type'", where=c.where, hint="is this a model's config.json?")
    raise UnknownError(
        f"field 'architectures' is missing and model_type {model_type!r} alone is not understood",
        where=c.where,
        hint="add it, or --assume full-attention",
    )


def _reader(architecture: str, where: str) -> Any:
    from tonnage.facts.families import plain

    if architecture in plain.TRAITS:
        return plain.read
    if architecture not in READERS:
        otherwise = "tonnage models --architectures lists those we know; --assume full-attention gives an upper bound"
        raise UnknownError(
            f"field 'architectures' holds {architecture!r}, which we do not know",
            where=where,
            hint=f"{closest_hint(architecture, known(), otherwise)}; --assume full-attention gives an upper bound",
        )
    module, function = READERS[architecture]
    return getattr(import_module(f"tonnage.facts.families.{module}"), function)


def _read(c: Config, architecture: str) -> ModelShape:
    if architecture not in WRAPPERS:
        text = c.child("text_config", "llm_config")
        return _reader(architecture, c.where)(text or c, architecture, c if text else None)  # type: ignore[no-any-return]
    inner, tower = WRAPPERS[architecture]
    text = c.child("text_config", "llm_config") or c
    inner = inner or (text.texts("architectures") or ("",))[0]
    if architecture == "Mistral3ForConditionalGeneration" and text.has("kv_lora_rank"):
        inner = "DeepseekV3ForCausalLM"
    vision = _tower(c, text, tower)
    c.ignore("audio_config")
    return _reader(inner, text.where)(text, inner, c, vision)  # type: ignore[no-any-return]


def _tower(c: Config, text: Config, tower: str) -> Tensors:
    from tonnage.facts.families.vision import TOWERS

    vision = c.child("vision_config")
    if vision is None:
        if tower != "gemma3n":
            return ()
        vision = Config({}, c.where)

    return TOWERS[tower](vision, text.integer("hidden_size"), c)


def _as_full_attention(config: Mapping[str, Any], where: str, architecture: str) -> ModelShape:
    """Return an upper bound: every layer caches keys and values for every token; weights as a plain decoder's."""
    from tonnage.facts.blocks import attention, experts, full_cache, mlp, norms
    from tonnage.facts.families.common import assemble, trunk

    inner = config.get("text_config") or config.get("llm_config") or config
    if not isinstance(inner, Mapping):
        raise InputError("text_config is not an object", where=where)
    c = Config(inner, where)
    t = trunk(c, outer=Config(config, where))
    count = c.integer("num_experts", "num_local_experts", "n_routed_experts", default=0, low=0)
    ffn = c.integer("intermediate_size", "ffn_hidden_size", default=4 * t.hidden)
    width = c.integer("moe_intermediate_size", default=ffn)
    feed = experts(t.hidden, width, count) if count else mlp(t.hidden, ffn)
    layer = Layer(
        "assumed full",
        (full_cache(t.kv_heads, t.head_dim),),
        attention(t.hidden, t.heads, t.kv_heads, t.head_dim) + norms(t.hidden, 2) + feed,
    )
    quiet = Config({}, where)
    per_token = c.integer("num_experts_per_tok", "num_experts_per_token", default=count, low=0)
    note = f"{architecture} is not known: every layer is counted as full attention (--assume full-attention), an upper bound"
    return assemble(quiet, architecture, t, (layer,) * t.layers, moe=(count, min(per_token, count), width, 0), ffn=ffn, assumed=(note,))
