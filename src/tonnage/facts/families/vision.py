"""Towers for images: the weights they add. What they cost in activations is the overhead's business.

One function a tower; sources: the modelling code and the parameter counts of the published checkpoints (data/models).
"""

from __future__ import annotations

from collections.abc import Callable

from tonnage.errors import InputError
from tonnage.facts.blocks import Tensors
from tonnage.facts.config import SMALLEST, Config
from tonnage.facts.tensors import Share, Tensor, vector


def _matrix(name: str, rows: int, cols: int, share: Share = "replicated", count: int = 1, *, bias: bool = True, heads: int = 0) -> Tensors:
    """Return a matrix and its bias; with `heads`, ranks that do not divide those keep it whole."""
    weight = Tensor(f"visual.{name}", rows, cols, share, "vision", count=count, units=heads, linear=False)
    if not bias:
        return (weight,)
    return weight, vector(f"visual.{name}.bias", rows, "vision", "column" if share == "column" else "replicated", count=count)


def _vectors(size: int, count: int) -> Tensors:
    return (vector("visual.vectors", size, "vision", count=count),)


def _encoder(
    width: int,
    inter: int,
    depth: int,
    *,
    bias: bool = True,
    gated: bool = False,
    norm_vectors: int = 4,
    split: bool = True,
    heads: int = 0,
) -> Tensors:
    """Return `depth` transformer layers of a tower: attention and MLP split over ranks (unless `split` is false), norms on every rank."""
    column: Share = "column" if split else "replicated"
    row: Share = "row" if split else "replicated"
    return (
        *_matrix("attn.qkv", 3 * width, width, column, depth, bias=bias, heads=heads),
        *_matrix("attn.proj", width, width, row, depth, bias=bias),
        *_matrix("mlp.fc1", inter * (2 if gated else 1), width, column, depth, bias=bias),
        *_matrix("mlp.fc2", width, inter, row, depth, bias=bias),
        *_vectors(width, norm_vectors * depth),
    )


def qwen3(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower of Qwen3-VL and Qwen3.5: ViT with learned positions, merger, one more merger per deepstack level.

    Deepstack mergers norm after the merge, so their norms are as wide as the merged patch.
    """
    width, depth, inter = v.integer("hidden_size"), v.integer("depth"), v.integer("intermediate_size")
    merged = width * v.integer("spatial_merge_size", default=2) ** 2
    out = v.integer("out_hidden_size", default=hidden)
    patch = v.integer("in_channels", "in_chans", default=3) * v.integer("temporal_patch_size", default=2) * v.integer("patch_size") ** 2
    levels = len(v.integers("deepstack_visual_indexes"))
    merger = _matrix("merger.fc1", merged, merged, "column", 1 + levels) + _matrix("merger.fc2", out, merged, "row", 1 + levels)
    positions = Tensor("visual.pos_embed", v.integer("num_position_embeddings", default=2304), width, "replicated", "vision", linear=False)
    return (
        *_matrix("patch_embed", width, patch),
        positions,
        *merger,
        *_vectors(width, 2),
        *_vectors(merged, 2 * levels),
        *_encoder(width, inter, depth, heads=v.integer("num_heads", default=0)),
    )


def qwen25(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower of Qwen2.5-VL: windowed ViT, gated MLP, RMS norms."""
    width, depth, inter = v.integer("hidden_size"), v.integer("depth"), v.integer("intermediate_size")
    merged = width * v.integer("spatial_merge_size", default=2) ** 2
    patch = v.integer("in_channels", "in_chans", default=3) * v.integer("temporal_patch_size", default=2) * v.integer("patch_size") ** 2
    out = v.integer("out_hidden_size", default=hidden)
    return (
        *_matrix("patch_embed", width, patch, bias=False),
        *_encoder(width, inter, depth, gated=True, norm_vectors=2, heads=v.integer("num_heads", default=0)),
        *_matrix("merger.fc1", merged, merged, "column"),
        *_matrix("merger.fc2", out, merged, "row"),
        *_vectors(width, 1),
    )


def glm5(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower of GLM-5.3-Flash: ViT with head norms and a gated MLP, a downsampling convolution, a gated merger."""
    width, depth, inter = v.integer("hidden_size"), v.integer("depth"), v.integer("intermediate_size")
    out, merge = v.integer("out_hidden_size", default=hidden), v.integer("spatial_merge_size", default=2)
    patch = v.integer("in_channels", default=3) * v.integer("temporal_patch_size", default=2) * v.integer("patch_size") ** 2
    head_dim = max(1, width // v.integer("num_heads", default=16))
    wide = 10_240
    return (
        *_matrix("patch_embed", width, patch),
        *_encoder(width, inter, depth, gated=True, norm_vectors=2),
        *_vectors(head_dim, 2 * depth),
        *_matrix("downsample", out, width * merge**2),
        *_matrix("merger.proj", out, out, bias=False),
        *_matrix("merger.gate_up", 2 * wide, out, "column", bias=False),
        *_matrix("merger.down", out, wide, "row", bias=False),
        *_vectors(out, 2),
        *_vectors(width, 1),
    )


def gemma3(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return SigLIP and the projector of Gemma 3."""
    width, depth, inter, patch = (
        v.integer("hidden_size"),
        v.integer("num_hidden_layers"),
        v.integer("intermediate_size"),
        v.integer("patch_size"),
    )
    positions = (v.integer("image_size") // patch) ** 2
    return (
        *_matrix("patch_embedding", width, v.integer("num_channels", default=3) * patch**2),
        Tensor("visual.position_embedding", positions, width, "replicated", "vision", linear=False),
        *_encoder(width, inter, depth),
        *_vectors(width, 2),
        *_matrix("mm_input_projection", width, hidden, bias=False),
        *_vectors(width, 1),
    )


def gemma4(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower of Gemma 4, whole on every rank: learned 2-d positions, gated MLP, head norms, four norms a layer."""
    width, depth, inter = v.integer("hidden_size"), v.integer("num_hidden_layers"), v.integer("intermediate_size")
    head_dim = v.integer("head_dim", default=max(1, width // v.integer("num_attention_heads", default=12)))
    return (
        Tensor(
            "visual.position_embedding_table",
            2 * v.integer("position_embedding_size", default=10_240),
            width,
            "replicated",
            "vision",
            linear=False,
        ),
        *_matrix("input_proj", width, 3 * v.integer("patch_size", default=16) ** 2, bias=False),
        *_encoder(width, inter, depth, bias=False, gated=True, norm_vectors=4, split=False),
        *_vectors(head_dim, 2 * depth),
        *_matrix("embed_vision", hidden, width, bias=False),
        *(_vectors(width, 2) if v.flag("standardize") else ()),
    )


def gemma3n(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return MobileNetV5 and the audio encoder of Gemma 3n, as one block: 983,281,504 parameters in both published sizes."""
    return (vector("visual.mobilenet_and_audio", 983_281_504, "vision"),)


def pixtral(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return Pixtral and the patch-merging projector of Mistral 3: no biases.

    Its matrices are those of vLLM's own parallel layers, so that a quantisation takes them in unless it names them.
    """
    width, depth, inter = v.integer("hidden_size"), v.integer("num_hidden_layers"), v.integer("intermediate_size")
    merge = outer.integer("spatial_merge_size", default=2)
    layer = "vision_tower.transformer.layers"
    return (
        *_matrix("patch_conv", width, v.integer("num_channels", default=3) * v.integer("patch_size") ** 2, bias=False),
        Tensor(f"{layer}.attention.qkv_proj", 3 * width, width, "column", "vision", count=depth),
        Tensor(f"{layer}.attention.o_proj", width, width, "row", "vision", count=depth),
        Tensor(f"{layer}.feed_forward.gate_up_proj", 2 * inter, width, "column", "vision", count=depth),
        Tensor(f"{layer}.feed_forward.down_proj", width, inter, "row", "vision", count=depth),
        *_vectors(width, 2 * depth + 2),
        *_matrix("projector.patch_merger", width, width * merge**2, bias=False),
        Tensor("multi_modal_projector.linear_1", hidden, width, "column", "vision"),
        Tensor("multi_modal_projector.linear_2", hidden, hidden, "row", "vision"),
    )


def llama4(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower, pixel-shuffle adapter and projector of Llama 4."""
    width, depth, inter = v.integer("hidden_size"), v.integer("num_hidden_layers"), v.integer("intermediate_size")
    patch, out = v.integer("patch_size"), v.integer("projector_output_dim", default=4096)
    positions = (v.integer("image_size") // patch) ** 2 + 1
    shuffled = int(width / v.number("pixel_shuffle_ratio", default=0.5, low=SMALLEST) ** 2)
    return (
        *_matrix("patch_embedding", width, v.integer("num_channels", default=3) * patch**2, "column", bias=False),
        Tensor("visual.positional_embedding", positions, width, "replicated", "vision", linear=False),
        *_encoder(width, inter, depth),
        *_vectors(width, 5),
        *_matrix("adapter.fc1", v.integer("projector_input_dim", default=4096), shuffled, "column", bias=False),
        *_matrix("adapter.fc2", out, out, "row", bias=False),
        *_matrix("projector", hidden, v.integer("vision_output_dim", default=4096), "column", bias=False),
    )


def kimi(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return MoonViT-3d and the patch merger of Kimi-K2.5 and K3; K3's attention is wider than its tower and has RMS norms."""
    width, depth, inter = v.integer("vt_hidden_size"), v.integer("vt_num_hidden_layers"), v.integer("vt_intermediate_size")
    inner = v.integer("qkv_hidden_size", default=width)
    plain = v.text("mm_projector_type") == "patchmergerv2"
    kernel = v.integers("merge_kernel_size", default=(2, 2), low=1)
    if len(kernel) != 2:
        raise InputError(f"merge_kernel_size has {len(kernel)} sides, not two", where=v.where)
    merged = v.integer("mm_hidden_size", default=width) * kernel[0] * kernel[1]
    bias = not plain
    norms = 2 if plain else 4
    heads = v.integer("vt_num_attention_heads", default=0)
    layers = (
        *_matrix("attn.qkv", 3 * inner, width, "column", depth, bias=bias, heads=heads),
        *_matrix("attn.proj", width, inner, "row", depth, bias=bias, heads=heads),
        *_matrix("mlp.fc1", inter, width, "column", depth, bias=bias, heads=heads),
        *_matrix("mlp.fc2", width, inter, "row", depth, bias=bias, heads=heads),
        *_vectors(width, norms * depth),
    )
    positions = v.integer("init_pos_emb_height", default=64) * v.integer("init_pos_emb_width", default=64)
    return (
        *_matrix("patch_embed", width, 3 * v.integer("patch_size") ** 2),
        Tensor("visual.pos_emb", positions, width, "replicated", "vision", linear=False),
        *layers,
        *_vectors(width, 2 if not plain else 1),
        *_vectors(v.integer("mm_hidden_size", default=width), 2 if not plain else 1),
        *_matrix("projector.fc1", merged, merged, bias=bias),
        *_matrix("projector.fc2", hidden, merged, bias=bias),
    )


def internvl(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return InternViT and the MLP projector of InternVL."""
    width, depth, inter, patch = (
        v.integer("hidden_size"),
        v.integer("num_hidden_layers"),
        v.integer("intermediate_size"),
        v.integer("patch_size"),
    )
    positions = (v.integer("image_size") // patch) ** 2 + 1
    merged = width * 4
    return (
        *_matrix("patch_embedding", width, 3 * patch**2),
        Tensor("visual.position_embedding", positions, width, "replicated", "vision", linear=False),
        *_encoder(width, inter, depth),
        *_vectors(width, 1 + 2 * depth),
        *_vectors(merged, 2),
        *_matrix("mlp1.1", hidden, merged),
        *_matrix("mlp1.3", hidden, hidden),
    )


def mllama(v: Config, hidden: int, outer: Config) -> Tensors:
    """Return the tower of Llama 3.2 Vision: local and gated global layers, tile and position embeddings, projector."""
    width, inter, patch = v.integer("hidden_size"), v.integer("intermediate_size"), v.integer("patch_size")
    depth, gated = v.integer("num_hidden_layers"), v.integer("num_global_layers")
    tiles, out = v.integer("max_num_tiles", default=4), v.integer("vision_output_dim")
    patches = (v.integer("image_size") // patch) ** 2 + 1
    ratios = 9
    encoder = (
        *_matrix("attn.qkv", 3 * width, width, "column", depth + gated, bias=False),
        *_matrix("attn.proj", width, width, "row", depth + gated, bias=False),
        *_matrix("mlp.fc1", inter, width, "column", depth + gated),
        *_matrix("mlp.fc2", width, inter, "row", depth + gated),
        *_vectors(width, 4 * (depth + gated)),
        *_vectors(1, 2 * gated),
    )
    return (
        *_matrix("patch_embedding", width, v.integer("num_channels", default=3) * patch**2, "column", bias=False),
        *_vectors(width, 5),
        Tensor("visual.position_embedding", patches, width, "replicated", "vision", linear=False),
        Tensor("visual.tile_position_embedding", ratios * tiles * patches, width, "replicated", "vision", linear=False),
        Tensor("visual.tile_embeddings", ratios * tiles, width, "replicated", "vision", count=2, linear=False),
        *_vectors(1, 3),
        *encoder,
        *_matrix("projector", hidden, out, "column"),
    )


TOWERS: dict[str, Callable[[Config, int, Config], Tensors]] = {
    "qwen3": qwen3,
    "qwen25": qwen25,
    "glm5": glm5,
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "pixtral": pixtral,
    "llama4": llama4,
    "kimi": kimi,
    "internvl": internvl,
    "mllama": mllama,
}
