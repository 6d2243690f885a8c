"""What tensor parallelism must divide: vocabulary, widths of layers, scale blocks and groups of quantised weights.

Source: vLLM's `divide` (vocab_parallel_embedding.py, linear.py), `validate_fp8_block_shape`, Marlin's group check. "Weight
input_size_per_partition = 64 is not divisible by weight quantization block_k = 128" is how people meet it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts.quantisation import Scheme
from tonnage.facts.shape import ModelShape
from tonnage.facts.tensors import Tensor
from tonnage.memory.weights import VOCABULARY_PADDING
from tonnage.settings import Parallelism
from tonnage.units import ceil_div


def uneven(shape: ModelShape, parallel: Parallelism) -> Iterator[tuple[str, str]]:
    """Yield (id, reason) for each part of a model that does not divide by tensor_parallel_size."""
    tp = parallel.tp
    padded = ceil_div(shape.vocab_size, VOCABULARY_PADDING) * VOCABULARY_PADDING
    if padded % tp:
        yield "vocabulary-not-divisible", f"a vocabulary of {padded:,} (padded to {VOCABULARY_PADDING}) does not divide by {_size(tp)}"
    tower = next((t.units for t in shape.vision if t.name.endswith("attn.qkv")), 0)
    if tower % tp and shape.architecture.startswith("Qwen"):
        yield "vision-heads-not-divisible", f"the {tower} heads of the vision tower do not divide by {_size(tp)}"
    odd = {width for tensor in _dense(shape) if tensor.cls == "mlp" and (width := _cut(tensor)) and width % tp}
    if odd:
        yield "mlp-not-divisible", f"an MLP of {max(odd):,} does not divide by {_size(tp)}"


def broken_scales(shape: ModelShape, parallel: Parallelism) -> Iterator[tuple[str, str]]:
    """Yield (id, reason) where a rank's part of a dense matrix cuts through a scale block or a group of quantised weights."""
    tp = parallel.tp
    if tp == 1 or not shape.quantisation.targets:
        return
    seen: set[tuple[int, int]] = set()
    for tensor, scheme in _quantised(shape):
        width = _cut(tensor)
        unit = _unit(tensor, scheme)
        own = width // tp
        if not width or not unit or own % unit == 0 or (own, unit) in seen or width % tp:
            continue
        seen.add((own, unit))
        if scheme.form == "fp8-block":
            yield "quantisation-block", f"{tensor.name} is {own} wide on a rank, which does not divide by the FP8 scale block of {unit}"
        else:
            yield "quantisation-group", f"{tensor.name} is {own} wide on a rank, which does not divide by its groups of {unit} weights"


def _size(tp: int) -> str:
    return f"tensor-parallel-size {tp}"


def _dense(shape: ModelShape) -> Iterator[Tensor]:
    for layer in set(shape.layers):
        yield from (tensor for tensor in layer.tensors if tensor.linear and not tensor.experts and tensor.cols > 1)


def _quantised(shape: ModelShape) -> Iterator[tuple[Tensor, Scheme]]:
    seen = set()
    for index, layer in enumerate(shape.layers):
        if layer in seen and not shape.quantisation.by_layer:
            continue
        seen.add(layer)
        for tensor in layer.tensors:
            if tensor.linear and not tensor.experts and tensor.cols > 1 and tensor.cls in ("mlp", "attention", "experts"):
                yield tensor, shape.quantisation.scheme(f"model.layers.{index}.{tensor.name}")


def _cut(tensor: Tensor) -> int:
    """Return the side that tensor parallelism cuts; 0 where every rank holds all, or heads and not widths are cut."""
    return {"column": tensor.rows, "row": tensor.cols}.get(tensor.share, 0)


def _unit(tensor: Tensor, scheme: Scheme) -> int:
    """Return what a rank's part must be a multiple of; 0 where anything will do."""
    if scheme.form == "fp8-block":
        return scheme.block[0 if tensor.share == "column" else 1]
    if tensor.share == "row" and scheme.bits == 4 and 0 < scheme.group < tensor.cols and scheme.form == "int4-awq":
        return scheme.group
    return 0
