"""What is vLLM told about a machine that is not there? Every step below is one thing that is faked; `FAKED` lists them.

A step says in its docstring what it fakes; `tonnage oracle --what-is-faked` prints those very sentences. Everything else
that answers is vLLM's own code.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from tonnage.oracle.find import find, vllm
from tonnage.oracle.job import Card
from tonnage.oracle.meta import on_meta, one_rank_of_each_stage
from tonnage.oracle.stubs import stand_in_for_modules, stand_in_for_operators

H100_UNITS = 132
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "CUDA_VISIBLE_DEVICES": "",
}

NOT_LOADED: list[Exception] = []
"""Why a model's class could not be imported; vLLM itself tells only that it could not."""


def pretend(card: Card) -> None:
    """Make this process's vLLM, not imported yet, believe in the card. It stays so until the process ends."""
    for step in FAKED:
        step(card)


def no_network(card: Card) -> None:
    """Hub and usage statistics are switched off, and no CUDA device is visible: a folder is all that is read."""
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def compiled_parts(card: Card) -> None:
    """vLLM's compiled extensions and GPU-only packages are empty modules; their operators say "supported", and compute nothing."""
    vllm()
    torch = importlib.import_module("torch")
    for needed in ("tvm_ffi", "xgrammar"):
        with suppress(ImportError):
            importlib.import_module(needed)
    stand_in_for_modules()
    stand_in_for_operators(torch)


def torch_cuda(card: Card) -> None:
    """torch.cuda reports the card that was asked for: its name, compute capability and memory; streams and events do nothing."""
    torch = importlib.import_module("torch")
    nothing = type(
        "Stream", (), {"cuda_stream": 0, "__init__": lambda self, *a, **k: None, "__getattr__": lambda self, name: lambda *a, **k: None}
    )
    major, minor = card.capability
    properties = SimpleNamespace(
        name=card.name, major=major, minor=minor, total_memory=card.bytes, multi_processor_count=H100_UNITS, warp_size=32,
        shared_memory_per_block_optin=232_448, L2_cache_size=50 * 2**20, regs_per_multiprocessor=65_536,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": False, "get_device_properties": properties, "get_device_capability": card.capability,
        "get_device_name": card.name, "device_count": 64, "current_device": 0, "current_stream": nothing(),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, _always(answer))
    torch.cuda.Stream, torch.cuda.Event = nothing, type("Event", (nothing,), {})
    for name, answer in (("empty_cache", None), ("synchronize", None), ("current_device_index", 0)):
        setattr(torch.accelerator, name, _always(answer))


def platform(card: Card) -> None:
    """vLLM's platform object is its own CudaPlatformBase, with capability, name, memory and number of units (132) filled in."""
    platforms = importlib.import_module("vllm.platforms")
    base, capability = find("vllm.platforms.cuda.CudaPlatformBase"), find("vllm.platforms.interface.DeviceCapability")
    major, minor = card.capability
    answers = {
        "get_device_capability": capability(major, minor), "get_device_name": card.name, "get_device_total_memory": card.bytes,
        "get_device_uuid": "GPU-none", "is_fully_connected": True, "device_count": 64, "get_cuda_runtime_major": 13,
        "num_compute_units": H100_UNITS, "get_device_numa_node": 0, "get_all_device_numa_nodes": [0], "is_integrated_gpu": False,
        "log_warnings": None, "set_device": None,
    }  # fmt: skip
    body: dict[str, Any] = {name: staticmethod(_always(answer)) for name, answer in answers.items()}
    body["has_device_capability"] = staticmethod(
        lambda asked, device_id=0: card.capability >= (asked if isinstance(asked, tuple) else divmod(asked, 10))
    )
    setattr(platforms, "_current_platform", type("PretendedCuda", (base,), body)())  # noqa: B010


def kernels_present(card: Card) -> None:
    """DeepGEMM and Triton count as usable, as in a CUDA build with a card; nothing is compiled."""
    importlib.import_module("vllm.platforms").vllm_version_matches_substr = _always(False)  # type: ignore[attr-defined]
    find("vllm.utils.import_utils.has_deep_gemm")
    importlib.import_module("vllm.utils.import_utils").has_deep_gemm = _always(True)  # type: ignore[attr-defined]
    if not find("vllm.triton_utils.importing.HAS_TRITON"):
        find("vllm.triton_utils.triton").Config = TritonConfig
    find("vllm.config.vllm.HAS_TRITON")
    importlib.import_module("vllm.config.vllm").HAS_TRITON = True  # type: ignore[attr-defined]


def one_process(card: Card) -> None:
    """Model classes are inspected in this process, not in a child that would know nothing of the pretended card."""
    info, registered = (
        find("vllm.model_executor.models.registry._ModelInfo"),
        find("vllm.model_executor.models.registry._LazyRegisteredModel"),
    )

    def inspect(self: Any) -> Any:
        try:
            return info.from_model_cls(self.load_model_cls())
        except Exception as error:
            NOT_LOADED.append(error)
            raise

    registered.inspect_model_cls = inspect


class TritonConfig:
    """A tuning choice of a Triton kernel, where Triton is not installed: vLLM drops some of them by card."""

    def __init__(self, kwargs: Any = None, num_warps: int = 4, num_stages: int = 1, **_: object) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs or {}, num_warps, num_stages


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


FAKED: tuple[Callable[[Card], None], ...] = (no_network, compiled_parts, torch_cuda, platform, kernels_present, one_process)

NOT_ASKED = {
    "profile run": "No forward pass is run: what activations and graphs leave for the cache is an input (--available-kv-bytes).",
    "loaded weights": "Parameters are counted as vLLM creates them; what a kernel pads or repacks after loading is not seen.",
    "other kernels": "Kernels are chosen among those of this build: a CPU build has neither triton_kernels nor FlashAttention 4, "
    "so it pads MXFP4 experts for Marlin, and keeps blocks of 16 under wide heads with an FP8 cache.",
    "other ranks": "Rank 0 of each stage stands for its stage; every rank is taken to have the same bytes for its cache.",
}


def what_is_faked() -> dict[str, dict[str, str]]:
    """Return what is faked, and what is not asked at all: a name and a sentence each."""
    steps = (*FAKED, on_meta, one_rank_of_each_stage)
    return {"faked": {step.__name__.replace("_", " "): " ".join((step.__doc__ or "").split()) for step in steps}, "not_asked": NOT_ASKED}
