"""EngineSettings <-> the command line of a vLLM release; parse and print are inverse.

vLLM reads `--a-b`, `--a_b`, `--a=b`, unique abbreviations, `--json.key value`, and counts such as 16k (16,000) and 16K
(16,384). What a release knows and the settings do not hold is kept; what no release knows is kept too, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tonnage.errors import InputError, closest_hint
from tonnage.facts.flags import MANY, SHORT, every_flag, flags_of, is_switch
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
    words = after_program(rest)
    at, given = split_words(words, release)
    positional = [words[index] for index in at]
    model, alias = (positional[0] if positional else ""), ""
    rest_given: list[Given] = []
    for one in given:
        if (several := abbreviated(one.flag, release)) and len(several) > 1:
            raise InputError(f"{one.flag} may mean {', '.join(several[:4])}", where="the command", hint="write it in full")
        if one.flag == "--model":
            model = one.value or ""
        elif one.flag == "--served-model-name":
            alias = one.value or ""
        else:
            rest_given.append(one)
    if not model:
        raise InputError("names no model", where="the command", hint="vllm serve MODEL ..., or --model MODEL")
    settings, extra = settings_of([(one.flag, one.value) for one in rest_given], release)
    known = flags_of(release)
    unknown = tuple(unknown_flag(flag, release) for flag, _ in extra if positive(flag) not in known)
    return Command(model, settings, alias, extra, tuple(environment), unknown)


def settings_of(
    given: Sequence[tuple[str, str | None]], release: tuple[int, int]
) -> tuple[EngineSettings, tuple[tuple[str, str | None], ...]]:
    """Return the settings that flags in their long spelling ask for, and the flags that settings do not hold.

    Raises InputError: a value that is none.
    """
    fields: dict[str, Any] = {"release": release}
    parallel: dict[str, Any] = {}
    lora: dict[str, int] = {}
    extra = tuple((flag, value) for flag, value in given if not _settle(flag, value, fields, parallel, lora))
    if lora.pop("on", 0) or lora:
        fields["lora"] = LoRA(lora.get("count", 1), lora.get("rank", 16))
    for name, value in parallel.items():
        if isinstance(value, int) and value < 1:
            raise InputError(f"{name} of {value} is none", where="the command", hint="1 or more")
    return EngineSettings(**fields, parallel=Parallelism(**parallel)), extra


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
        if positive(flag) not in known:
            first = every_flag()[positive(flag)].first if positive(flag) in every_flag() else "?"
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
    plain = positive(flag)
    if plain in SWITCHES and (value or "true").lower() in ("true", "false"):
        where = parallel if SWITCHES[plain] == "expert" else fields
        where[SWITCHES[plain]] = (flag == plain) == ((value or "true").lower() == "true")
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


def positive(flag: str) -> str:
    """Return the flag that a --no- flag denies; any other as it is."""
    if not flag.startswith("--no-"):
        return flag
    return "--" + flag.removeprefix("--no-") if flag not in every_flag() else flag


def _environment(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    found = []
    while words and "=" in words[0] and words[0].split("=", 1)[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        found.append((name, value))
    return found, words


def after_program(words: list[str]) -> list[str]:
    """Return the words that follow the program: of `vllm serve ...`, of `python -m MODULE ...`."""
    if words and words[0].rsplit("/", 1)[-1].startswith("python") and "-m" in words[:4]:
        return words[words.index("-m") + 2 :]
    if words and words[0].rsplit("/", 1)[-1] == "vllm":
        words = words[1:]
    return words[1:] if words and words[0] == "serve" else words


class Given(msgspec.Struct, frozen=True):
    """One flag as it was given: its long spelling, its value (None where it has none), and the index of its word."""

    flag: str
    value: str | None
    at: int


def split_words(words: Sequence[str], release: tuple[int, int]) -> tuple[list[int], list[Given]]:
    """Return the indices of positional words, and the flags in their long spelling, as vLLM's parser reads them.

    A flag of JSON written key by key (`--json.key value`) is given once, at its first word.
    """
    positional: list[int] = []
    given: list[Given] = []
    nested: dict[str, tuple[int, dict[str, Any]]] = {}
    index = 0
    while index < len(words):
        word, at = words[index], index
        index += 1
        if not _is_flag(word):
            positional.append(at)
            continue
        name, equals, value = word.partition("=")
        flag, _, key = name.partition(".")
        flag = _long(flag, release)
        values = [value] if equals else []
        most = 0 if equals else _most_values(flag)
        while len(values) < most and index < len(words) and not _is_flag(words[index]):
            values.append(words[index])
            index += 1
        if not equals and not most and words[index : index + 1] and words[index].lower() in ("true", "false"):
            values, index = [words[index]], index + 1
        text = " ".join(values) if values else None
        if key:
            _nest(nested.setdefault(flag, (at, {}))[1], key.split("."), text)
        else:
            given.append(Given(flag, text, at))
    given += [Given(flag, msgspec.json.encode(value).decode(), at) for flag, (at, value) in nested.items()]
    return positional, given


def _most_values(flag: str) -> int:
    return 1_000_000 if flag in MANY else (0 if is_switch(flag) else 1)


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
    if positive(plain) in known or not plain.startswith("--"):
        return plain
    longer = abbreviated(plain, release)
    return longer[0] if len(longer) == 1 else plain


def abbreviated(flag: str, release: tuple[int, int]) -> list[str]:
    """Return the flags of a release that begin as an unknown one does: one may be abbreviated, several may not.

    >>> abbreviated("--tensor-parallel", (0, 24)), len(abbreviated("--max-num", (0, 24))) > 1
    (['--tensor-parallel-size'], True)
    """
    if flag in every_flag() or positive(flag) in every_flag() or not flag.startswith("--"):
        return []
    return sorted(name for name in flags_of(release) if name.startswith(flag))


def unknown_flag(flag: str, release: tuple[int, int]) -> str:
    """Return what to say of a flag that a release does not know: the closest one, or the releases that did."""
    name = f"{release[0]}.{release[1]}"
    known = every_flag().get(positive(flag))
    if known is None:
        return f"{flag}: vLLM {name} has no such flag; {closest_hint(flag, flags_of(release), 'see vllm serve --help')}"
    since = f"known from {known.first}" + (f" to {known.last}" if known.last else "")
    return f"{flag}: not in vLLM {name}, {since}"
