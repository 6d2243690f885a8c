"""Which engine do these words start, with which model and flags? vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tonnage.facts.engine import OLDEST, newest
from tonnage.facts.flags import release_tuple
from tonnage.lint.place import Word
from tonnage.lint.server import Flag
from tonnage.settings.argv import split_words as split_vllm
from tonnage.settings.sglang import split_words as split_sglang

SPEAKERS = {"echo", "printf", "cat", "grep", "pkill", "killall", "which", "pip", "pip3", "man", "curl", "alias", "ps", "kill", "ls", "tee"}
"""Programs that may hold an engine's name among their words and start none."""

ASKS = ("--help", "-h", "--version")
"""Words that make an engine print something and leave."""
PROGRAMS = {"sh", "bash", "python", "python3", "ray", "sleep", "tail", "env", "nvidia-smi", "vllm", "torchrun", "pip", "uv"}
"""Programs that an engine's image may be told to run instead of the engine."""

MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm": "vllm",
    "sglang.launch_server": "sglang",
    "sglang": "sglang",
}
IMAGES = (
    (re.compile(r"sglang"), "sglang"),
    (re.compile(r"(?:.*[-_])?vllm(?:-(?:openai|rocm|cpu|tpu|xpu|gaudi|neuron|serve|ascend).*)?"), "vllm"),
    (re.compile(r"llama\.cpp"), "llama.cpp"),
    (re.compile(r"ollama"), "ollama"),
    (re.compile(r"tensorrt-llm.*|trtllm.*|tensorrt_llm.*"), "trtllm"),
)
"""Names of repositories (their last part) whose images hold an engine."""
WITHOUT_COMMAND = ("vllm", "llama.cpp", "ollama")
"""Engines whose images start them with no command given."""
OTHERS_TAGS = ("lmcache",)
"""Publishers whose vLLM images carry tags of their own releases."""
_TAG = re.compile(r":v?([0-9]{1,2})\.([0-9]{1,3})(?:[.\-_@]|$)")


class Invocation(msgspec.Struct, frozen=True):
    """An engine's start: which, the word of its model, its flags, and the environment set among the words."""

    engine: str
    place: Word
    model: Word | None
    flags: tuple[Flag, ...]
    environment: dict[str, Word] = {}
    incomplete: str = ""
    wrapper: str = ""


def engine_of_image(image: str) -> str:
    """Return the engine in an image by its repository's name; empty where none is known.

    >>> engine_of_image("vllm/vllm-openai:v0.20.2"), engine_of_image("nginx:1.27")
    ('vllm', '')
    """
    name = image.split("@")[0].lower().rsplit("/", 1)[-1].split(":")[0]
    return next((engine for pattern, engine in IMAGES if pattern.fullmatch(name)), "")


def release_of_image(image: str) -> tuple[int, int] | None:
    """Return the release in an image's tag.

    >>> release_of_image("vllm/vllm-openai:v0.20.2"), release_of_image("vllm/vllm-openai:latest")
    ((0, 20), None)
    """
    repository, _, name = image.split("@")[0].rpartition("/")
    match = _TAG.search(name) if repository.rsplit("/", 1)[-1] not in OTHERS_TAGS else None
    release = release_tuple(f"{match[1]}.{match[2]}") if match else None
    return release if release is not None and OLDEST <= release < (2, 0) else None


def invocation(words: Sequence[Word], *, image: str = "", release: tuple[int, int] | None = None) -> Invocation | None:
    """Return the engine that words start, alone or as the arguments of an image's own program; None where they start none."""
    inside = engine_of_image(image)
    release = release or (release_of_image(image) if inside == "vllm" else None)
    if words and _name(words[0]) in SPEAKERS:
        return None
    environment: dict[str, Word] = {}
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if equals and name.isidentifier():
            environment[name] = Word(value, msgspec.structs.replace(word.place, column=word.place.column + len(name) + 1))
        found = _started(words, index) or (("ollama", index + 1) if inside == "ollama" and index == 0 and word.text == "serve" else None)
        if found is not None:
            engine, after = found
            if any(other.text in ASKS for other in words[after:]):
                return None
            return _read(engine, word, words[after:], environment, release)
    if inside not in WITHOUT_COMMAND or not words or _name(words[0]) in PROGRAMS:
        return None
    if inside == "ollama":
        return None  # `serve` is met above; pull, run and others start no server
    after = 1 if inside == "vllm" and words[0].text == "serve" else 0
    return _read(inside, words[0], words[after:], environment, release)


def _name(word: Word) -> str:
    return word.text.rsplit("/", 1)[-1]


def _started(words: Sequence[Word], index: int) -> tuple[str, int] | None:
    """Return the engine that begins at a word, and the index of its first argument."""
    name = _name(words[index])
    following = words[index + 1].text if index + 1 < len(words) else ""
    if name == "-m" and following in MODULES:
        engine = MODULES[following]
        serve = index + 2 < len(words) and words[index + 2].text == "serve"
        if following in ("vllm", "vllm.entrypoints.cli.main", "sglang") and not serve:
            return None
        return engine, index + (3 if serve else 2)
    if name in ("vllm", "sglang", "ollama") and following == "serve":
        return name, index + 2
    if name in ("llama-server", "llama-server.exe") or (name == "server" and following.startswith("-m")):
        return "llama.cpp", index + 1
    if name == "trtllm-serve":
        return "trtllm", index + 2 if following == "serve" else index + 1
    if name.endswith("api_server.py") and "vllm" in words[index].text:
        return "vllm", index + 1
    return None


def _read(engine: str, first: Word, words: Sequence[Word], environment: dict[str, Word], release: tuple[int, int] | None) -> Invocation:
    texts = [word.text for word in words]
    positional: list[int] = []
    if engine == "vllm":
        positional, given = split_vllm(texts, release or newest("vllm"))
    elif engine == "sglang":
        given = split_sglang(texts)
    else:
        positional, given = split_vllm(texts, newest("vllm"))
    flags = tuple(Flag(one.flag, one.value, texts[one.at], words[one.at].place) for one in given)
    model = _model(engine, words, positional, flags)
    hides = next((words[at].text for at in positional if words[at].unresolved and words[at] is not model), "")
    hides = hides or next((flag.given for flag in flags if flag.name == "--config"), "")
    wrapper = next((flag.name for flag in flags if flag.name == "--omni"), "")
    return Invocation(engine, first, model, flags, environment, hides, wrapper)


MODEL_FLAGS = {
    "vllm": ("--model",),
    "sglang": ("--model-path",),
    "llama.cpp": ("-m", "--model", "-hf", "--hf-repo"),
    "trtllm": ("--model",),
}


def _model(engine: str, words: Sequence[Word], positional: list[int], flags: tuple[Flag, ...]) -> Word | None:
    for flag in reversed(flags):
        if flag.name in MODEL_FLAGS.get(engine, ()) and flag.value:
            return Word(flag.value, flag.place)
    if engine in ("vllm", "trtllm") and positional:
        return words[positional[0]]
    return None
