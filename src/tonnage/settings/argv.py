"""EngineSettings <-> the command line of a vLLM release; parse and print are inverse.

vLLM reads `--a-b`, `--a_b`, `--a=b`, unique abbreviations, `--json.key value`, and counts such as 16k (16,000) and 16K
(16,384). What a release knows and the settings do not hold is kept; what no release knows is kept too, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tonnage.errors import InputError, closest_hint
from tonnage.facts.flags import SHORT, every_flag, flags_of
from tonnage.settings import EngineSettings, LoRA, Parallelism
from tonnage.units import parse_share, parse_tokens

COUNTS = {
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--block-size": "block_size",
}
PARALLEL = {
    "--tensor-parallel-size": "tp",
    "--pipeline-parallel-size": "pp",
    "--data-parallel-size": "dp",
    "--decode-context-parallel-size": "dcp",
}
WORDS = {
    "--kv-cache-dtype": "kv_cache_dtype",
    "--mamba-ssm-cache-dtype": "mamba_ssm_cache_dtype",
    "--mamba-cache-mode": "mamba_cache_mode",
}
SWITCHES = {
    "--enable-prefix-caching": "enable_prefix_caching",
    "--async-scheduling": "async_scheduling",
    "--disable-hybrid-kv-cache-manager": "disable_hybrid_kv_cache_manager",
    "--enforce-eager": "enforce_eager",
    "--language-model-only": "language_model_only",
    "--enable-expert-parallel": "expert",
}
MTP_METHODS = ("mtp", "deepseek_mtp", "qwen3_next_mtp", "glm4_moe_mtp", "ernie_mtp", "mimo_mtp")


class Command(msgspec.Struct, frozen=True):
    """A command line, understood: the model and its alias, settings, other flags as (flag, value or None), environment.

    `unknown` lists the flags of `extra` that the release does not know, each with what to say about it.
    """

    model: str
    settings: EngineSettings
    served_model_name: str = ""
    extra: tuple[tuple[str, str | None], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def parse_command(words: Sequence[str], release: tuple[int, int]) -> Command:
    """Return what a command line asks of a release: `[VAR=x] vllm serve MODEL ...` or `python -m ... --model MODEL`.

    Raises InputError: no model, a value that is none, or an abbreviation of several flags.
    """
    environment, rest = _environment(list(words))
    positional, pairs = _split(_after_program(rest), release)
    fields: dict[str, Any] = {"release": release}
    parallel: dict[str, Any] = {}
    lora: dict[str, int] = {}
    extra: list[tuple[str, str | None]] = []
    model, alias = (positional[0] if positional else ""), ""
    for flag, value in pairs:
        if flag == "--model":
            model = value or ""
        elif flag == "--served-model-name":
            alias = value or ""
        elif not _settle(flag, value, fields, parallel, lora):
            extra.append((flag, value))
    if not model:
        raise InputError("names no model", where="the command", hint="vllm serve MODEL ..., or --model MODEL")
    if lora.pop("on", 0) or lora:
        fields["lora"] = LoRA(lora.get("count", 1), lora.get("rank", 16))
    settings = EngineSettings(**fields, parallel=Parallelism(**parallel))
    known = flags_of(release)
    unknown = tuple(_unknown(flag, release) for flag, _ in extra if _positive(flag) not in known)
    return Command(model, settings, alias, tuple(extra), tuple(environment), unknown)


def print_command(command: Command) -> list[str]:
    """Return the words of the command line, for the release of its settings.

    Raises InputError: a setting for which the release has no flag.
    """
    words = ["vllm", "serve", command.model]
    if command.served_model_name:
        words += ["--served-model-name", command.served_model_name]
    for flag, value in (*settings_flags(command.settings), *command.extra):
        words += [flag] if value is None else [flag, value]
    return words


def settings_flags(settings: EngineSettings) -> Iterator[tuple[str, str | None]]:
    """Yield the flags of settings that differ from what every release does unasked, each with its value or None."""
    known = flags_of(settings.release)
    for flag, value in _flags(settings):
        if _positive(flag) not in known:
            first = every_flag()[_positive(flag)].first if _positive(flag) in every_flag() else "?"
            raise InputError(f"{settings.release_name} has no {flag} (known from {first})", hint="name a later release with --engine")
        yield flag, value


def _flags(settings: EngineSettings) -> Iterator[tuple[str, str | None]]:
    plain = EngineSettings()
    for flag, field in PARALLEL.items():
        if (count := getattr(settings.parallel, field)) != 1:
            yield flag, str(count)
    if settings.parallel.expert:
        yield "--enable-expert-parallel", None
    for flag, field in COUNTS.items():
        if (count := getattr(settings, field)) is not None:
            yield flag, str(count)
    if settings.gpu_memory_utilization is not None:
        yield "--gpu-memory-utilization", f"{settings.gpu_memory_utilization:g}"
    if settings.weights == "fp8":
        yield "--quantization", "fp8"
    for flag, field in WORDS.items():
        if (word := getattr(settings, field)) != getattr(plain, field):
            yield flag, word
    for flag, field in SWITCHES.items():
        if field != "expert" and (on := getattr(settings, field)) != getattr(plain, field):
            yield (flag if on else flag.replace("--enable-", "--no-enable-").replace("--async", "--no-async")), None
    if settings.num_speculative_tokens:
        config = {"method": "mtp", "num_speculative_tokens": settings.num_speculative_tokens}
        yield "--speculative-config", msgspec.json.encode(config).decode()
    if settings.lora.count:
        yield "--enable-lora", None
        yield "--max-loras", str(settings.lora.count)
        yield "--max-lora-rank", str(settings.lora.rank)


def _settle(flag: str, value: str | None, fields: dict[str, Any], parallel: dict[str, Any], lora: dict[str, int]) -> bool:
    """Put a flag into the fields it belongs to; return whether there is one."""
    positive = _positive(flag)
    if positive in SWITCHES and value is None:
        where = parallel if SWITCHES[positive] == "expert" else fields
        where[SWITCHES[positive]] = flag == positive
        return True
    if value is None:
        lora["on"] = lora.get("on", 0) or int(flag == "--enable-lora")
        return flag == "--enable-lora"
    if flag in COUNTS:
        fields[COUNTS[flag]] = parse_tokens(value, where=flag)
    elif flag in PARALLEL:
        parallel[PARALLEL[flag]] = parse_tokens(value, where=flag)
    elif flag in WORDS:
        fields[WORDS[flag]] = value
    elif flag == "--gpu-memory-utilization":
        fields["gpu_memory_utilization"] = parse_share(value, where=flag)
    elif flag == "--quantization" and value == "fp8":
        fields["weights"] = "fp8"
    elif flag in ("--max-loras", "--max-lora-rank"):
        lora["count" if flag == "--max-loras" else "rank"] = parse_tokens(value, where=flag)
    elif flag == "--speculative-config" and (tokens := _mtp_tokens(value)):
        fields["num_speculative_tokens"] = tokens
    else:
        return False
    return True


def _mtp_tokens(text: str) -> int:
    """Return the draft tokens of multi-token prediction; 0 where the config says something else."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise InputError(
            f"{text!r} is no JSON", where="--speculative-config", hint='write {"method":"mtp","num_speculative_tokens":1}'
        ) from None
    if not isinstance(value, dict) or value.get("method") not in MTP_METHODS or set(value) - {"method", "num_speculative_tokens"}:
        return 0
    count = value.get("num_speculative_tokens", 1)
    return count if isinstance(count, int) and count > 0 else 0


def _positive(flag: str) -> str:
    """Return the flag that a --no- flag denies."""
    if not flag.startswith("--no-"):
        return flag
    return "--" + flag.removeprefix("--no-") if flag not in every_flag() else flag


def _environment(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    found = []
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        found.append((name, value))
    return found, words


def _after_program(words: list[str]) -> list[str]:
    if words and words[0].rsplit("/", 1)[-1].startswith("python") and "-m" in words[:4]:
        return words[words.index("-m") + 2 :]
    if words and words[0].rsplit("/", 1)[-1] == "vllm":
        words = words[1:]
    return words[1:] if words and words[0] == "serve" else words


def _split(words: list[str], release: tuple[int, int]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Return positional words and (flag, value) pairs; flags in their long spelling."""
    positional: list[str] = []
    pairs: list[tuple[str, str | None]] = []
    nested: dict[str, dict[str, Any]] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_flag(word):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        flag, _, key = name.partition(".")
        flag = _long(flag, release)
        values = [value] if equals else []
        if not equals and _positive(flag) not in SWITCHES:
            while index < len(words) and not _is_flag(words[index]):
                values.append(words[index])
                index += 1
        text = " ".join(values) if values else None
        if key:
            _nest(nested.setdefault(flag, {}), key.split("."), text)
        else:
            pairs.append((flag, text))
    return positional, [*pairs, *((flag, msgspec.json.encode(value).decode()) for flag, value in nested.items())]


def _nest(into: dict[str, Any], keys: list[str], text: str | None) -> None:
    for key in keys[:-1]:
        into = into.setdefault(key, {})
    try:
        into[keys[-1]] = True if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        into[keys[-1]] = text


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1:].replace(".", "").isdigit()


def _long(flag: str, release: tuple[int, int]) -> str:
    """Return the long spelling of a flag: underscores, short names, and abbreviations of exactly one."""
    if flag in SHORT:
        return SHORT[flag]
    plain = flag.replace("_", "-")
    known = flags_of(release)
    if _positive(plain) in known or not plain.startswith("--"):
        return plain
    longer = sorted(name for name in known if name.startswith(plain))
    if len(longer) > 1 and plain not in every_flag():
        raise InputError(f"{flag} may mean {', '.join(longer[:4])}", where="the command", hint="write it in full")
    return longer[0] if len(longer) == 1 and plain not in every_flag() else plain


def _unknown(flag: str, release: tuple[int, int]) -> str:
    name = f"{release[0]}.{release[1]}"
    known = every_flag().get(_positive(flag))
    if known is None:
        return f"{flag}: vLLM {name} has no such flag; {closest_hint(flag, flags_of(release), 'see vllm serve --help')}"
    since = f"known from {known.first}" + (f" to {known.last}" if known.last else "")
    return f"{flag}: not in vLLM {name}, {since}"
