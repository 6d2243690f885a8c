"""How long one engine step takes on a replica: affine in the context of what decodes, so that many steps can be taken at once.

    gemm(n)   = max(weight bytes touched / bandwidth, 2 x active parameters x n / FLOPS), plus a floor a kernel
    attention = context bytes / bandwidth while decoding; 4 x layers x heads x head_dim x T (ctx + T/2) / FLOPS in prefill
    comm(n)   = 2 all-reduces a layer: latency + 2 (t - 1) / t x n x hidden x 2 B / link
    host(B)   = c0 + c1 x layers + c2 x B, hidden behind the step where scheduling is asynchronous

Efficiencies a card and constants a generation of the engine are data (`facts/speeds.py`). Sources: reference measurements of
operators and servers, named there.
"""

from __future__ import annotations

from math import inf

import msgspec

from tonnage.facts.gpu import Card
from tonnage.facts.shape import KVCache, LatentCache, ModelShape
from tonnage.facts.speeds import Speeds, efficiency
from tonnage.memory.kv import ContextCost
from tonnage.memory.weights import byte_shares
from tonnage.settings import EngineSettings

EXPERT_SHARE = 0.55
"""What grouped matrices of experts reach of what one matrix does: by 160 measured rows of five models on four cards (medians of
each between 0.45 and 0.75; Kimi's int4 experts less). The widest guess of the step; a sweep of the own server replaces it."""


MLA_WIDTH = 160
"""Mean of what queries and keys (128 + 64) and values (128) of DeepSeek's multi-head latent attention are wide in prefill."""


class StepTime:
    """The step time of one replica. `base[B]` is a decode step of B sequences without their context, `per_token` each token of it.

    `host[B]` is the least a step takes with asynchronous scheduling; without it host time is part of `base`.
    """

    __slots__ = ("_hosts", "attention_per_pair", "base", "host", "hosted", "known_work", "model", "per_sequence", "per_token")

    def __init__(self, model: StepModel, most: int) -> None:
        self.model = model
        self.per_token = model.context_s_per_token
        self.attention_per_pair = model.attention_s_per_pair
        self.known_work: dict[int, float] = {}
        self._hosts = [model.host_s(count) for count in range(most + 2)]
        self.hosted = model.asynchronous
        self.host = [model.host_s(count) if model.asynchronous else 0.0 for count in range(most + 2)]
        extra = [0.0 if model.asynchronous else model.host_s(count) for count in range(most + 2)]
        each = model.sequence_s
        self.base = [self.work(count) + count * each + extra[count] for count in range(most + 2)]
        self.per_sequence = each

    def work(self, tokens: int) -> float:
        """Return what so many tokens cost in matrices and communication, whichever sequences they are of."""
        known = self.known_work.get(tokens)
        if known is None:
            known = self.known_work[tokens] = self.model.gemm_s(tokens) + self.model.comm_s(tokens)
        return known

    def host_of(self, sequences: int) -> float:
        """Return the engine's own time for a step of so many sequences."""
        return self._hosts[sequences] if sequences < len(self._hosts) else self.model.host_s(sequences)

    def mixed(self, decoding: int, context: int, chunks: list[tuple[int, int]]) -> float:
        """Return the time of a step: `decoding` sequences over `context` tokens, and prefill chunks of (tokens, context before them)."""
        tokens, pairs = decoding, 0.0
        for count, before in chunks:
            tokens += count
            pairs += count * (before + count / 2)
        time = self.work(tokens) + decoding * self.per_sequence + context * self.per_token + pairs * self.attention_per_pair
        host = self.host_of(decoding + len(chunks))
        return max(time, host) if self.hosted else time + host


class StepModel(msgspec.Struct, frozen=True):
    """The constants of a replica's step: bytes, operations and rates of one rank, and the engine's own time."""

    dense_bytes: float
    expert_bytes: float
    expert_bandwidth_share: float
    experts: int
    experts_per_token: int
    expert_ranks: int
    dense_flop: float
    expert_flop: float
    bandwidth: float
    speeds: Speeds
    peak_flops: float
    kernels: int
    context_s_per_token: float
    sequence_s: float
    attention_s_per_pair: float
    layers: int
    ranks: int
    hidden_bytes: float
    link_bytes_per_s: float
    link_latency_s: float
    host: tuple[float, float, float]
    asynchronous: bool

    def gemm_s(self, tokens: int) -> float:
        """Return the time of the matrices for so many tokens: what is larger, reading them or computing with them."""
        if tokens <= 0:
            return 0.0
        return max(self.memory_s(tokens), self.compute_s(tokens)) + self.kernels * self.speeds.kernel_floor_s

    def memory_s(self, tokens: int) -> float:
        """Return the time to read the weights that so many tokens touch."""
        covered = 1 - (1 - self.experts_per_token / self.experts) ** (tokens * self.expert_ranks) if self.experts else 1.0
        dense = self.dense_bytes / (self.bandwidth * self.speeds.gemm_bandwidth_share)
        return dense + self.expert_bytes * covered / (self.bandwidth * self.expert_bandwidth_share)

    def compute_s(self, tokens: int) -> float:
        """Return the time to multiply them."""
        flop = self.dense_flop + self.expert_flop / EXPERT_SHARE
        return flop * tokens / (self.peak_flops * self.speeds.gemm_compute_share(tokens))

    def comm_s(self, tokens: int) -> float:
        """Return the time of two all-reduces a layer."""
        if self.ranks == 1 or tokens <= 0:
            return 0.0
        moved = 2 * (self.ranks - 1) / self.ranks * tokens * self.hidden_bytes
        each = self.link_latency_s + (moved / self.link_bytes_per_s if self.link_bytes_per_s else 0.0)
        return 2 * self.layers * each

    def host_s(self, sequences: int) -> float:
        """Return the engine's own time for a step of so many sequences."""
        fixed, per_layer, per_sequence = self.host
        return fixed + per_layer * self.layers + per_sequence * sequences


def step_model(shape: ModelShape, card: Card, settings: EngineSettings, cost: ContextCost, weights_bytes: int, longest: int) -> StepModel:
    """Return the step of a replica from facts: its shape, card and settings, the cost of context on a rank, weights of a rank.

    `longest` tells how far windows count: a sliding layer reads no more than its window.
    """
    narrow = "fp8" in shape.quantisation.label.lower() and "fp8" in card.flops
    speeds = efficiency(card, settings.engine, settings.release, fp8=narrow)
    tp, stages = settings.parallel.tp, settings.parallel.pp
    routed = sum(t.elements for layer in shape.layers for t in layer.tensors if t.experts)
    total = max(1, shape.params_total)
    expert_share, embedding_share = byte_shares(shape)
    weights = float(weights_bytes * stages)
    embedding = embedding_share * weights if not shape.tied else 0.0
    expert_bytes = expert_share * weights
    dense_bytes = max(0.0, weights - expert_bytes - embedding)
    active_experts = routed * shape.experts_per_token / shape.experts if shape.experts else 0.0
    dense_params = max(0, total - routed - sum(t.elements for t in shape.embedding))
    flops = _peak(card, shape)
    bandwidth = card.bandwidth_bytes_per_s
    context_bytes = cost.per_token * stages + sum(size for window, size in cost.windows if window >= longest) * stages
    windowed = sum(size * window for window, size in cost.windows if window < longest)
    sequence_bytes = (windowed + 2 * cost.state_bytes) * stages  # a window is read, a state is read and written
    width = sum(_width(cache, shape, longest) for layer in shape.layers for cache in layer.caches)
    pair_flop = 4 * shape.heads * width / tp
    return StepModel(
        dense_bytes=dense_bytes,
        expert_bytes=expert_bytes,
        expert_bandwidth_share=EXPERT_SHARE * efficiency(card, settings.engine, settings.release).gemm_bandwidth_share,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        expert_ranks=settings.parallel.dp if settings.parallel.expert else 1,
        dense_flop=2 * dense_params / tp,
        expert_flop=2 * active_experts / tp,
        bandwidth=bandwidth,
        speeds=speeds,
        peak_flops=flops,
        kernels=6 * len(shape.layers),
        context_s_per_token=context_bytes / (bandwidth * speeds.attention_bandwidth_share),
        sequence_s=sequence_bytes / (bandwidth * speeds.attention_bandwidth_share),
        attention_s_per_pair=pair_flop / (flops * speeds.attention_compute_share),
        layers=len(shape.layers),
        ranks=tp,
        hidden_bytes=shape.hidden_size * 2,
        link_bytes_per_s=(card.link_bytes_per_s or card.pcie_bytes_per_s) / 2,
        link_latency_s=speeds.link_latency(tp, card.link),
        host=speeds.host,
        asynchronous=settings.async_scheduling,
    )


def _width(cache: object, shape: ModelShape, longest: int) -> float:
    """Return the dimensions that a prompt's token and one before it are multiplied over; fewer where a window hides most of them."""
    if isinstance(cache, LatentCache):
        return MLA_WIDTH
    if not isinstance(cache, KVCache):
        return 0.0
    return shape.head_dim * (min(1.0, 2 * cache.window / longest) if cache.window else 1.0)


def _peak(card: Card, shape: ModelShape) -> float:
    """Return the dense rate of the format that the weights are multiplied in."""
    label = shape.quantisation.label.lower()
    for word, format in (("nvfp4", "fp4"), ("fp8", "fp8"), ("int8", "int8")):
        if word in label and format in card.flops:
            return card.flops[format]
    found = card.flops.get("bf16") or card.flops.get("fp16") or max(card.flops.values(), default=inf)
    return found if found < inf else 1e14
