"""Compose files: each service that starts an engine."""

from __future__ import annotations

from tonnage.lint.forms.args import read_words
from tonnage.lint.forms.command import memory_bytes, published, server_of, user_kind, volume
from tonnage.lint.forms.secrets import secrets_in
from tonnage.lint.invocation import WITHOUT_COMMAND, Invocation, engine_of_image, invocation, release_of_image
from tonnage.lint.place import Source, Word
from tonnage.lint.server import Box, Mount, Port, Secret, Server, SharedMemory
from tonnage.lint.shell import statements
from tonnage.lint.yaml_text import Yaml


def read_compose(source: Source, document: Yaml) -> tuple[list[Server], list[Secret]]:
    """Return the servers of a compose file, and what stands in clear text in its other services."""
    document = Yaml(Source(source.file, source.text, interpolates=True), document.node)
    servers: list[Server] = []
    secrets: list[Secret] = []
    for name, service in document.get("services").pairs():
        server = _server(document.source, name, service)
        if server is not None:
            servers.append(server)
        else:
            secrets += secrets_in(_environment(service.get("environment")), ())
    return servers, secrets


def _server(source: Source, name: Word, service: Yaml) -> Server | None:
    image = service.get("image").word if service.get("image") else None
    text = image.text if image is not None else ""
    environment = _environment(service.get("environment"))
    entry, command = _words(source, service.get("entrypoint")), _words(source, service.get("command"))
    if engine_of_image(text) == "ollama" and not command and not entry:
        command = [Word("serve", name.place)]
    spans = {
        word: (node.start, node.end)
        for node in (*service.get("command").items(), *service.get("entrypoint").items())
        for word in [node.word]
    }
    read = read_words(source, entry, command, spans, environment)
    found = invocation(read.words, image=text)
    if found is None:
        if engine_of_image(text) not in WITHOUT_COMMAND or command or entry:
            return None
        found = Invocation(engine_of_image(text), name, None, ())
    return server_of(
        found,
        "compose",
        name.text,
        {**environment, **read.environment, **found.environment},
        secrets_in(environment, found.flags),
        release=release_of_image(text) if found.engine == "vllm" else None,
        joined=read.joined,
        box=_box(image, service),
        copies=service.get("deploy", "replicas").number(1) or 1,
    )


def _words(source: Source, node: Yaml) -> list[Word]:
    """Return a command: the items of a list, or a string split as a shell would."""
    if node.kind == "sequence":
        return [item.word for item in node.items()]
    if node.kind != "scalar":
        return []
    texts = [word.text for statement in statements(Source(source.file, node.text.replace("\n", " "))) for word in statement.words]
    return source.located(texts, node.start, node.end)


def _environment(node: Yaml) -> dict[str, Word]:
    if node.kind == "mapping":
        return {key.text: value.word if value else Word(f"${key.text}", key.place) for key, value in node.pairs()}
    found = {}
    for item in node.items():
        name, equals, value = item.text.partition("=")
        found[name] = Word(value if equals else f"${name}", item.word.place)
    return found


def _box(image: Word | None, service: Yaml) -> Box:
    mounts = [mount for node in service.get("volumes").items() if (mount := _mount(node)) is not None]
    mounts += [Mount(node.text.split(":")[0], False, "tmpfs", node.place) for node in service.get("tmpfs").items()]
    user, shm, ipc = service.get("user"), service.get("shm_size"), service.get("ipc")
    shared = SharedMemory(memory_bytes(shm.text), shm.place) if shm else None
    shared = shared or next((SharedMemory(None, mount.place) for mount in mounts if mount.path == "/dev/shm"), None)
    cards, asked = _cards(service)
    return Box(
        image,
        shared_memory=shared,
        host_ipc=ipc.place if ipc.text == "host" else None,
        host_network=service.get("network_mode").place if service.get("network_mode").text == "host" else None,
        user=user_kind(user.text) if user else "",
        user_place=user.place if user else None,
        ports=tuple(port for node in service.get("ports").items() if (port := _port(node)) is not None),
        mounts=tuple(mounts),
        cards=cards,
        asks_cards=asked is not None
        or service.get("runtime").text == "nvidia"
        or bool(service.get("devices"))
        or service.get("privileged").true,
        cards_place=asked.place if asked is not None else None,
    )


def _port(node: Yaml) -> Port | None:
    if node.kind == "scalar":
        return published(node.text, node.word.place) if ":" in node.text else Port("", node.text, node.place)
    if node.kind == "mapping":
        return Port(node.get("host_ip").text, node.get("target").text, node.place)
    return None


def _mount(node: Yaml) -> Mount | None:
    if node.kind == "scalar":
        return volume(node.text, node.word.place)
    target = node.get("target").text
    return Mount(target.rstrip("/"), node.get("read_only").true, node.get("type").text, node.place) if target else None


def _cards(service: Yaml) -> tuple[int | None, Yaml | None]:
    """Return how many devices a service is given (None: all, or not said), and where."""
    if service.get("gpus"):
        node = service.get("gpus")
        counts = [item.get("count") for item in node.items()]
        return (sum(count.number(0) for count in counts) or None) if counts else None, node
    for device in service.get("deploy", "resources", "reservations", "devices").items():
        if not any("gpu" in item.text for item in device.get("capabilities").items()) and device.get("driver").text != "nvidia":
            continue
        ids, count = device.get("device_ids"), device.get("count")
        if ids:
            return len(ids.items()), ids
        return (count.number(0) or None, count) if count else (None, device)
    return None, None
