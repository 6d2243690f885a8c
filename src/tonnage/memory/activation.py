"""The activation peak: what the engine's profile run holds at its worst moment, beyond weights and cache.

    peak = max(sample + experts, forward + experts, embedding, tower) + images held + cuBLAS

- sample: max_num_seqs rows of logits, 14 B each since 0.17 (16-bit logits, three FP32 copies), 38 B before (a sort)
- forward: max_num_batched_tokens x (the widest block of a layer + attention's output + two residual streams)
- experts: the fused experts' workspace, which stays: tokens x experts a token x (max(N, K) + max(2N, K))
- embedding: compiling times a kernel that reads the embedding on a copy of it; a start with a warm cache does not
- tower: the largest images that fit the budget, in the vision tower; their pixels and outputs stay

Each coefficient is read from vLLM's code; the split of 39 measured starts agrees within 0.07 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.facts.dtype import torch_bits
from tonnage.facts.overheads import OverheadConstants, Release, at_release, by_card, capability_key, release_of
from tonnage.facts.shape import Layer, ModelShape
from tonnage.facts.tensors import Tensor
from tonnage.memory.parallel import Parallelism, stages
from tonnage.memory.weights import rank_shape
from tonnage.units import ceil_div, size

ATTENDING = ("attention", "state")


class EngineLoad(msgspec.Struct, frozen=True):
    """What decides an engine's overhead on one rank. `link` is `Card.link`; `mtp` the speculative tokens; `stage` the pipeline stage.

    `capability` is None for cards that are not NVIDIA's; `vision` false serves the language model alone.
    """

    shape: ModelShape
    parallel: Parallelism
    release: Release
    capability: tuple[int, int] | None
    link: str
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: str = "bfloat16"
    enforce_eager: bool = False
    mtp: int = 0
    lora_slots: int = 0
    lora_rank: int = 0
    vision: bool = True
    stage: int = 0

    @property
    def bytes_each(self) -> int:
        """Bytes of one activation."""
        return torch_bits(self.dtype) // 8

    @property
    def first(self) -> bool:
        """Whether this stage holds the embedding."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether this stage samples."""
        return self.stage == self.parallel.pp - 1

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of this stage."""
        counts = stages(len(self.shape.layers), self.parallel.pp)
        start = sum(counts[: self.stage])
        return self.shape.layers[start : start + counts[self.stage]]

    @property
    def sees_images(self) -> bool:
        """Whether a vision tower is profiled on this rank."""
        return self.vision and self.first and bool(self.shape.vision)

    @property
    def hidden_bytes(self) -> int:
        """One hidden state of a whole batch."""
        return self.max_num_batched_tokens * self.shape.hidden_size * self.bytes_each


class Peak(msgspec.Struct, frozen=True):
    """The peak and what makes it: `cause` is the largest of the moments, `warm` the peak of a start whose compile cache is warm."""

    bytes: int
    warm: int
    cause: str
    why: str


def peak(load: EngineLoad, c: OverheadConstants) -> Peak:
    """Return the activation peak of the engine's profile run on one rank.

    >>> from tonnage.facts.model import read_model
    >>> from tonnage.facts.overheads import overhead_constants
    >>> llama = read_model({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    ...     "max_position_embeddings": 4096})
    >>> load = EngineLoad(llama, Parallelism(), (0, 19), (9, 0), "nvlink", max_num_seqs=1024, max_num_batched_tokens=8192)
    >>> found = peak(load, overhead_constants())
    >>> found.cause, round(found.bytes / 2**30, 1)  # a published start of vLLM 0.19 on H100: 1.89
    ('sampler', 1.9)
    """
    experts, experts_why = _experts(load, c)
    kept = experts if load.release >= release_of(c.experts.kept_since) else 0
    tower, held, images = _images(load, c)
    stage_copies = 0 if load.first else c.forward.stage_copies * load.hidden_bytes
    forward, forward_why = _forward(load, c)
    moments = {
        "forward": (forward + experts, forward_why + experts_why),
        "latent": (_latent(load, c) + kept, f"latent attention: {c.forward.latent_tokens:,} tokens up-projected"),
        "vision": (tower, images),
    }
    if load.last and not load.shape.embeds_only:
        sampled, why = _sampler(load, c)
        moments["sampler"] = (sampled + kept, why + (experts_why if kept else ""))
    warm = max(moments.values())[0]
    moments["embedding"] = _embedding(load, c)
    cause = max(moments, key=lambda name: moments[name][0])
    constant = by_card(c.forward.workspace, load.capability) + held + stage_copies
    best, why = moments[cause]
    if held:
        why += f", {size(held)} of images held"
    if stage_copies:
        why += f", {size(stage_copies)} from the stage before"
    return Peak(best + constant, warm + constant, cause, f"{why}, {size(by_card(c.forward.workspace, load.capability))} cuBLAS")


def second_runner(load: EngineLoad, c: OverheadConstants) -> bool:
    """Return whether the release profiles this model with its second runner, which samples without top-k and top-p.

    >>> from tonnage.facts.overheads import overhead_constants
    >>> from tonnage.facts.model import read_model
    >>> qwen = read_model({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1, "head_dim": 32,
    ...     "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 512,
    ...     "max_position_embeddings": 4096})
    >>> [second_runner(EngineLoad(qwen, Parallelism(), (0, n), None, "none", 8, 8), overhead_constants()) for n in (19, 22, 33)]
    [False, True, True]
    """
    shape, law = load.shape, c.runner
    rule = at_release(law.second, load.release)
    if rule == "listed, unquantised":
        return shape.architecture in law.listed_first and not shape.quantisation.targets
    if rule == "listed":
        return shape.architecture in law.listed
    if rule == "dense":
        return shape.architecture in law.listed or not (shape.experts or shape.hybrid or shape.vision)
    return rule == "always"


def _sampler(load: EngineLoad, c: OverheadConstants) -> tuple[int, str]:
    shape, seqs = load.shape, load.max_num_seqs
    rows = c.sampler.hidden_rows * seqs * shape.hidden_size * load.bytes_each
    scratch = 0
    if second_runner(load, c):
        each = load.bytes_each
    else:
        each = at_release(c.sampler.row_bytes, load.release) + (c.sampler.wide_extra if load.bytes_each == 4 else 0)
        each += c.sampler.drafted_extra if load.mtp else 0
        lanes = by_card(c.sampler.multiprocessors, load.capability)
        scratch = 4 * at_release(c.sampler.scratch_rows, load.release) * min(seqs, lanes)
    total = shape.vocab_size * (each * seqs + scratch) + load.hidden_bytes + rows
    extra = f", top-k scratch {size(shape.vocab_size * scratch)}" if scratch else ""
    return (
        total,
        f"sampler: {seqs:,} sequences x {shape.vocab_size:,} vocabulary x {each} B{extra}, hidden states {size(load.hidden_bytes + rows)}",
    )


def widest_block(layers: Sequence[Layer], parallel: Parallelism) -> tuple[int, int]:
    """Return (elements a token of the widest block of a layer, elements of an attention's output) on one rank.

    A block's elements are its outputs of column-parallel matrices and its inputs of row-parallel ones: a gated MLP holds
    gate, up and their product, 3 x intermediate / tp.

    >>> from tonnage.facts.blocks import attention, mlp
    >>> widest_block([Layer("full", (), attention(4096, 32, 8, 128) + mlp(4096, 14336))], Parallelism(tp=2))
    (21504, 2048)
    """
    widest = attended = 0
    for layer in dict.fromkeys(layers):
        blocks: dict[str, int] = {}
        for tensor in layer.tensors:
            if not tensor.linear or tensor.experts:
                continue
            rows, cols, copies = rank_shape(tensor, parallel)
            held = _held(tensor, rows, cols) * copies
            blocks[tensor.cls] = blocks.get(tensor.cls, 0) + held
            if tensor.share == "row" and tensor.cls in ATTENDING:
                attended = max(attended, held)
        widest = max(widest, *blocks.values(), 0)
    return widest, attended


def _held(tensor: Tensor, rows: int, cols: int) -> int:
    if tensor.share == "row":
        return cols
    return rows if tensor.share in ("column", "kv", "groups") else 0


def _forward(load: EngineLoad, c: OverheadConstants) -> tuple[int, str]:
    widest, attended = widest_block(load.layers, load.parallel)
    if any(target.scheme.form == "int8-channel" for target in load.shape.quantisation.targets):
        widest += int(widest * c.forward.int8_share) + load.shape.hidden_size // 2
    each = widest + attended + c.forward.residuals * load.shape.hidden_size
    total = load.max_num_batched_tokens * each * load.bytes_each
    buffer = 0 if load.enforce_eager else c.forward.buffer
    why = f"forward pass: {load.max_num_batched_tokens:,} tokens x {each:,} elements x {load.bytes_each} B"
    return total + buffer, why + (f", {size(buffer)} to time kernels" if buffer else "")


def _experts(load: EngineLoad, c: OverheadConstants) -> tuple[int, str]:
    shape, parallel = load.shape, load.parallel
    if not shape.experts:
        return 0, ""
    if {target.scheme.form for target in shape.quantisation.targets} & {*c.experts.free_forms.get(capability_key(load.capability), ())}:
        return 0, ""
    width = shape.expert_hidden if parallel.expert else ceil_div(shape.expert_hidden, parallel.tp)
    hidden, tokens = shape.hidden_size, load.max_num_batched_tokens * (parallel.dp if parallel.expert else 1)
    each = max(width, hidden) + max(2 * width, hidden)
    total = tokens * shape.experts_per_token * each * load.bytes_each
    return total, f", experts' workspace {size(total)} ({tokens:,} tokens x {shape.experts_per_token} experts x {each:,} elements)"


def _latent(load: EngineLoad, c: OverheadConstants) -> int:
    """Return the up-projected context that latent attention profiles; the projections around it count as a few hidden states."""
    widest = 0
    for layer in dict.fromkeys(load.layers):
        for tensor in layer.tensors:
            if tensor.name.endswith("kv_b_proj"):
                widest = max(widest, rank_shape(tensor, load.parallel)[0])
    return c.forward.latent_tokens * widest * load.bytes_each + 4 * load.hidden_bytes if widest else 0


def _embedding(load: EngineLoad, c: OverheadConstants) -> tuple[int, str]:
    """Return the copy of the embedding; models that see images embed outside of what is compiled."""
    shape = load.shape
    if load.enforce_eager or not load.first or load.sees_images or load.release < release_of(c.embedding.since):
        return 0, ""
    rows = ceil_div(shape.vocab_size, load.parallel.tp)
    table = rows * shape.hidden_size * load.bytes_each
    why = (
        f"compiling: a copy of the embedding, {rows:,} x {shape.hidden_size:,} x {load.bytes_each} B; less where the compile cache is warm"
    )
    return table + load.hidden_bytes + c.forward.buffer, why


def _images(load: EngineLoad, c: OverheadConstants) -> tuple[int, int, str]:
    """Return what the tower takes at its peak, and the pixels and outputs that stay."""
    shape = load.shape
    if not load.sees_images:
        return 0, 0, ""
    per_token, largest = c.vision.items.get(shape.architecture, c.vision.items["other"])
    items = max(load.max_num_batched_tokens // largest, 1)
    tokens, patches = items * largest, items * largest * per_token
    matrices = [tensor for tensor in shape.vision if tensor.cols > 1]
    if not matrices:
        return 0, tokens * shape.hidden_size * load.bytes_each, ""
    pixels = next((t.cols for t in matrices if "patch" in t.name or "input_proj" in t.name), matrices[0].cols)
    inner = max((t.cols for t in matrices if t.name.endswith(("fc2", "down_proj")) and t.count > 1), default=0)
    hidden = next((t.cols for t in matrices if "qkv" in t.name), matrices[0].rows)
    outputs = max((t.count for t in matrices if t.name.endswith("merger.fc2")), default=1)
    held = (patches * pixels + tokens * shape.hidden_size * outputs) * load.bytes_each
    each = c.vision.split * (inner + hidden) // load.parallel.tp + c.vision.whole * hidden
    tower = patches * each * load.bytes_each
    return tower, held, f"vision tower: {items} image{'s' * (items > 1)} of {largest:,} tokens, {patches:,} patches in all"
