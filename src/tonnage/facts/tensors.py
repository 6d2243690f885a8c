"""What a weight is: its size, and how it is shared out over cards and quantised.

A model is a list of these. Nothing here knows a family; `families/` builds the lists, `memory/weights.py` adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Share = Literal["replicated", "column", "row", "kv", "groups", "vocab"]
"""How tensor parallelism splits a tensor over ranks.

replicated: every rank holds all of it. column: output rows are divided. row: input columns are divided.
kv: rows belong to KV heads; divided as far as there are heads, then replicated (`units` heads).
groups: rows belong to state groups; as `kv`, but the engine replicates groups that do not divide.
vocab: rows are vocabulary, padded to a multiple of 64, then divided.
"""

Class = Literal["embedding", "lm_head", "attention", "state", "mlp", "experts", "router", "norm", "vision", "draft"]


class Tensor(msgspec.Struct, frozen=True):
    """One weight matrix, or `count` equal ones.

    `rows` are output features, `cols` input features (1 for a vector). `name` is the module path inside its layer, by
    which quantisation schemes include or exclude it. `linear` marks matrices that quantisation may touch. `expert`
    counts how many of the copies are routed experts: expert parallelism divides those. `bits` fixes the width of
    tensors that an engine keeps in FP32 (or in 64-bit integers) whatever the model's dtype. `stored` is false for a copy
    that the engine makes at load and no checkpoint holds; `loaded` is false for what a checkpoint holds and no engine loads.
    """

    name: str
    rows: int
    cols: int
    share: Share
    cls: Class
    count: int = 1
    experts: int = 0
    units: int = 0
    linear: bool = True
    bits: int = 0
    stored: bool = True
    loaded: bool = True

    @property
    def elements(self) -> int:
        """Elements of all copies before any sharding."""
        return self.rows * self.cols * self.count * max(1, self.experts)


def vector(name: str, size: int, cls: Class = "norm", share: Share = "replicated", *, count: int = 1, bits: int = 0) -> Tensor:
    """Return a one-dimensional weight: a norm, a bias, a decay. Quantisation never touches it."""
    return Tensor(name, size, 1, share, cls, count=count, linear=False, bits=bits)


def elements(tensors: Iterable[Tensor]) -> int:
    """Return the elements of several tensors as a checkpoint stores them, before sharding."""
    return sum(tensor.elements for tensor in tensors if tensor.stored)
