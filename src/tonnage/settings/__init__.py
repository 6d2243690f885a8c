"""What an engine is told: parallelism, precisions, limits. Typed, and complete only once defaults are resolved.

Fields carry vLLM's names where they are vLLM's. None leaves the choice to the engine's release (`facts/engine.py`).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Parallelism(msgspec.Struct, frozen=True):
    """Sizes of the groups of one replica; `cards` of them hold it. `expert` spreads whole experts over tp x dp ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    expert: bool = False

    @property
    def cards(self) -> int:
        """Cards of one replica, data-parallel ranks included."""
        return self.tp * self.pp * self.dp

    @property
    def ep(self) -> int:
        """Ranks that share the experts; 1 where every rank holds a slice of each."""
        return self.tp * self.dp if self.expert else 1


class LoRA(msgspec.Struct, frozen=True):
    """Adapters an engine keeps loaded: how many at once, and their largest rank."""

    count: int = 0
    rank: int = 0


class EngineSettings(msgspec.Struct, frozen=True):
    """The settings of one replica. Lengths in tokens, utilization as a share of the card's memory.

    `device` "cpu" is vLLM's CPU build, whose blocks and limits are its own.
    `num_speculative_tokens` above 0 turns on multi-token prediction with the model's own draft layers.
    """

    engine: str = "vllm"
    release: tuple[int, int] = (0, 33)
    device: Literal["gpu", "cpu"] = "gpu"
    parallel: Parallelism = Parallelism()
    weights: str = "checkpoint"
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None
    block_size: int | None = None
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str = ""
    num_speculative_tokens: int = 0
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    enforce_eager: bool = False
    language_model_only: bool = False
    lora: LoRA = LoRA()

    @property
    def release_name(self) -> str:
        """The engine and release as people write them: vLLM 0.33."""
        names = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "ollama": "Ollama"}
        release = f" {self.release[0]}.{self.release[1]}" if self.release > (0, 0) else ""
        return names.get(self.engine, self.engine) + release
