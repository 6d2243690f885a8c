"""Which lines of a log carry figures? Patterns by the way a message begins, and what each does to the start.

Sources: vLLM's INFO lines from 0.5 to 0.33 (V0: "# GPU blocks: ..., # CPU blocks"; V1: "GPU KV cache size: ... tokens"),
SGLang's ("GB" there is 2^30), llama.cpp's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container

from tonnage.diagnose.start import Start

GIB = 2**30
MIB = 2**20
Match = re.Match[str]

CONFIG = frozenset({
    "model", "dtype", "max_seq_len", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
    "quantization", "enforce_eager",
    "kv_cache_dtype", "served_model_name", "enable_prefix_caching", "device_config",
})  # fmt: skip
"""What is kept of the engine's own line of configuration."""
_PAIR = re.compile(r"\b(\w+)=('(?:[^'\\]|\\.)*'|\[[^\]]*\]|[^,\s\[\](){}]+)(?=[,)\s]|$)")
TOKENS = r"([\d,]+) tokens(?:, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x)?"
PROFILED = (
    r"(?P<weights_bytes>[\d.]+)GiB; non_torch_memory takes (?P<non_torch_bytes>[\d.]+)GiB; PyTorch activation peak memory takes "
    r"(?P<activation_bytes>[\d.]+)GiB; the rest of the memory reserved for KV Cache is (?P<pool_bytes>[\d.]+)GiB"
)


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _version(start: Start, match: Match) -> None:
    start.engine = start.engine or "vllm"
    start.release = start.release or match[1]


def _arguments(start: Start, match: Match) -> None:
    start.engine = "vllm"
    start.arguments = literal(match[1])


def _namespace(start: Start, match: Match) -> None:
    start.engine = "vllm"
    start.arguments = pairs(match[1])


def _sglang_arguments(start: Start, match: Match) -> None:
    start.engine = "sglang"
    start.arguments = pairs(match[1])


def _config(start: Start, match: Match) -> None:
    start.engine = "vllm"
    start.release = match[1]
    start.config = {key: str(value) for key, value in pairs(match[2], CONFIG).items()}
    start.at_stage("load")


def _architecture(start: Start, match: Match) -> None:
    start.architecture = match[1]


def _loaded(start: Start, match: Match) -> None:
    start.keep_most("weights_bytes", float(match[1]) * GIB)
    if match[2]:
        start.keep_most("load_s", float(match[2]))
    start.at_stage("profile")


def _size(name: str, unit: int, stage: str = "", *, least: bool = False) -> Callable[[Start, Match], None]:
    def keep(start: Start, match: Match) -> None:
        (start.keep_least if least else start.keep_most)(name, float(match[1].replace(",", "")) * unit)
        if stage:
            start.at_stage(stage)

    return keep


def _count(name: str, stage: str = "") -> Callable[[Start, Match], None]:
    def keep(start: Start, match: Match) -> None:
        start.keep_least(name, _whole(match[1]))
        if stage:
            start.at_stage(stage)

    return keep


def _tokens(start: Start, match: Match) -> None:
    start.device = start.device or match.string.partition(" KV cache")[0]
    start.keep_least("pool_tokens", _whole(match[1]))
    if match[2]:
        start.figures["concurrency_tokens"] = _whole(match[2])
        start.keep_least("concurrency", float(match[3]))
    start.at_stage("cache")


def _concurrency(start: Start, match: Match) -> None:
    start.figures["concurrency_tokens"] = _whole(match[1])
    start.keep_least("concurrency", float(match[2]))
    start.at_stage("cache")


def _profile(start: Start, match: Match) -> None:
    for name, text in match.groupdict().items():
        if text:
            start.keep_most(name, float(text) * GIB)
    start.at_stage("cache")


def _graphs(start: Start, match: Match) -> None:
    start.keep_most("graphs_bytes", float(match[2]) * GIB)
    start.keep_most("graphs_s", float(match[1]))
    start.at_stage("graphs")


def _shards(start: Start, match: Match) -> None:
    done, pace, spent = int(match[1]), float(match[4]), 0
    for part in (match[3] or "").split(":") if match[3] else ():
        spent = 60 * spent + int(part or 0)
    each = pace if match[5] == "s/it" else 1 / max(1e-9, pace)
    start.shards = (done, int(match[2]), spent / done if done and spent >= 10 else each)
    start.at_stage("load")


def _stage(stage: str) -> Callable[[Start, Match], None]:
    def move(start: Start, match: Match) -> None:
        start.at_stage(stage)

    return move


def _seconds(name: str) -> Callable[[Start, Match], None]:
    def keep(start: Start, match: Match) -> None:
        start.keep_most(name, float(match[1]))

    return keep


def _sglang_ready(start: Start, match: Match) -> None:
    start.engine = "sglang"
    start.keep_least("pool_tokens", _whole(match[1]))
    for pair in re.finditer(r"(chunked_prefill_size|max_running_requests|context_len)=(\d+)", match.string):
        start.figures[f"asked_{pair[1]}"] = int(pair[2])
    start.at_stage("graphs")


def _sglang_pool(start: Start, match: Match) -> None:
    start.engine = "sglang"
    start.keep_least("pool_tokens", _whole(match[1]))
    sizes = [float(one) for one in re.findall(r"[KV]{1,2} size: ([\d.]+) GB", match.string)]
    if sizes:
        start.keep_least("pool_bytes", sum(sizes) * GIB)
    start.at_stage("cache")


def _llama_buffer(start: Start, match: Match) -> None:
    start.engine = "llama.cpp"
    start.figures["weights_bytes"] = start.figures.get("weights_bytes", 0) + float(match[1]) * MIB
    start.at_stage("load")


def _llama_cache(start: Start, match: Match) -> None:
    start.engine = "llama.cpp"
    start.figures["pool_bytes"] = start.figures.get("pool_bytes", 0) + float(match[1]) * MIB
    start.figures["pool_tokens"] = start.figures.get("pool_tokens", 0) or int(match[2])
    start.at_stage("cache")


def _scale(start: Start, match: Match) -> None:
    start.fp8_scale_one = True


Keep = Callable[[Start, Match], None]

MEASURES: tuple[tuple[str, str, Keep], ...] = (
    ("vLLM API server version ", r"(\d+\.\d+\.\d+\S*)", _version),
    ("non-default args: ", r"(\{.*)", _arguments),
    ("args: Namespace(", r"(.*)\)$", _namespace),
    ("server_args=ServerArgs(", r"(.*)\)$", _sglang_arguments),
    ("Initializing a", r"n? ?(?:V\d )?LLM engine \(v(\d+\.\d+\.\d+\S*?)\) with config: (.*)", _config),
    ("Resolved architecture: ", r"(\S+)", _architecture),
    ("Starting to load model ", r"", _stage("load")),
    ("Loading weights took ", r"([\d.]+) seconds", _seconds("read_s")),
    ("Loading safetensors checkpoint shards: ", r" *\d+% Completed \| (\d+)/(\d+) \[([\d:]+)?[^,]*, +([\d.]+)(s/it|it/s)\]", _shards),
    ("Model loading took ", r"([\d.]+) Gi?B(?: memory)?(?: and ([\d.]+) seconds)?", _loaded),
    ("Loading model weights took ", r"([\d.]+) Gi?B()", _loaded),
    ("Available KV cache memory: ", r"(-?[\d.]+) GiB", _size("pool_bytes", GIB, "cache", least=True)),
    ("Explicitly set (", r"([\d.]+)/[\d.]+\) GiB for KV cache", _size("pool_bytes", GIB, "cache", least=True)),
    *((f"{device} KV cache size: ", TOKENS, _tokens) for device in ("GPU", "CPU", "TPU", "XPU", "HPU", "GPU + host")),
    ("Maximum concurrency for ", r"([\d,]+) tokens per request: ([\d.]+)x", _concurrency),
    *((f"# {device} blocks: ", r"(\d+)", _count("blocks", "cache")) for device in ("GPU", "CPU", "cuda")),
    ("Overriding num_gpu_blocks=", r"\d+ with num_gpu_blocks_override=(\d+)", _count("blocks")),
    ("Estimated CUDA graph memory: ", r"([\d.]+) GiB total", _size("graphs_estimated_bytes", GIB)),
    ("CUDA graph pool memory: ", r"([\d.]+) GiB \(actual\)", _size("graphs_bytes", GIB)),
    ("Graph capturing finished in ", r"([\d.]+) secs?, took (-?[\d.]+) GiB", _graphs),
    ("Captur", r"(?:ing (?:the model for )?CUDA graph|e cuda graph begin)", _stage("cache")),
    ("Setting attention block size to ", r"(\d+) tokens", _count("attention_block_tokens")),
    ("torch.compile t", r"(?:akes|ook) ([\d.]+) s in total", _seconds("compile_s")),
    ("init engine (profile, create kv cache, warmup model) took ", r"([\d.]+) s", _seconds("init_s")),
    ("Using max model len ", r"(\d+)", _count("max_model_len")),
    ("Chunked prefill is enabled with max_num_batched_tokens=", r"(\d+)", _count("max_num_batched_tokens")),
    ("model weights take ", PROFILED, _profile),
    ("Using KV cache scaling factor 1.0 for fp8", r"", _scale),
    ("INFO:     Application startup complete", r"", _stage("ready")),
    ("INFO:     Uvicorn running on", r"", _stage("ready")),
    ("Application startup complete", r"", _stage("ready")),
    ("The server is fired up and ready", r"", _stage("ready")),
    ("main: server is listening", r"", _stage("ready")),
    ("max_total_num_tokens=", r"(\d+)", _sglang_ready),
    ("KV Cache is allocated.", r".*?#tokens: (\d+)", _sglang_pool),
    ("Load weight end.", r".*?mem usage=([\d.]+) GB", _size("weights_bytes", GIB, "profile")),
    ("load_tensors: ", r" *CUDA\d+ model buffer size = +([\d.]+) MiB", _llama_buffer),
    ("llama_kv_cache", r"[\w:]* +size = +([\d.]+) MiB \( *(\d+) cells", _llama_cache),
    ("llama_context: ", r" *CUDA\d+ compute buffer size = +([\d.]+) MiB", _size("activation_bytes", MIB)),
)  # fmt: skip
"""(how a message begins, what follows, what it does): everything that begins otherwise is not looked at further."""

_BY_LETTER: dict[str, list[tuple[str, re.Pattern[str], Keep]]] = {}
for _begin, _pattern, _keep in MEASURES:
    _BY_LETTER.setdefault(_begin[0], []).append((_begin, re.compile(_pattern), _keep))
_BANNER = re.compile(r"\bversion (0\.\d+\.\d+\S*)\s*$")


def measure(start: Start, text: str) -> bool:
    """Take the figures of a line into the start; return whether there were any."""
    for begin, pattern, keep in _BY_LETTER.get(text[:1], ()):
        if text.startswith(begin):
            match = pattern.match(text, len(begin))
            if match is not None:
                keep(start, match)
                return True
    if "version 0." in text and (banner := _BANNER.search(text)) is not None:
        _version(start, banner)
        return True
    return False


def literal(text: str) -> dict[str, object]:
    """Return a dictionary that Python printed; where it holds more than literals, the pairs that are plain."""
    try:
        value = ast.literal_eval(text.strip())
        return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = re.findall(r"'(\w+)': ('(?:[^'\\]|\\.)*'|-?[\d.]+|True|False|None)", text)
        return {key: plain(item) for key, item in found}


def pairs(text: str, only: Container[str] = ()) -> dict[str, object]:
    """Return the plain pairs of what Python prints as `name=value, ...`, the first of each name.

    >>> pairs("model='/m', tensor_parallel_size=4, dtype=torch.bfloat16, other=Config(a=1)")
    {'model': '/m', 'tensor_parallel_size': 4, 'dtype': 'torch.bfloat16', 'a': 1}
    """
    found: dict[str, object] = {}
    for match in _PAIR.finditer(text):
        if match[1] not in found and (not only or match[1] in only):
            found[match[1]] = plain(match[2])
    return found


def plain(text: str) -> object:
    """Return a scalar that Python printed, else its text."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text) else text
