"""Overhead: what an engine takes on each card besides weights and cache, line by line, each with its band.

Laws, no constant per model: context and communication by link, parallelism and release; the activation peak from shapes
(`activation.py`); CUDA graphs by captured sizes and layers; copies made while loading; adapters. A band is as wide as
the residuals of the measured starts inside the settings they cover, and widens with each step away from them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

import msgspec

from tonnage.facts.overheads import Envelope, Evidence, OverheadConstants, Steps, at_release, capability_key, release_of
from tonnage.facts.provenance import Banded, Confidence
from tonnage.facts.tensors import Tensor
from tonnage.memory.activation import EngineLoad, Peak, peak, second_runner
from tonnage.memory.weights import rank_shape
from tonnage.units import counted, size

__all__ = ["EngineLoad", "Term", "distance", "overhead"]

BYTES_16 = 2


class Term(msgspec.Struct, frozen=True):
    """One line of the overhead. `charged` tells whether the release takes it from the budget before it sizes the cache."""

    label: str
    size: Banded
    why: str
    charged: bool


def overhead(load: EngineLoad, constants: OverheadConstants) -> tuple[Term, ...]:
    """Return the lines of the overhead on one rank: context and communication, activations, graphs, load copies, LoRA.

    >>> from tonnage.facts.model import read_model
    >>> from tonnage.facts.overheads import overhead_constants
    >>> from tonnage.memory.parallel import Parallelism
    >>> qwen3_8b = read_model({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 36,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
    ...     "max_position_embeddings": 4096})
    >>> h100 = EngineLoad(qwen3_8b, Parallelism(), (0, 19), (9, 0), "nvlink", max_num_seqs=1024, max_num_batched_tokens=8192)
    >>> for term in overhead(h100, overhead_constants()):  # published: 0.25, 2.21, estimate 0.84 and not charged
    ...     print(term.label, round(term.size.best / 2**30, 2), term.size.confidence, term.charged)
    context, comms 0.25 measured True
    activations 2.21 measured True
    CUDA graphs 0.81 measured False
    load copies 0.0 measured True
    """
    terms = [_context(load, constants), _activations(load, constants), _graphs(load, constants), _load_copies(load, constants)]
    if load.lora_slots and load.lora_rank:
        terms.append(_lora(load))
    return tuple(terms)


def distance(load: EngineLoad, envelope: Envelope, steps: Steps) -> float:
    """Return how far the load stands from the settings that rows support, in steps; 0 is inside."""
    oldest, newest = envelope.releases
    beyond = (
        max(oldest[1] - load.release[1], load.release[1] - newest[1], 0)
        if load.release[0] == newest[0]
        else steps.release_most / steps.release
    )
    away = min(beyond * steps.release, steps.release_most)
    if load.capability is None:
        away += steps.vendor
    elif capability_key(load.capability) not in envelope.capabilities:
        away += steps.capability
    if envelope.links and load.parallel.tp > 1 and load.link not in envelope.links:
        away += steps.link
    for value, known in ((load.max_num_seqs, envelope.sequences), (load.max_num_batched_tokens, envelope.batch)):
        if known is not None:
            away += steps.doubling * max(log2(known[0] / value), log2(value / known[1]), 0.0)
    away += steps.parallel * ((load.parallel.tp > envelope.tp) + (load.parallel.pp > envelope.pp) + (load.parallel.dp > 1))
    return away


def _banded(best: int, evidence: Evidence, away: float, *, below: int = 0, above: int = 0, share: float = 1.0) -> Banded:
    """Return a number with the band of its evidence, wider by each step away; `share` scales it where less is at stake."""
    wider = away * (evidence.step + evidence.step_share * best)
    confidence: Confidence = "measured" if away == 0 else "extrapolated"
    low = best - int((evidence.below + wider) * share) - below
    return Banded(best, max(0, low), best + int((evidence.above + wider) * share) + above, confidence, evidence.source)


def _context(load: EngineLoad, c: OverheadConstants) -> Term:
    law, tp = c.context, load.parallel.tp
    alone = law.staged if load.parallel.pp > 1 else at_release(law.alone, load.release)
    below = above = 0
    if load.capability is None:
        alone, below, above = law.rocm, law.rocm_spread, law.rocm_spread
    best = alone
    why = f"CUDA context and kernels {size(alone)}"
    ranks = tp if tp > 1 or not load.parallel.expert else load.parallel.ep
    if ranks > 1:
        link = load.link if load.link in law.link else "other"
        peers = (ranks - 1) * (law.peer + law.peer_layer * len(load.layers))
        best += law.link[link] + peers
        old = link == "nvlink" and load.capability is not None and load.capability < (9, 0)
        below += law.link_ampere_below if old else law.link_below[link]
        above += law.link_above[link]
        why += (
            f", collectives over {load.link} {size(law.link[link])}, {counted(ranks - 1, 'peer')} x {len(load.layers)} layers {size(peers)}"
        )
    elif load.parallel.pp > 1:
        why += "; a stage's collectives start before the engine's first look at the memory"
    if capability_key(load.capability) in law.unified:
        below, above = below + law.unified_spread, above + law.unified_spread
        why += "; memory shared with the CPU, where the page cache moves what counts as free"
    away = distance(load, law.envelope, c.steps)
    return Term("context, comms", _banded(best, law.evidence, away, below=below, above=above), why, True)


def _activations(load: EngineLoad, c: OverheadConstants) -> Term:
    law = c.activation
    found = peak(load, c)
    away = distance(load, law.envelope, c.steps)
    if second_runner(load, c):
        away += c.steps.runner
    away += c.steps.feature * (
        load.enforce_eager + bool(load.mtp) + (found.cause == "vision") + (load.parallel.expert and load.parallel.ep > 1)
    )
    band = _banded(found.bytes, law.evidence, away, below=_warm_saving(found))
    return Term("activations", band, found.why, True)


def _warm_saving(found: Peak) -> int:
    """Return what a start with a warm compile cache takes less."""
    return max(0, found.bytes - found.warm)


def captured(load: EngineLoad, largest: int) -> tuple[int, int]:
    """Return (graphs, largest captured size): mixed batches up to twice the sequences, decode batches up to the sequences.

    >>> from tonnage.facts.shape import ModelShape
    >>> from tonnage.memory.parallel import Parallelism
    >>> none = ModelShape("", "", 1, 1, 1, "bfloat16", 1, 1, 1, (), (), (), False)
    >>> [captured(EngineLoad(none, Parallelism(), (0, 19), None, "none", seqs, 8192), 512) for seqs in (1024, 256)]
    [(102, 512), (86, 512)]
    """
    drafted = load.max_num_seqs * (1 + load.mtp)
    most = min(2 * drafted, largest)
    sizes = [*(size for size in (1, 2, 4) if size <= most), *range(8, min(most, 256) + 1, 8), *range(272, most + 1, 16)]
    return len(sizes) + sum(size <= drafted for size in sizes), most


def _graphs(load: EngineLoad, c: OverheadConstants) -> Term:
    law = c.graphs
    rocm = load.capability is None
    charged = load.release >= release_of(law.charged_since_rocm if rocm else law.charged_since)
    if load.enforce_eager:
        return Term("CUDA graphs", Banded(0, 0, 0, "exact", "enforce_eager"), "none: enforce_eager", charged)
    graphs, most = captured(load, law.largest)
    layers = len(load.layers)
    first = (law.shared + (law.experts if load.shape.experts else 0)) * most // law.largest
    best = first + graphs * layers * law.graph_layer
    if rocm:
        best = int(best * law.rocm)
    away = distance(load, law.envelope, c.steps) + c.steps.feature * bool(load.mtp)
    usual, _ = captured(msgspec.structs.replace(load, max_num_seqs=law.envelope.sequences[1] if law.envelope.sequences else 1), law.largest)
    share = min(1.0, 0.2 + 0.8 * graphs / usual)  # what few sequences capture is small, and so is its error
    pair = law.pair_above if load.parallel.tp == 2 and charged else 0
    above = int((pair + (law.rocm_above if rocm else 0)) * share)
    band = _banded(best, law.evidence, away, above=above, share=share)
    why = f"{graphs} graphs up to {most} tokens x {layers} layers x {size(law.graph_layer)}, {size(first)} shared"
    return Term("CUDA graphs", band, why + ("" if charged else "; captured after the cache is sized, outside the budget"), charged)


def _load_copies(load: EngineLoad, c: OverheadConstants) -> Term:
    """Return what loading leaves: latent attention's second up-projection, and the peak of repacking one layer's experts."""
    law = c.load
    latent = _rank_elements(load, lambda tensor: law.latent_copies and tensor.name.endswith("kv_b_proj"))
    best = sum(latent) * load.bytes_each
    told = [f"latent attention keeps its up-projection twice: {sum(latent):,} elements x {load.bytes_each} B"] if best else []
    counted = load.release <= release_of(law.peak_until)
    schemes = {target.scheme for target in load.shape.quantisation.targets}
    repacked = [scheme for scheme in schemes if scheme.form in law.repacked.get(capability_key(load.capability), ())]
    if repacked and counted:
        layer = max(_rank_elements(load, lambda tensor: tensor.experts > 0), default=0)
        scales = 8 / repacked[0].group if repacked[0].group else 0
        peak_bytes = law.repacked_copies * int(layer * (repacked[0].bits + scales) / 8)
        best += peak_bytes
        told.append(f"one layer's {repacked[0].form} experts old and new while they are repacked, {size(peak_bytes)}")
    if counted:
        told.append("the weights are read at their peak while loading")
    away = distance(load, law.envelope, c.steps)
    return Term("load copies", _banded(best, law.evidence, away), "; ".join(told) or "nothing kept beyond the parameters", True)


def _rank_elements(load: EngineLoad, wanted: Callable[[Tensor], bool]) -> list[int]:
    """Return, layer by layer, the elements of the matrices that are wanted, on this rank."""
    known: dict[int, int] = {}
    for layer in load.layers:  # equal layers are one value, summed once
        if id(layer) not in known:
            known[id(layer)] = sum(prod(rank_shape(t, load.parallel)) for t in layer.tensors if t.linear and wanted(t))
    return [known[id(layer)] for layer in load.layers]


def _lora(load: EngineLoad) -> Term:
    """Return the slots for adapters: A (rank x inputs) and B (outputs x rank) of every matrix, in 16 bits, on this rank.

    Of a column-parallel matrix each rank holds all of A, of a row-parallel one all of B.
    """
    elements = routed = 0
    for layer in load.layers:
        for tensor in layer.tensors:
            if tensor.linear and tensor.cls in ("attention", "state", "mlp", "experts"):
                rows, cols, copies = rank_shape(tensor, load.parallel)
                elements += copies * (rows + cols)
                routed += copies * (rows + cols) if tensor.experts else 0
    each = load.lora_slots * load.lora_rank * BYTES_16
    why = f"{load.lora_slots} slots x rank {load.lora_rank} x {elements:,} rows and columns x 2 B"
    if routed:
        why += "; without slots for the experts, the low end"
    band = Banded(each * elements, each * (elements - routed) * 9 // 10, each * elements * 12 // 10, "extrapolated", "arithmetic; no row")
    return Term("LoRA", band, why, True)
