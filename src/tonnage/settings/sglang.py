"""EngineSettings <-> the command line of SGLang's server (`python -m sglang.launch_server`), read in its 0.5.23 wheel.

Only what a plan holds is understood; other flags are kept. Parse and print are inverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.errors import InputError
from tonnage.settings import EngineSettings, Parallelism
from tonnage.settings.argv import Command, Given
from tonnage.units import parse_share, parse_tokens

SHORT = {"--tp": "--tp-size", "--pp": "--pp-size", "--dp": "--dp-size", "--ep": "--ep-size", "--model": "--model-path",
         "--tensor-parallel-size": "--tp-size", "--pipeline-parallel-size": "--pp-size", "--data-parallel-size": "--dp-size",
         "--expert-parallel-size": "--ep-size"}  # fmt: skip
PARALLEL = {"--tp-size": "tp", "--pp-size": "pp", "--dp-size": "dp"}
COUNTS = {
    "--context-length": "max_model_len",
    "--max-running-requests": "max_num_seqs",
    "--chunked-prefill-size": "max_num_batched_tokens",
    "--page-size": "block_size",
}
SWITCHES = ("--disable-radix-cache", "--disable-cuda-graph")
RELEASE = (0, 5)


def parse_sglang(words: Sequence[str]) -> Command:
    """Return what a command line asks of SGLang's server.

    Raises InputError: no model, or a value that is none.
    """
    given = split_words(list(words[words.index("-m") + 2 :] if "-m" in words[:4] else words))
    pairs = [(one.flag, one.value) for one in given]
    model = next((value for flag, value in reversed(pairs) if flag == "--model-path" and value), "")
    alias = next((value for flag, value in reversed(pairs) if flag == "--served-model-name" and value), "")
    if not model:
        raise InputError("names no model", where="the command", hint="--model-path MODEL")
    settings, extra = settings_of([(flag, value) for flag, value in pairs if flag not in ("--model-path", "--served-model-name")])
    return Command(model, settings, alias, extra)


def settings_of(given: Sequence[tuple[str, str | None]]) -> tuple[EngineSettings, tuple[tuple[str, str | None], ...]]:
    """Return the settings that flags in their long spelling ask for, and the flags that settings do not hold.

    Raises InputError: a value that is none.
    """
    fields: dict[str, Any] = {"engine": "sglang", "release": RELEASE}
    parallel: dict[str, Any] = {}
    extra: list[tuple[str, str | None]] = []
    for flag, value in given:
        if flag == "--disable-radix-cache":
            fields["enable_prefix_caching"] = False
        elif flag == "--disable-cuda-graph":
            fields["enforce_eager"] = True
        elif value is None:
            extra.append((flag, value))
        elif flag in PARALLEL:
            parallel[PARALLEL[flag]] = parse_tokens(value, where=flag)
        elif flag in COUNTS:
            fields[COUNTS[flag]] = parse_tokens(value, where=flag)
        elif flag == "--mem-fraction-static":
            fields["gpu_memory_utilization"] = parse_share(value, where=flag)
        elif flag == "--kv-cache-dtype":
            fields["kv_cache_dtype"] = {"bf16": "bfloat16"}.get(value, value)
        elif flag == "--quantization" and value == "fp8":
            fields["weights"] = "fp8"
        elif flag == "--ep-size" and parse_tokens(value, where=flag) > 1:
            parallel["expert"] = True
        else:
            extra.append((flag, value))
    return EngineSettings(**fields, parallel=Parallelism(**parallel)), tuple(extra)


def print_sglang(command: Command) -> list[str]:
    """Return the words of the command line."""
    words = ["python3", "-m", "sglang.launch_server", "--model-path", command.model]
    if command.served_model_name:
        words += ["--served-model-name", command.served_model_name]
    for flag, value in (*sglang_flags(command.settings), *command.extra):
        words += [flag] if value is None else [flag, value]
    return words


def sglang_flags(settings: EngineSettings) -> Iterator[tuple[str, str | None]]:
    """Yield the flags of settings that differ from what the server does unasked, each with its value or None."""
    for flag, field in COUNTS.items():
        if (count := getattr(settings, field)) is not None:
            yield flag, str(count)
    for flag, field in PARALLEL.items():
        if (count := getattr(settings.parallel, field)) != 1:
            yield flag, str(count)
    if settings.parallel.expert:
        yield "--ep-size", str(max(2, settings.parallel.ep))
    if settings.gpu_memory_utilization is not None:
        yield "--mem-fraction-static", f"{settings.gpu_memory_utilization:g}"
    if settings.kv_cache_dtype != "auto":
        yield "--kv-cache-dtype", {"fp8": "fp8_e4m3", "bfloat16": "bf16"}.get(settings.kv_cache_dtype, settings.kv_cache_dtype)
    if settings.weights == "fp8":
        yield "--quantization", "fp8"
    if settings.enable_prefix_caching is False:
        yield "--disable-radix-cache", None
    if settings.enforce_eager:
        yield "--disable-cuda-graph", None


def split_words(words: Sequence[str]) -> list[Given]:
    """Return the flags of a command line in their long spelling."""
    given: list[Given] = []
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        at, index = index, index + 1
        if not name.startswith("--"):
            continue
        flag = SHORT.get(name.replace("_", "-"), name.replace("_", "-"))
        bare = flag in SWITCHES or flag.startswith(("--enable-", "--disable-", "--trust-"))
        if not equals and not bare and index < len(words) and not words[index].startswith("--"):
            value, equals = words[index], "="
            index += 1
        given.append(Given(flag, value if equals else None, at))
    return given
