"""Shell scripts and command lines: engines started as they are, and engines in containers that `docker run` starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tonnage.lint.forms.args import nested, read_words
from tonnage.lint.forms.secrets import secrets_in
from tonnage.lint.invocation import SPEAKERS, Invocation, invocation, release_of_image
from tonnage.lint.place import Place, Source, Word
from tonnage.lint.server import Box, Mount, Port, Server, SharedMemory
from tonnage.lint.shell import Statement, statements

DEEPEST = 3
LONGEST_WORD = 20_000
RUNNERS = {"docker", "podman", "nerdctl"}
BARE_OPTIONS = {
    "-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--privileged", "--init", "--read-only", "-P", "--publish-all", "-q",
    "--quiet", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust",
}  # fmt: skip
MEMORY = {"b": 1, "": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "ki": 2**10, "mi": 2**20, "gi": 2**30, "kb": 2**10, "mb": 2**20,
          "gb": 2**30}  # fmt: skip


def read_script(source: Source) -> list[Server]:
    """Return the servers that a script starts."""
    found = []
    for statement in statements(source):
        server = _server(source, statement)
        if server is not None:
            last = max(word.place.line for word in statement.words)
            found.append(msgspec.structs.replace(server, last_line=last))
    return found


def _server(source: Source, statement: Statement, depth: int = 0) -> Server | None:
    words = statement.words
    name = words[0].text.rsplit("/", 1)[-1]
    index = next((at for at, word in enumerate(words[:4]) if word.text.rsplit("/", 1)[-1] in RUNNERS), None)
    run = next((at for at in range(index + 1, min(index + 3, len(words))) if words[at].text == "run"), None) if index is not None else None
    if index is not None and run is not None and "compose" not in [word.text for word in words[index:run]]:
        return _container(source, words[index], words[run + 1 :], statement)
    found = invocation(words) if index is None else None
    if found is not None:
        environment = {**statement.environment, **found.environment}
        return server_of(found, "command", name, environment, secrets_in(environment, found.flags, shell=True), broken=statement.broken)
    return _inside(source, statement, depth) if name not in SPEAKERS else None


def _inside(source: Source, statement: Statement, depth: int) -> Server | None:
    """Return the server that a word of a statement starts when it is run itself: by sh -c, ssh, tmux, srun, eval."""
    for word in statement.words[1:] if depth < DEEPEST else ():
        if " " not in word.text.strip() or len(word.text) > LONGEST_WORD:
            continue
        for inner in nested(source, word, {}, statement.environment):
            server = _server(source, Statement(inner.words, {**statement.environment, **inner.environment}), depth + 1)
            if server is not None:
                return server
    return None


def server_of(
    found: Invocation, form: str, name: str, environment: dict[str, Word], secrets: Sequence[object] = (), **more: object
) -> Server:
    """Return the server of an engine's start."""
    value = {"form": form, "name": name, "place": found.place.place, "engine": found.engine, "model": found.model, "flags": found.flags,
             "environment": environment, "secrets": tuple(secrets), "incomplete": found.incomplete,
             "wrapper": found.wrapper, **more}  # fmt: skip
    return Server(**value)  # type: ignore[arg-type]


def _container(source: Source, runner: Word, words: Sequence[Word], statement: Statement) -> Server | None:
    """Return the server in a container that these words, after `docker run`, start."""
    options: list[tuple[str, Word]] = []
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name, equals, value = word.text.partition("=")
        index += 1
        if equals:
            options.append((name, Word(value, word.place)))
        elif name in BARE_OPTIONS or (not name.startswith("--") and set(name[1:]) <= set("ditPq")):
            options.append((name, Word("", word.place)))
        elif not name.startswith("--") and len(name) > 2:
            options.append((name[:2], Word(name[2:], word.place)))
        elif index < len(words):
            options.append((name, words[index]))
            index += 1
    if index >= len(words):
        return None
    image, rest = words[index], list(words[index + 1 :])
    entry = next((word for name, word in options if name == "--entrypoint"), None)
    environment = dict(statement.environment)
    for name, word in options:
        if name in ("-e", "--env"):
            key, equals, value = word.text.partition("=")
            environment[key] = Word(value if equals else f"${key}", word.place)
    read = read_words(source, [entry] if entry else [], rest, {}, environment)
    found = invocation(read.words, image=image.text)
    if found is None:
        from tonnage.lint.invocation import WITHOUT_COMMAND, engine_of_image

        if engine_of_image(image.text) not in WITHOUT_COMMAND or rest or entry is not None:
            return None
        found = Invocation(engine_of_image(image.text), runner, None, ())
    given = {key: word for key, word in environment.items() if key not in statement.environment}
    return server_of(
        found,
        "docker",
        next((word.text for name, word in options if name == "--name"), "container"),
        {**environment, **read.environment, **found.environment},
        secrets_in(given, found.flags, shell=True),
        release=release_of_image(image.text) if found.engine == "vllm" else None,
        joined=read.joined,
        box=_box(image, options),
        broken=statement.broken,
    )


def _box(image: Word, options: Sequence[tuple[str, Word]]) -> Box:
    def last(*names: str) -> Word | None:
        return next((word for name, word in reversed(options) if name in names), None)

    shm, ipc, network, user, gpus = last("--shm-size"), last("--ipc"), last("--network", "--net"), last("-u", "--user"), last("--gpus")
    runtime = last("--runtime")
    others = any(name in ("--device", "--privileged") for name, _ in options)
    mounts = [mount for name, word in options if (mount := _mount(name, word)) is not None]
    return Box(
        image,
        shared_memory=_shared_memory(shm, mounts),
        host_ipc=ipc.place if ipc is not None and ipc.text == "host" else None,
        host_network=network.place if network is not None and network.text == "host" else None,
        user=user_kind(user.text) if user is not None else "",
        user_place=user.place if user is not None else None,
        ports=tuple(published(word.text, word.place) for name, word in options if name in ("-p", "--publish")),
        mounts=tuple(mounts),
        cards=_gpus(gpus.text) if gpus is not None else None,
        asks_cards=gpus is not None or others or (runtime is not None and runtime.text == "nvidia"),
        cards_place=gpus.place if gpus is not None else None,
    )


def _shared_memory(shm: Word | None, mounts: Sequence[Mount]) -> SharedMemory | None:
    if shm is not None:
        return SharedMemory(memory_bytes(shm.text), shm.place)
    return next((SharedMemory(None, mount.place) for mount in mounts if mount.path == "/dev/shm"), None)


def _mount(name: str, word: Word) -> Mount | None:
    if name in ("-v", "--volume"):
        return volume(word.text, word.place)
    if name == "--tmpfs":
        return Mount(word.text.split(":")[0].rstrip("/"), False, "tmpfs", word.place)
    if name == "--mount":
        fields = dict(part.partition("=")[::2] for part in word.text.split(","))
        path = fields.get("target") or fields.get("dst") or fields.get("destination") or ""
        return Mount(path.rstrip("/"), "readonly" in fields or "ro" in fields, fields.get("type", "volume"), word.place)
    return None


def volume(text: str, place: Place) -> Mount | None:
    """Return the mount of a short volume: `SOURCE:PATH[:ro]`, or `PATH` alone.

    >>> volume("./models:/models:ro", Place("f", 1, 1)).read_only
    True
    """
    parts = text.split(":")
    if len(parts) == 1:
        return Mount(parts[0].rstrip("/"), False, "volume", place)
    options = parts[2].split(",") if len(parts) > 2 else []
    kind = "bind" if parts[0].startswith((".", "/", "~", "$")) else "volume"
    return Mount(parts[1].rstrip("/"), "ro" in options, kind, place)


def published(text: str, place: Place) -> Port:
    """Return a published port: `[ADDRESS:]HOST:CONTAINER`.

    >>> published("127.0.0.1:8000:8000", Place("f", 1, 1)).address
    '127.0.0.1'
    """
    bare = text.split("/")[0]
    if bare.startswith("["):
        address, _, rest = bare[1:].partition("]")
        return Port(address, rest.rsplit(":", 1)[-1], place)
    parts = bare.rsplit(":", 2)
    return Port(parts[0] if len(parts) == 3 else "", parts[-1], place)


def user_kind(text: str) -> Literal["root", "other"]:
    """Return whether a user is root, or another."""
    return "root" if text.split(":")[0] in ("0", "root") else "other"


def _gpus(text: str) -> int | None:
    """Return how many devices `--gpus` gives; None for all of them."""
    plain = text.strip("\"'").replace('"', "")
    if plain == "all" or not plain:
        return None
    if plain.isdigit():
        return int(plain)
    fields = plain.removeprefix("device=")
    if fields != plain:
        return len([part for part in fields.split(",") if part]) if fields != "all" else None
    count = next((part.partition("=")[2] for part in plain.split(",") if part.startswith("count=")), "")
    return int(count) if count.isdigit() else None


def memory_bytes(text: str) -> int | None:
    """Return a size as Docker and Kubernetes write it; None where it is none.

    >>> memory_bytes("128m"), memory_bytes("8Gi"), memory_bytes("16gb")
    (134217728, 8589934592, 17179869184)
    """
    plain = text.strip().lower()
    digits = plain.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = plain[len(digits) :].strip()
    try:
        return int(float(digits) * MEMORY[unit])
    except (ValueError, KeyError, OverflowError):
        return None
