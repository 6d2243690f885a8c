"""Which words of a log mean which cause? One table; an out-of-memory is told apart by where it came from.

Sources: the releases' own messages (vLLM 0.5 to 0.33, PyTorch, NCCL, transformers, huggingface_hub, safetensors), SGLang and
llama.cpp as their public logs show them. What is in `NOISE` looks like a cause and is none.
"""
# ruff: noqa: E501 - messages and lines are quoted as they are written

from __future__ import annotations

import re

SIGNS: tuple[tuple[str, str], ...] = (
    ("oom-sampler", r"out of memory occurred when warming up sampler with (?P<seqs>\d+) dummy requests"),
    ("oom-weights", r"Failed to load model - not enough GPU memory"),
    ("oom-weights", r"unable to allocate CUDA\d+ buffer|error loading model: .*alloc"),
    ("oom-activation", r"failed to allocate compute (?:pp |tg )?buffers?"),
    ("oom-graph", r"Capture cuda ?graph failed"),
    ("oom", r"(?:CUDA|HIP) out of memory|OutOfMemoryError|CUDA error: out of memory|cudaMalloc failed: out of memory"),
    (
        "memory-held-by-others",
        r"Free memory on device (?P<device>\S*) ?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than desired GPU memory utilization "
        r"\((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
    ),
    ("memory-held-by-others", r"Free memory on device .*is less than desired|Error in memory profiling\. Initial free memory|Some GPUs may be occupied by other processes"),
    (
        "max-len-exceeds-cache",
        r"To serve at least one request with the model(?:s)?.s max seq len \((?P<longest>\d+)\), \(?(?P<needed>[\d.]+) Gi?B KV cache is needed, which is larger "
        r"than the available KV cache memory \((?P<have>-?[\d.]+) Gi?B\)(?:.*estimated maximum model length is (?P<fits>\d+))?",
    ),
    (
        "max-len-exceeds-cache",
        r"The models?'s max seq len \((?P<longest>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<fits>\d+)\)",
    ),
    ("no-cache-blocks", r"No available memory for the cache blocks|Not enough memory\. Please try to increase --mem-fraction-static"),
    ("no-cache-blocks", r"failed to allocate (?:buffer for )?(?:kv|KV) cache"),
    ("seqs-above-state-blocks", r"max_num_seqs \((?P<seqs>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)"),
    (
        "tp-indivisible",
        r"Total number of attention heads \((?P<heads>\d+)\) must be divisible by (?:the )?tensor parallel size \((?P<tp>\d+)\)",
    ),
    ("tp-indivisible", r"AssertionError: (?P<heads>\d+) is not divisible by (?P<tp>\d+)|is not divisible by weight quantization block"),
    ("tp-indivisible", r"(?:input|output)_size_per_partition = \d+ is not divisible|not divisible by (?:the )?(?:tp|tensor.parallel)[_ ]size"),
    ("tp-indivisible", r"not aligned with the quantized weight shape\. This can be caused by too large tensor parallel size"),
    ("precision-unsupported", r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<card>.+?) GPU has compute capability (?P<have>[\d.]+)"),
    (
        "precision-unsupported",
        r"quantization method (?P<method>\S+) is not supported for the current GPU\. Minimum capability: (?P<least>\d+)\. Current capability: (?P<current>\d+)",
    ),
    ("precision-unsupported", r"does not support float16\. Reason|No compiled \w+ quantization kernel|fp8e4nv not supported in this architecture|_scaled_mm is only supported on CUDA devices"),
    ("precision-unsupported", r"Bfloat16 is only supported|(?:FP8|fp8|NVFP4|MXFP4) .{0,60}(?:requires|only supported).{0,60}(?:capability|sm_?\d|SM\d)"),
    ("flag-unknown", r"error: unrecognized arguments: (?P<flags>.+)"),
    ("flag-unknown", r"error: argument (?P<flags>-\S+): invalid choice: (?P<value>\S+)|error: ambiguous option: (?P<short>\S+)|error: invalid argument: (?P<unknown>-\S+)"),
    ("flag-unknown", r"EngineArgs\.__init__\(\) got an unexpected keyword argument '(?P<keyword>\w+)'"),
    ("shm-too-small", r"failed to extend /dev/shm|creating shared memory segment .*No space left|/dev/shm.*No space left on device"),
    ("shm-too-small", r"insufficient shared memory \(shm\)|out of shared memory\. Please try to raise your shared memory limit|Bus error|Error while creating shared memory segment"),
    ("shm-too-small", r"unable to write to file </torch_\S+>: No space left on device|No space left on device: '/(?:psm|torch|sem|vllm|nccl)[_-]"),
    ("hub-unreachable", r"couldn't connect to 'https?://(?:huggingface\.co|hf-mirror|modelscope)|Max retries exceeded with url: \S*/(?:resolve|revision)/|Cannot reach https://huggingface\.co"),
    ("hub-unreachable", r"(?:NameResolutionError|Failed to resolve|Temporary failure in name resolution)(?:.*(?:huggingface|hf-mirror|hf\.co|modelscope)|[^']*$)|LocalEntryNotFoundError|OfflineModeIsEnabled"),
    ("hub-unreachable", r"access a gated repo|Access to model .+ is restricted|(?:401|403) Client Error.*huggingface\.co"),
    ("hub-unreachable", r"is not a local folder and is not a valid model identifier|cannot find the requested files in the (?:disk|local) cache"),
    ("remote-code-refused", r"contains custom code which must be executed|Please pass the argument `?trust_remote_code=True`?|consider setting `?trust_remote_code=True`?|set the option `?trust_remote_code=True`?"),
    ("architecture-unsupported", r"model type `(?P<kind>[^`]+)` but Transformers does not recognize this architecture"),
    ("architecture-unsupported", r"Model architectures (?P<kind>\[[^\]]*\]) (?:are not supported|failed to be inspected)|has no vLLM implementation(?!.*falling back)|Unrecognized model in"),
    ("architecture-unsupported", r"unknown model architecture: '(?P<kind>[^']+)'|GGUF model with architecture \S+ is not supported"),
    ("architecture-unsupported", r"Cannot find model module\. |Unsupported architectures: .*Supported list"),
    ("collective-timeout", r"Watchdog caught collective operation timeout: WorkNCCL\(.*?OpType=(?P<op>\w+).*?Timeout\(ms\)=(?P<ms>\d+)\)"),
    ("collective-timeout", r"collective operation timeout|RPC call to \w+ timed out|DistBackendError.*(?:timeout|timed out)|client socket has timed out after|Timed out waiting \d+ms for|Timed out after \d+ seconds waiting for (?:clients|all workers)"),
    ("driver-mismatch", r"NVIDIA driver on your system is too old(?: \(found version (?P<driver>\d+)\))?|CUDA driver version is insufficient"),
    ("driver-mismatch", r"unsatisfied condition: cuda|Driver/library version mismatch|NVML/RM version mismatch|unsupported toolchain|unsupported display driver|no kernel image is available"),
    ("driver-mismatch", r"forward compatibility was attempted on non supported HW"),
    ("checkpoint-broken", r"SafetensorError|Error while deserializing header|file not fully covered|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeader|is not a valid JSON file|unable to mmap \d+ bytes from file"),
    ("checkpoint-broken", r"UnpicklingError|PytorchStreamReader failed|weights were not initialized from checkpoint|Cannot find any model weights"),
    ("checkpoint-broken", r"No such file or directory: '?\S+\.(?:safetensors|bin|gguf)|does not appear to have a file named|tensor .* data is not within the file bounds"),
    ("block-size-unsupported", r"No common block size for (?P<size>\d+)|block_size.{0,40}(?:must be|not supported)"),
    ("port-in-use", r"Address already in use|error while attempting to bind on address"),
    ("preempting", r"is preempted by PreemptionMode\.\w+.*total_num_cumulative_preemption=(?P<total>\d+)|is preempted by PreemptionMode"),
    ("preempting", r"Decode out of memory happened|KV cache pool is full\. Retract requests"),
    ("probe-killed", r"KeyboardInterrupt: terminated|received signal 15|Received signal:? (?:15|SIGTERM)|SIGTERM received|failed (?:startup|liveness) probe, will be restarted"),
)  # fmt: skip
"""(cause, pattern), in the order they are tried; groups are what the explanation quotes."""

OUT_OF_MEMORY = ("oom-weights", "oom-activation", "oom-graph", "oom-sampler")
STARTUP = frozenset({
    "memory-held-by-others", "max-len-exceeds-cache", "no-cache-blocks", "seqs-above-state-blocks", "tp-indivisible",
    "precision-unsupported", "flag-unknown", "shm-too-small", "hub-unreachable", "remote-code-refused", "architecture-unsupported",
    "driver-mismatch", "checkpoint-broken", "block-size-unsupported", "port-in-use",
})  # fmt: skip
"""Causes that stop a start: a server that came up in spite of them has got over them, and one that serves has them of a request."""


def literals(pattern: str) -> tuple[str, ...]:
    """Return words of which a text that matches holds at least one: the longest plain run of each alternative.

    They are looked for first, which costs a tenth of a search. Empty where an alternative has none of use.

    >>> literals("too old(?: at all)?|Bus error")
    ('too old', 'Bus error')
    """
    found = []
    for alternative in _alternatives(pattern):
        plain = re.sub(r"\\([.()|'\[\]{}+*?-])", lambda match: match[1] if match[1] in ".()[]-'" else "\0", _without_groups(alternative))
        runs = [
            run for run in re.split(r"\0|.\{[0-9,]*\}|\\[A-Za-z]|[A-Za-z0-9 .'`,)][?*{]|[\[\]^$|+*?{}]|(?<=[^ ])\.(?=[*+\0])", plain) if run
        ]
        best = max((run.strip(".") for run in runs), key=len, default="")
        if len(best) < 4:
            return ()
        found.append(best)
    return tuple(found)


def _alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a pattern outside of any group."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "(":
            depth += 1
        elif pattern[at] == ")":
            depth -= 1
        elif pattern[at] == "|" and not depth:
            parts.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*parts, pattern[start:]]


def _without_groups(pattern: str) -> str:
    """Return a pattern with each group, and what it holds, as one break."""
    out, depth, at = "", 0, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            out += pattern[at : at + 2] if not depth else ""
            at += 2
            continue
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            out += "\0" if not depth else ""
        elif not depth:
            out += character
        at += 1
    return out


_COMPILED = tuple((cause, re.compile(pattern), literals(pattern)) for cause, pattern in SIGNS)
_HINTS = re.compile(
    r"rror|emory|xceed|divisible|upport|ecogniz|unable|ailed|space left|Bus err|trust_remote|resolve|signal|terminated|timed? ?out|preempt|Retract|"
    r"arguments|too old|not fully|restricted|gated|mismatch|toolchain|condition|insufficient|architecture|max seq len|allocate|mmap|occupied|valid JSON|No common|in use|local folder|custom code|cache blocks"
)
NOISE = re.compile(
    r"No available shared memory broadcast block|Error retrieving file list|CUDA graph memory profiling failed|leaked shared_memory objects|destroy_process_group\(\) was not called|Using default MoE config|"
    r"does not have native support for FP4|CUDA graph memory profiling is enabled|scaling factor|Found ulimit of|is not found in LD_PRELOAD|"
    r"Engine core initialization failed|EngineCore failed to start|WorkerProc (?:failed to start|hit an exception)|FutureWarning|UserWarning|DeprecationWarning"
)
"""Lines that are remarks, or say only that something else went wrong."""

FRAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("oom-sampler", ("_dummy_sampler_run", "apply_top_k_top_p", "sampler_output", "sample_tokens")),
    (
        "oom-graph",
        ("capture_model", "_capture_cudagraphs", "cuda_graph.py", "capture_begin", "capture_graph", "CudaGraphRunner", "cuda_graph_runner"),
    ),
    ("oom-weights", ("load_model", "load_weights", "initialize_model", "process_weights_after_loading", "create_weights", "get_model")),
    ("oom-activation", ("profile_run", "determine_available_memory", "determine_num_available_blocks", "_dummy_run", "execute_model")),
    ("memory-held-by-others", ("initialize_kv_cache", "_allocate_kv_cache", "initialize_cache", "init_device", "initialize_from_config")),
)
"""Functions of a traceback, and what an out-of-memory inside them is; the first row that is met decides."""
STAGES = {
    "start": "oom-weights",
    "load": "oom-weights",
    "profile": "oom-activation",
    "cache": "oom-graph",
    "graphs": "oom-graph",
    "ready": "oom-activation",
}
"""What an out-of-memory is by the stage of the start, where no traceback says."""


def sign_of(text: str) -> tuple[str, re.Match[str]] | None:
    """Return the cause that a line speaks of, and the match; None where it speaks of none.

    >>> sign_of("ValueError: No available memory for the cache blocks. Try increasing ...")[0]
    'no-cache-blocks'
    """
    if _HINTS.search(text) is None or (NOISE.search(text) is not None and "NVIDIA driver" not in text):
        return None
    for cause, pattern, words in _COMPILED:
        for word in words:
            if word in text:
                break
        else:
            if words:
                continue
        match = pattern.search(text)
        if match is not None:
            return cause, match
    return None


def out_of_memory(frames: str, stage: str) -> str:
    """Return which out-of-memory it is, by the functions of its traceback, else by the stage of the start.

    >>> out_of_memory("worker.py profile_run forward", "profile"), out_of_memory("", "load")
    ('oom-activation', 'oom-weights')
    """
    for cause, names in FRAMES:
        if any(name in frames for name in names):
            return cause
    return STAGES.get(stage, "oom-activation")
