"""The card cannot run the number format that is asked for, and the engine refuses to start.

bfloat16 needs compute capability 8.0 (a T4 has 7.5), ModelOpt's FP8 checkpoints 8.9 up to release 0.28, MXFP4 8.0. What falls
back to weight-only kernels (FP8 on an A100) starts and is not meant here. Gemma 2 and 3 refuse float16.

BAD (gpu=T4, engine=vllm 0.20, model=Qwen/Qwen2.5-3B-Instruct):

    vllm serve /models/m --served-model-name m-3b-v1 --host 127.0.0.1 --max-model-len 6144 --max-num-seqs 8 --dtype bfloat16

GOOD (gpu=T4, engine=vllm 0.20, model=Qwen/Qwen2.5-3B-Instruct):

    vllm serve /models/m --served-model-name m-3b-v1 --host 127.0.0.1 --max-model-len 6144 --max-num-seqs 8 --dtype half
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "precision-unsupported"
SEVERITY = "error"
ENGINES = ("vllm", "sglang")
NEEDS = ("gpu",)

HALF_REFUSED = ("Gemma2", "Gemma3", "Glm4ForCausalLM")
"""Architectures that refuse float16 for its range (vLLM, config/model.py: _FLOAT16_NOT_SUPPORTED_MODELS)."""

LEAST: dict[str, tuple[tuple[int, int], str]] = {
    "mxfp4": ((8, 0), "MXFP4"),
    "nvfp4": ((7, 5), "NVFP4"),
    "fp8": ((7, 5), "FP8"),
    "fbgemm_fp8": ((8, 0), "FP8"),
    "compressed-tensors": ((7, 5), "this checkpoint's format"),
    "awq": ((7, 5), "AWQ"),
    "gptq": ((6, 0), "GPTQ"),
}
"""The least compute capability of each method (vLLM 0.32, get_min_capability of model_executor/layers/quantization)."""
TURING, TURING_SINCE = ("fp8", "nvfp4", "compressed-tensors"), (0, 14)
"""Methods whose weight-only kernels came to compute capability 7.5 with pull request 29901 (0.14); before it was 8.0."""
MODELOPT_FP8_EASED = (0, 29)
"""From here ModelOpt's FP8 weights run weight-only before 8.9."""


def check(case: Case) -> Iterator[Problem]:
    card = case.card
    if card is None or card.compute_capability is None:
        return
    have = card.compute_capability
    named = f"{card.name} has compute capability {have[0]}.{have[1]}"
    flag = case.server.flag("--dtype")
    dtype = case.server.text("--dtype").lower()
    if flag is not None and dtype == "bfloat16" and have < (8, 0):
        yield Problem(
            flag.place,
            "--dtype bfloat16 on a card without it",
            f"{named}; bfloat16 needs 8.0",
            "use --dtype half, or auto, which falls back to it here",
        )
    architecture = case.model.shape.architecture if case.model is not None else ""
    if flag is not None and dtype in ("half", "float16") and architecture.startswith(HALF_REFUSED):
        yield Problem(
            flag.place, f"--dtype {dtype} for a model that refuses it", f"{architecture} overflows in float16; the engine refuses it",
            "use bfloat16 on a card of 8.0 or later, or float32",
        )  # fmt: skip
    yield from _weights(case, have, named)
    quantised = case.server.flag("--quantization")
    needed = (8, 0) if (case.release or TURING_SINCE) < TURING_SINCE else (7, 5)
    if quantised is not None and quantised.value == "fp8" and have < needed:
        yield Problem(
            quantised.place,
            "--quantization fp8 on a card without kernels for it",
            f"{named}; FP8 weights need {needed[0]}.{needed[1]}",
            "serve 16-bit weights",
        )


def _weights(case: Case, have: tuple[int, int], named: str) -> Iterator[Problem]:
    if case.model is None:
        return
    quantisation = case.model.shape.quantisation
    place = case.server.model.place if case.server.model is not None else case.server.place
    method, label = quantisation.method, quantisation.label
    least, word = LEAST.get(method, ((0, 0), label))
    if method in TURING and (case.release or TURING_SINCE) < TURING_SINCE:
        least = (8, 0)
    if method == "modelopt" and "FP8" in label and "NVFP4" not in label and (case.release or (0, 0)) < MODELOPT_FP8_EASED:
        least, word = (8, 9), "ModelOpt's FP8"
    if have < least:
        yield Problem(
            place,
            f"{case.model.name} is stored as {label}, which this card cannot run",
            f"{named}; {word} needs {least[0]}.{least[1]} in this release",
            "use a checkpoint in another precision, or a card that has it",
        )
