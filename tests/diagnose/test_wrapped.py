"""Do logs say the same whatever stands around their lines, and is what a server got over no cause?"""
# ruff: noqa: E501 - messages and lines are quoted as they are written

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.diagnose.diagnosis import diagnose
from tonnage.diagnose.reader import read_starts
from tonnage.diagnose.signs import SIGNS, literals
from tonnage.lint.context import Context

START = [
    "(APIServer pid=1) INFO 05-04 08:40:00 [api_utils.py:268] non-default args: {'model': '/models/qwen2.5-7b', 'max_model_len': 16384}",
    "(EngineCore pid=120) INFO 05-04 08:40:27 [core.py:110] Initializing a V1 LLM engine (v0.20.2) with config: model='/models/qwen2.5-7b', dtype=torch.bfloat16",
]
SERVES = [
    "(EngineCore pid=120) INFO 05-04 08:41:10 [gpu_worker.py:375] Available KV cache memory: 3.50 GiB",
    "(EngineCore pid=120) INFO 05-04 08:41:11 [kv_cache_utils.py:1] GPU KV cache size: 64,000 tokens",
    "(APIServer pid=1) INFO:     Application startup complete.",
]
ROLLOUT = ["(EngineCore pid=120) INFO 05-04 09:00:00 [core.py:1222] [shutdown] EngineCore: received signal 15, exiting"]


def causes(lines: list[str]) -> list[set[str]]:
    """Return the causes of each start."""
    return [{cause.id for cause in start.causes} for start in diagnose(read_starts(enumerate(lines, 1)), Context())]


WRAPPERS: list[Callable[[str], str]] = [
    lambda line: line,
    lambda line: f"[pod/vllm-0/vllm] 2026-05-04T08:40:00.1Z {line}",
    lambda line: f"vllm-1  | 2026-05-04T08:40:00.1Z {line}",
    lambda line: f"vllm-7d9f-x2x4z vllm {line}",
    lambda line: f"llm_vllm.1.k2j@node3    | {line}",
    lambda line: f"2026-05-04T08:40:00+0000 node3 docker[1]: {line}",
    lambda line: f"0: {line}",
    lambda line: line.replace("(EngineCore pid=120) ", "(EngineCore_DP0 pid=120) (RayWorkerWrapper pid=274, ip=10.2.1.15) "),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_whatever_wraps_the_lines(wrap: Callable[[str], str]) -> None:
    """Figures are read, and the end of a rollout is no kill."""
    starts = read_starts(enumerate(map(wrap, START + SERVES + ROLLOUT), 1))
    assert len(starts) == 1 and starts[0].figures["pool_tokens"] == 64_000
    assert causes([wrap(line) for line in START + SERVES + ROLLOUT]) == [set()]


GOT_OVER = [
    "ERROR 05-04 08:50:00 [x.py:1] Failed to export traces to otel-collector:4317: NameResolutionError(\"Failed to resolve 'otel-collector'\")",
    "WARNING 05-04 08:40:30 [utils.py:79] Qwen3ForSequenceClassification has no vLLM implementation, falling back to Transformers implementation.",
    "FileNotFoundError: [Errno 2] No such file or directory: '/loras/sql/adapter_model.safetensors'",
    "MaxRetryError: host='huggingface.co' Max retries exceeded with url: /m/resolve/main/config.json. Retrying in 1s [Retry 1/5].",
]


@pytest.mark.parametrize("line", GOT_OVER)
def test_what_a_server_gets_over_is_no_cause(line: str) -> None:
    """Before it came up, or while it serves."""
    assert causes([*START, line, *SERVES]) == [set()]
    assert causes([*START, *SERVES, line]) == [set()]


SAID = [
    ("ValueError: To serve at least one request with the models's max seq len (116160), (4.43 GB KV cache is needed, which is larger than the available KV cache memory (3.48 GB). Try", {"max-len-exceeds-cache"}),
    ("RuntimeError: unable to write to file </torch_739_144252761_4>: No space left on device (28)", {"shm-too-small"}),
    ("/x/torch/cuda/__init__.py:182: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040).", {"driver-mismatch"}),
    ("terminate called after throwing an instance of 'c10::DistBackendError'", set()),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 44.39 GiB of which 52.31 MiB is free. Process 91823 has 41.10 GiB memory in use. Including non-PyTorch memory, this process has 3.21 GiB memory in use.", {"memory-held-by-others"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), SAID)
def test_messages_of_the_releases(line: str, expected: set[str]) -> None:
    """Each means what it says."""
    assert causes([*START, line]) == [expected]


def test_a_second_start_is_told_by_its_engine_line() -> None:
    """Without a line of arguments too."""
    engine = START[1]
    held = "ERROR 05-04 08:41:00 [x.py:1] ValueError: Free memory on device cuda:0 (20.00/44.39 GiB) on startup is less than desired GPU memory utilization (0.9, 39.95 GiB)."
    empty = "ERROR 05-04 09:42:00 [x.py:1] ValueError: No available memory for the cache blocks."
    assert causes([engine, held, engine, empty]) == [{"memory-held-by-others"}, {"no-cache-blocks"}]


def test_a_precise_message_replaces_a_guess() -> None:
    """The engine knows where it was; the stage only suggests it."""
    guess = "torch.OutOfMemoryError: CUDA out of memory."
    said = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests."
    assert causes([*START, guess, said]) == [{"oom-sampler"}]


def test_a_pattern_s_words_stand_in_all_it_matches() -> None:
    """What is looked for first must not hide a match: at least one alternative of most patterns has words of its own."""
    found = [literals(pattern) for _, pattern in SIGNS]
    assert sum(bool(words) for words in found) > 0.9 * len(found)
    for (_, pattern), words in zip(SIGNS, found, strict=True):
        assert all("{" not in word and len(word) >= 4 for word in words), pattern
