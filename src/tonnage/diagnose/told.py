"""A start in the words of lint: the engine, its flags, its model, so that plans and predictions see what they see of a command."""

from __future__ import annotations

import re

from tonnage.diagnose.start import Start
from tonnage.facts.flags import release_tuple
from tonnage.lint.case import Case
from tonnage.lint.context import Context
from tonnage.lint.place import Place, Word
from tonnage.lint.server import Bundle, Flag, Server

SILENT = {"model_tag", "model", "subparser", "dispatch_function", "api_server_count", "command", "model_path"}
FROM_CONFIG = {
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "max_seq_len": "max_model_len",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "enforce_eager": "enforce_eager",
}
"""What the engine's own line of configuration says, by the name of the flag: every value resolved."""
PLAIN = {"auto", "None", "False", "1", ""}


def server_of(start: Start) -> Server:
    """Return the server that a start describes."""
    place = Place("log", max(1, start.first_line), 1)
    told = dict(start.arguments)
    for ours, flag in FROM_CONFIG.items():
        value = start.config.get(ours, "")
        if flag not in told and value not in PLAIN:
            told[flag] = True if value == "True" else value
    if "max_model_len" not in told and "max_model_len" in start.figures:
        told["max_model_len"] = int(start.figures["max_model_len"])
    if "max_num_batched_tokens" not in told and "max_num_batched_tokens" in start.figures:
        told["max_num_batched_tokens"] = int(start.figures["max_num_batched_tokens"])
    flags = tuple(flag for name, value in told.items() if name not in SILENT for flag in _flags(name, value, place))
    name = model_of(start)
    return Server("command", "log", place, start.engine or "vllm", Word(name, place) if name else None, flags, {}, release_of(start))


def model_of(start: Start) -> str:
    """Return the model as the log names it."""
    for key in ("model", "model_path", "model_tag"):
        if isinstance(start.arguments.get(key), str):
            return str(start.arguments[key])
    return start.config.get("model", "")


def release_of(start: Start) -> tuple[int, int] | None:
    """Return the release that the log names."""
    return release_tuple(start.release) if re.match(r"\d+\.\d+", start.release) else None


def _flags(name: str, value: object, place: Place) -> list[Flag]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [Flag(flag, None, flag, place)]
    if value is False:
        denied = "--no-" + flag.removeprefix("--")
        return (
            [Flag(denied, None, denied, place)] if name in ("enable_prefix_caching", "async_scheduling", "enable_chunked_prefill") else []
        )
    if value is None:
        return []
    text = " ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
    return [Flag(flag, text, flag, place)]


def case_of(start: Start, context: Context) -> Case:
    """Return the case of a start: its own release and model first, what was said around it for the rest."""
    return Case(server_of(start), Bundle(), context)


def settings_told(start: Start) -> dict[str, object]:
    """Return the settings that the log tells, as it tells them."""
    told = {key: value for key, value in start.arguments.items() if key not in SILENT}
    for key in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "dtype",
        "quantization",
        "kv_cache_dtype",
        "enforce_eager",
        "enable_prefix_caching",
    ):
        value = start.config.get(key)
        if key not in told and value not in (None, "None", ""):
            told[key] = {"True": True, "False": False}.get(str(value), int(value) if str(value).isdigit() else value)
    return told
