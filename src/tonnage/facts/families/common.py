"""What all families share: the trunk of a decoder, and how its parts become a `ModelShape`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from tonnage.errors import InputError, UnknownError
from tonnage.facts.blocks import Tensors, attention, experts, mlp, norms
from tonnage.facts.config import SMALLEST, Config
from tonnage.facts.shape import KVCache, Layer, ModelShape, RopeTable
from tonnage.facts.tensors import Tensor, vector

MAX_LAYERS = 2000


class Trunk(msgspec.Struct, frozen=True):
    """The numbers every decoder has, read once, under any of the names that configs give them."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    tied: bool
    dtype: str


def trunk(c: Config, *, tied: bool = False, layers: int = 0, max_position: int = 0, vocab: int = 0, outer: Config | None = None) -> Trunk:
    """Return the trunk of a decoder; `tied` is the family's default, `outer` the config around a text_config.

    Raises InputError: a number is missing, not whole, out of range, or the heads do not go together.
    """
    hidden = c.integer("hidden_size", "n_embd", "d_model")
    layers = layers or c.integer("num_hidden_layers", "num_layers", "n_layer")
    if layers > MAX_LAYERS:
        raise InputError(f"num_hidden_layers is {layers}; no model has more than {MAX_LAYERS} layers", where=c.where)
    heads = c.integer("num_attention_heads", "n_head")
    kv_heads = c.integer("num_key_value_heads", "num_attention_groups", "num_kv_heads", default=heads)
    head_dim = c.integer("head_dim", "attention_head_dim", "kv_channels", default=max(1, hidden // heads), low=0) or max(1, hidden // heads)
    if heads % kv_heads:
        raise InputError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}", where=c.where)
    dtype = c.text("torch_dtype", "dtype") or (outer.text("torch_dtype", "dtype") if outer else "")
    tie = c.flag("tie_word_embeddings", default=outer.flag("tie_word_embeddings", default=tied) if outer else tied)
    longest = c.integer("max_position_embeddings", "max_sequence_length", "seq_length", default=max_position or None)
    return Trunk(
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        c.integer("vocab_size", default=vocab or None),
        longest,
        tie,
        dtype.removeprefix("torch.") or "bfloat16",
    )


def assemble(
    c: Config,
    architecture: str,
    t: Trunk,
    layers: Iterable[Layer],
    *,
    final: Tensors | None = None,
    head_bias: bool = False,
    embedding: Tensors = (),
    vision: Tensors = (),
    draft: Iterable[Layer] = (),
    draft_extra: Tensors = (),
    rope: tuple[RopeTable, ...] | None = None,
    moe: tuple[int, int, int, int] = (0, 0, 0, 0),
    ffn: int = 0,
    assumed: tuple[str, ...] = (),
) -> ModelShape:
    """Return the ModelShape of a family's parts. `moe` is (experts, per token, expert width, shared width).

    Raises InputError: more experts a token than there are. UnknownError: a field is left that would change the memory.
    """
    if moe[1] > moe[0]:
        raise InputError(f"num_experts_per_tok {moe[1]} is more than the {moe[0]} experts", where=c.where)
    embed = (Tensor("model.embed_tokens", t.vocab, t.hidden, "vocab", "embedding", linear=False), *embedding)
    head: list[Tensor] = list(final if final is not None else norms(t.hidden, 1))
    if not t.tied:
        head.append(Tensor("lm_head", t.vocab, t.hidden, "vocab", "lm_head", linear=True))
    if head_bias:
        head.append(Tensor("lm_head.bias", t.vocab, 1, "vocab", "lm_head", linear=False))
    built = tuple(layers)
    c.refuse_unread(architecture)
    return ModelShape(
        name="",
        architecture=architecture,
        hidden_size=t.hidden,
        vocab_size=t.vocab,
        max_position=t.max_position,
        dtype=t.dtype,
        heads=t.heads,
        kv_heads=t.kv_heads,
        head_dim=t.head_dim,
        layers=built,
        embedding=embed,
        head=tuple(head),
        tied=t.tied,
        vision=vision,
        draft=tuple(draft),
        draft_extra=draft_extra,
        rope_tables=rope if rope is not None else (rope_table(c, t.max_position, t.head_dim),),
        experts=moe[0],
        experts_per_token=moe[1],
        expert_hidden=moe[2],
        shared_hidden=moe[3],
        ffn_hidden=ffn,
        assumed=assumed,
    )


def draft_count(c: Config, *names: str, default: int = 0) -> int:
    """Return how many layers for multi-token prediction a checkpoint holds, as `num_nextn_predict_layers` or `names` say."""
    return c.integer(*(names or ("num_nextn_predict_layers",)), default=default, low=0, high=MAX_LAYERS)


def same_in_all(c: Config, *names: str, default: int | None = None) -> int:
    """Return a number that some configs repeat for every layer.

    Raises UnknownError: the layers differ. InputError: the list is empty, or holds no whole numbers.
    """
    for name in names:
        value = c.raw(name)
        if isinstance(value, list):
            if not value:
                raise InputError(f"field {name!r} is an empty list", where=c.where)
            if len(set(map(str, value))) != 1:
                raise UnknownError(f"field {name!r} differs between layers", where=c.where, hint="--assume full-attention")
            return Config({name: value[0]}, c.where).integer(name, low=0)
    return c.integer(*names, default=default, low=0)


def rope_table(c: Config, positions: int, dim: int, *, name: str = "", share: float = 1.0) -> RopeTable:
    """Return the rotary table an engine keeps for one kind of attention.

    A rotary factor below 1 narrows it; linear and dynamic scaling multiply the positions by their factor, YaRN the
    original positions by its factor.
    """
    sections: Literal["", "plain", "interleaved"] = ""
    scaling = c.child("rope_scaling") or c.child("rope_parameters")
    share = c.number("partial_rotary_factor", "rotary_pct", default=share)
    if scaling is not None:
        if name and scaling.child(name) is not None:
            scaling = scaling.child(name)
        assert scaling is not None
        share = scaling.number("partial_rotary_factor", default=share)
        kind, factor = scaling.text("rope_type", "type"), scaling.number("factor", default=1.0, low=SMALLEST)
        original = scaling.integer("original_max_position_embeddings", default=0, low=0)
        if kind in ("linear", "dynamic"):
            positions = int(positions * factor)
        elif kind in ("yarn", "deepseek_yarn") and original:
            positions = int(original * factor)
        if kind == "mrope" or scaling.has("mrope_section"):
            sections = "interleaved" if scaling.flag("mrope_interleaved") else "plain"
    c.ignore("partial_rotary_factor")
    return RopeTable(positions, int(dim * share) if 0 < share <= 1 else dim, sections=sections)


def interleave(kinds: Iterable[str], build: Callable[[str], Layer]) -> tuple[Layer, ...]:
    """Return one layer per kind, building each kind once, so that equal layers are one object."""
    made = lru_cache(maxsize=None)(build)
    return tuple(made(kind) for kind in kinds)


def layer_kinds(c: Config, layers: int, known: dict[str, str]) -> tuple[str, ...] | None:
    """Return our word for each entry of `layer_types`, or None where the config has none.

    Raises UnknownError: an entry that is not in `known`. InputError: their number is not the number of layers.
    """
    names = c.texts("layer_types")
    if not names:
        return None
    for name in names:
        if name not in known:
            raise UnknownError(
                f"layer_types holds {name!r}, a kind of layer we do not know",
                where=c.where,
                hint=f"known here are {', '.join(sorted(known))}; --assume full-attention gives an upper bound",
            )
    if len(names) < layers:
        raise InputError(f"layer_types has {len(names)} entries for {layers} layers", where=c.where)
    return tuple(known[name] for name in names[:layers])


def pattern_kinds(layers: int, every: int, *, odd: str, common: str, offset: int = -1) -> tuple[str, ...]:
    """Return `odd` for one layer in `every` (the last of each run by default), `common` for the others."""
    slot = offset % every
    return tuple(odd if index % every == slot else common for index in range(layers))


__all__ = [
    "KVCache",
    "RopeTable",
    "Trunk",
    "assemble",
    "attention",
    "experts",
    "interleave",
    "layer_kinds",
    "mlp",
    "norms",
    "pattern_kinds",
    "rope_table",
    "trunk",
    "vector",
]
