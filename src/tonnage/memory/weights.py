"""Weights: what one rank of a replica holds, by class of tensor, to the byte.

A model is a list of tensors (`facts/tensors.py`). Here they are split over ranks, stored in a checkpoint's scheme with
its scales, and added up. Sources: vLLM's parallel linear layers and quantisation methods; checked against the
parameters that its own model code makes (tests/memory/test_weights_oracle.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from tonnage.errors import InputError, UnknownError, closest_hint
from tonnage.facts.dtype import torch_bits
from tonnage.facts.quantisation import PLAIN, Quantisation, Scheme, Target
from tonnage.facts.shape import Layer, ModelShape, RopeTable, StateCache
from tonnage.facts.tensors import Tensor
from tonnage.memory.parallel import Parallelism, stages
from tonnage.units import ceil_div

VOCABULARY_PADDING = 64

KEPT = ("lm_head", "vision_tower*", "multi_modal_projector*")

ASKED: dict[str, Quantisation] = {
    "fp8": Quantisation("fp8", (Target(Scheme("fp8-block", 8, block=(128, 128))),), KEPT, assumed=True),
    "int8": Quantisation("compressed-tensors", (Target(Scheme("int8-channel", 8)),), KEPT, assumed=True),
    "int4": Quantisation("awq", (Target(Scheme("int4-awq", 4, group=128, zeros=True)),), KEPT, assumed=True),
    "nvfp4": Quantisation("modelopt", (Target(Scheme("nvfp4", 4, group=16, static=True)),), KEPT, assumed=True),
    "mxfp4": Quantisation("mxfp4", (Target(Scheme("mxfp4", 4, group=32)),), KEPT, assumed=True),
}
"""Precisions one may ask for on a model that is published without them, by the rule of its kind of checkpoint."""

ASKED_ALIASES = {"awq": "int4", "w4a16": "int4", "gptq": "int4", "w8a8": "int8", "fp4": "nvfp4"}
PLAIN_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
}


class Weights(msgspec.Struct, frozen=True):
    """Bytes of one rank, by class of tensor; `buffers` are tables an engine keeps beside the parameters."""

    by_class: dict[str, int]
    elements: int
    buffers: int

    @property
    def total(self) -> int:
        """Parameters and buffers."""
        return sum(self.by_class.values()) + self.buffers


def with_precision(shape: ModelShape, asked: str) -> ModelShape:
    """Return the shape with its weights in the precision that was asked for; "checkpoint" leaves it as published.

    Raises UnknownError: a precision we do not know. InputError: a quantised checkpoint cannot be widened or requantised.
    """
    word = ASKED_ALIASES.get(asked.lower(), asked.lower())
    if word in ("", "checkpoint", "auto"):
        return shape
    published = shape.quantisation
    if word in PLAIN_DTYPES:
        if published.targets:
            raise InputError(
                f"the checkpoint is {published.label}; an engine does not widen it to {asked}",
                hint="plan its unquantised sibling, or leave --weights out",
            )
        return msgspec.structs.replace(shape, dtype=PLAIN_DTYPES[word])
    if word not in ASKED:
        known = [*ASKED, *PLAIN_DTYPES, "checkpoint"]
        raise UnknownError(f"weights in {asked!r} are not known", hint=closest_hint(word, known, f"known are {', '.join(sorted(known))}"))
    if published.targets:
        if published.label.lower().startswith(word):
            return shape
        raise InputError(
            f"the checkpoint is {published.label} already; it is not requantised to {asked}",
            hint="plan its unquantised sibling, or leave --weights out",
        )
    return msgspec.structs.replace(shape, quantisation=ASKED[word])


def served_dtype(shape: ModelShape, *, bf16: bool = True) -> str:
    """Return the dtype an engine serves in: FP32 checkpoints are served in 16 bits, FP16 where the card has no BF16."""
    if shape.dtype == "float32":
        return "bfloat16" if bf16 and not shape.embeds_only else "float16"
    return shape.dtype if bf16 or shape.dtype != "bfloat16" else "float16"


class ExpertPadding(msgspec.Struct, frozen=True):
    """What an engine's MXFP4 kernel rounds an expert's width (on one rank) and the hidden size up to."""

    inner: int = 1
    hidden: int = 1


UNPADDED = ExpertPadding()
MARLIN = ExpertPadding(128, 256)


class WeightRules(msgspec.Struct, frozen=True):
    """What depends on the engine's release and card: MXFP4 padding, and which multimodal rotary tables are kept fourfold.

    `fourfold_rope`: "all", "plain" (those that are not interleaved) or "none".
    """

    mxfp4: ExpertPadding = MARLIN
    fourfold_rope: Literal["all", "plain", "none"] = "plain"


DEFAULT_RULES = WeightRules()


def rank_weights(
    shape: ModelShape,
    parallel: Parallelism,
    *,
    stage: int = 0,
    dtype: str = "",
    mtp: bool = False,
    vision: bool = True,
    rules: WeightRules = DEFAULT_RULES,
) -> Weights:
    """Return what one rank of a pipeline stage holds.

    `dtype` is the served dtype of what is not quantised; `mtp` adds the draft layers, on the last stage. MXFP4 experts
    are padded, and their biases with them; in compressed-tensors checkpoints always for Marlin.
    """
    padding = {"mxfp4": rules.mxfp4, "compressed-tensors": MARLIN}.get(shape.quantisation.method, UNPADDED)
    bits = torch_bits(dtype or served_dtype(shape))
    totals: dict[str, int] = {}
    count = 0
    for tensor, module, times in _stage_tensors(shape, parallel, stage, mtp=mtp, vision=vision):
        if not tensor.loaded:
            continue
        scheme = shape.quantisation.scheme(module) if tensor.linear else PLAIN
        held, stored = rank_bytes(
            tensor, parallel, scheme, bits, padding if tensor.experts and "experts" in tensor.cls and _is_mxfp4(shape) else UNPADDED
        )
        totals[tensor.cls] = totals.get(tensor.cls, 0) + stored * times
        count += held * times
    return Weights(totals, count, _buffers(shape, parallel, stage, bits, rules.fourfold_rope))


def checkpoint_bytes(shape: ModelShape) -> int:
    """Return the bytes of the checkpoint on disk, draft layers and tower included, in its own dtype.

    >>> from tonnage.facts.model import read_model
    >>> qwen3_8b = read_model({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
    ...     "vocab_size": 151936, "max_position_embeddings": 40960})
    >>> round(checkpoint_bytes(qwen3_8b) / 2**30, 2)  # published 15.26
    15.26
    """
    bits = torch_bits(shape.dtype)
    total = 0
    for tensor, module, times in _all_tensors(shape):
        if tensor.stored:
            scheme = shape.quantisation.scheme(module) if tensor.linear and tensor.cls != "vision" else PLAIN
            total += _stored(tensor, tensor.rows, tensor.cols, scheme, bits) * tensor.count * max(1, tensor.experts) * times
    return total


def byte_shares(shape: ModelShape) -> tuple[float, float]:
    """Return the shares of the language model's stored bytes that are experts' and that are the input embedding's.

    By bytes and not by elements: a checkpoint may keep its experts in 4 bits and the rest in 16.
    """
    bits = torch_bits(shape.dtype)
    total = experts = embedding = 0
    for tensor, module, times in _all_tensors(shape):
        if tensor.stored and tensor.cls != "vision":
            scheme = shape.quantisation.scheme(module) if tensor.linear else PLAIN
            held = _stored(tensor, tensor.rows, tensor.cols, scheme, bits) * tensor.count * max(1, tensor.experts) * times
            total += held
            experts += held if tensor.experts else 0
            embedding += held if tensor in shape.embedding else 0
    return experts / max(1, total), embedding / max(1, total)


Placed = tuple[Tensor, str, int]
"""A tensor, the module path that quantisation knows it by, and how many equal layers have it."""


def _once(tensors: Iterable[Tensor]) -> Iterator[Placed]:
    yield from ((tensor, tensor.name, 1) for tensor in tensors)


def _all_tensors(shape: ModelShape) -> Iterator[Placed]:
    yield from _once((*shape.embedding, *shape.head, *shape.vision, *shape.draft_extra))
    yield from _layer_tensors(shape, 0, len(shape.layers))
    yield from _draft_tensors(shape, len(shape.draft))


def _layer_tensors(shape: ModelShape, start: int, stop: int) -> Iterator[Placed]:
    """Yield the tensors of a run of layers; equal layers come once, unless a quantisation tells them apart by number."""
    if shape.quantisation.by_layer:
        runs = [(index, shape.layers[index], 1) for index in range(start, stop)]
    else:
        firsts: dict[int, tuple[int, Layer, int]] = {}
        for index in range(start, stop):
            layer = shape.layers[index]
            first, _, times = firsts.get(id(layer), (index, layer, 0))
            firsts[id(layer)] = (first, layer, times + 1)
        runs = list(firsts.values())
    for index, layer, times in runs:
        for tensor in layer.tensors:
            yield tensor, f"model.layers.{index}.{tensor.name}", times


def _draft_tensors(shape: ModelShape, count: int) -> Iterator[Placed]:
    """Yield the tensors of draft layers, which checkpoints call mtp.layers.N or number after the decoder's."""
    own = shape.quantisation
    for index, layer in enumerate(shape.draft[:count]):
        for tensor in layer.tensors:
            numbered, named = f"model.layers.{len(shape.layers) + index}.{tensor.name}", f"mtp.layers.{index}.{tensor.name}"
            yield tensor, numbered if own.ignores(numbered) else named, 1


def _stage_tensors(shape: ModelShape, parallel: Parallelism, stage: int, *, mtp: bool, vision: bool) -> Iterator[Placed]:
    counts = stages(len(shape.layers), parallel.pp)
    first, last = stage == 0, stage == parallel.pp - 1
    start = sum(counts[:stage])
    if first:
        yield from _once(shape.embedding)
    if vision:
        yield from _once(shape.vision)
    if last and shape.tied and not first:
        yield from _once(shape.embedding[:1])
    if last or shape.head_everywhere:
        yield from _once(shape.head)
    if last and mtp:
        yield from _once(tensor for tensor in shape.draft_extra if "embed" not in tensor.name and "head.head" not in tensor.name)
        yield from _draft_tensors(shape, 1)
        if shape.draft and not first and not shape.tied:  # the drafter shares the model's embedding only where one stage has both
            yield from _once(shape.embedding[:1])
    yield from _layer_tensors(shape, start, start + counts[stage])


def rank_shape(tensor: Tensor, parallel: Parallelism) -> tuple[int, int, int]:
    """Return (rows, columns, copies) of a tensor on one rank.

    >>> from tonnage.facts.tensors import Tensor
    >>> k = Tensor("k_proj", 4 * 128, 4096, "kv", "attention", units=4)
    >>> rank_shape(k, Parallelism(tp=2)), rank_shape(k, Parallelism(tp=8))
    ((256, 4096, 1), (128, 4096, 1))
    """
    copies, tp = tensor.count, parallel.tp
    if tensor.experts:
        if parallel.expert:
            return tensor.rows, tensor.cols, copies * ceil_div(tensor.experts, parallel.ep)
        copies *= tensor.experts
        tp *= parallel.dp  # without --enable-expert-parallel the data-parallel ranks cut every expert between them
    if tensor.units and tensor.units % tp and tensor.share in ("column", "row"):
        return tensor.rows, tensor.cols, copies
    if tensor.share == "column":
        return ceil_div(tensor.rows, tp), tensor.cols, copies
    if tensor.share == "row":
        return tensor.rows, ceil_div(tensor.cols, tp), copies
    if tensor.share == "kv":
        return tensor.rows // tensor.units * max(1, tensor.units // tp), tensor.cols, copies
    if tensor.share == "groups":
        return tensor.rows // tensor.units * (tensor.units // tp if tensor.units % tp == 0 else 1), tensor.cols, copies
    if tensor.share == "vocab":
        return ceil_div(ceil_div(tensor.rows, VOCABULARY_PADDING) * VOCABULARY_PADDING, tp), tensor.cols, copies
    return tensor.rows, tensor.cols, copies


def rank_bytes(tensor: Tensor, parallel: Parallelism, scheme: Scheme, bits: int, padding: ExpertPadding = UNPADDED) -> tuple[int, int]:
    """Return (elements, bytes) of a tensor on one rank, scales included in the bytes."""
    rows, cols, copies = rank_shape(tensor, parallel)
    if padding is not UNPADDED:
        down = tensor.share in ("row", "replicated")
        rows = _round_up(rows, padding.hidden if down else padding.inner)
        cols = cols if cols == 1 else _round_up(cols, padding.inner if down else padding.hidden)
    return rows * cols * copies, _stored(tensor, rows, cols, scheme, bits) * copies


def _is_mxfp4(shape: ModelShape) -> bool:
    return any(target.scheme.form == "mxfp4" for target in shape.quantisation.targets)


def _table_bytes(table: RopeTable, bits: int, fourfold: str) -> int:
    times = 4 if table.sections and (fourfold == "all" or fourfold == table.sections) else 1
    return ceil_div(times * table.positions * table.width * (table.bits or bits), 8)


def _round_up(size: int, multiple: int) -> int:
    return ceil_div(size, multiple) * multiple


def _stored(tensor: Tensor, rows: int, cols: int, scheme: Scheme, bits: int) -> int:
    width = tensor.bits or (bits if scheme is PLAIN else scheme.bits)
    return ceil_div(rows * cols * width, 8) + (0 if scheme is PLAIN else scale_bytes(scheme, rows, cols))


def scale_bytes(scheme: Scheme, rows: int, cols: int) -> int:
    """Return the bytes of the scales, zero points and index that a scheme keeps beside one matrix.

    >>> scale_bytes(Scheme("fp8-block", 8, block=(128, 128)), 4096, 4096)  # one FP32 scale a block
    4096
    >>> scale_bytes(Scheme("int4-awq", 4, group=128, zeros=True), 4096, 4096)  # FP16 scale and 4-bit zero a group
    327680
    """
    if scheme.form == "fp8-block":
        return 4 * ceil_div(rows, scheme.block[0]) * ceil_div(cols, scheme.block[1])
    if scheme.form in ("fp8-channel", "int8-channel"):
        return 4 * rows + (4 if scheme.static else 0)
    if scheme.form == "fp8-tensor":
        return 8 if scheme.static else 4
    groups = rows * ceil_div(cols, scheme.group or cols)
    if scheme.form in ("mxfp4", "mxfp8"):
        return groups
    if scheme.form == "nvfp4":
        return groups + (8 if scheme.static else 4)
    zeros = ceil_div(groups * scheme.bits, 8) if scheme.zeros else 0
    index = 4 * cols if scheme.form == "int4-gptq" or scheme.actorder else 0
    return 2 * groups + zeros + index


def _buffers(shape: ModelShape, parallel: Parallelism, stage: int, bits: int, fourfold: str) -> int:
    """Return rotary tables (one each a kind of attention) and the views of convolutions that Mamba2 registers."""
    tables = sum(_table_bytes(table, bits, fourfold) for table in shape.rope_tables)
    counts = stages(len(shape.layers), parallel.pp)
    start = sum(counts[:stage])
    views = 0
    for layer in shape.layers[start : start + counts[stage]]:
        for cache in layer.caches:
            if isinstance(cache, StateCache) and cache.kind == "mamba2":
                views += ceil_div(cache.conv_channels * (cache.conv_columns + 1) * bits, 8 * parallel.tp)
    return tables + views
