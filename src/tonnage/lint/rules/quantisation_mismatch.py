"""--quantization names another method than the checkpoint is stored in.

The engine reads the method from the checkpoint and refuses a flag that contradicts it; a method that needs a quantised checkpoint
finds no configuration in a plain one. Left out, the right one is taken.

BAD (engine=vllm 0.24, model=Qwen/Qwen3-32B-AWQ):

    vllm serve /models/qwen3-32b-awq --served-model-name m-32b-v1 --host 127.0.0.1 --max-num-seqs 8 --max-model-len 8192 --quantization gptq

GOOD (engine=vllm 0.24, model=Qwen/Qwen3-32B-AWQ):

    vllm serve /models/qwen3-32b-awq --served-model-name m-32b-v1 --host 127.0.0.1 --max-num-seqs 8 --max-model-len 8192
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "quantisation-mismatch"
SEVERITY = "error"
ENGINES = ("vllm", "sglang")
NEEDS = ("model",)

READS: dict[str, tuple[str, ...]] = {
    "awq": ("awq", "awq_marlin", "ipex", "moe_wna16", "inc", "auto-round", "auto_awq"),
    "gptq": ("gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas", "ipex", "moe_wna16", "inc", "auto-round", "auto_gptq"),
    "fp8": ("fp8", "w8a8_fp8", "ptpc_fp8"),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "compressed-tensors": ("compressed-tensors",),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_fp8", "modelopt_mxfp8"),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4", "quark"),
}
"""The flags that read each checkpoint's method (vLLM's override_quantization_method)."""
FROM_CHECKPOINT = {
    "awq",
    "awq_marlin",
    "gptq",
    "gptq_marlin",
    "gptq_marlin_24",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "mxfp4",
    "fbgemm_fp8",
}
"""Methods that need a checkpoint stored so; others quantise while they load."""


def check(case: Case) -> Iterator[Problem]:
    flag = case.server.flag("--quantization")
    asked = case.server.text("--quantization").lower()
    if flag is None or not asked or case.model is None or asked == "none":
        return
    stored = case.model.shape.quantisation
    if stored.method:
        if asked in READS.get(stored.method, (stored.method,)):
            return
        why = f"{case.model.name} is stored as {stored.label} ({stored.method}); the engine refuses the pair"
    elif asked in FROM_CHECKPOINT:
        why = f"{case.model.name} is not quantised, and {asked} needs a checkpoint stored so"
    else:
        return
    yield Problem(flag.place, f"--quantization {asked} for another checkpoint", why, "drop --quantization: it is read from the checkpoint")
