"""Values of charts: vLLM's production-stack, and plain ones with an image and arguments.

What the production-stack chart does with them (templates/deployment-vllm-multi.yaml): /dev/shm is mounted only where
`vllmConfig.tensorParallelSize` is set, the model is served by the hub or path in `modelURL`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.forms.args import read_words
from tonnage.lint.forms.command import memory_bytes, server_of
from tonnage.lint.forms.kubernetes import probe_of, user_of
from tonnage.lint.forms.secrets import is_secret, secrets_in
from tonnage.lint.invocation import Invocation, engine_of_image, invocation, release_of_image
from tonnage.lint.place import Source, Word
from tonnage.lint.server import Box, Flag, Mount, Pod, Secret, Server, SharedMemory
from tonnage.lint.yaml_text import Yaml

SETTINGS = {
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxModelLen": "--max-model-len",
    "maxNumSeqs": "--max-num-seqs",
    "maxNumBatchedTokens": "--max-num-batched-tokens",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "maxLoras": "--max-loras",
}
SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill"}
ARGUMENTS = ("command", "args", "containerArgs", "extraArgs")
DEEPEST = 6


def is_values(document: Yaml) -> bool:
    """Return whether a document looks like a chart's values that start an engine."""
    return bool(document.get("servingEngineSpec")) or any(True for _ in _plain(document))


def read_values(source: Source, document: Yaml) -> list[Server]:
    """Return the servers of a values file."""
    stack = document.get("servingEngineSpec")
    if stack:
        models = stack.get("modelSpec")
        nodes = models.items() if models.kind == "sequence" else [value for _, value in models.pairs()]
        return [server for node in nodes if (server := _of_stack(source, node, stack)) is not None]
    servers = (_of_plain(source, node) for node in _plain(document))
    return [server for server in servers if server is not None]


def _of_stack(source: Source, node: Yaml, stack: Yaml) -> Server | None:
    if not node.get("modelURL") and not node.get("repository"):
        return None
    config = node.get("vllmConfig")
    image = _image(node.get("repository"), node.get("tag"))
    flags = [Flag(SETTINGS[key.text], value.text, key.text, key.place) for key, value in config.pairs() if key.text in SETTINGS and value]
    for key, value in config.pairs():
        if key.text in SWITCHES and value:
            flags.append(Flag(SWITCHES[key.text], None if value.true else "false", key.text, key.place))
    extra = config.get("extraArgs").items()
    read = read_words(source, [], [item.word for item in extra], {item.word: (item.start, item.end) for item in extra})
    found = invocation(
        [Word("vllm", node.place), Word("serve", node.place), *read.words], release=release_of_image(image.text) if image else None
    )
    assert found is not None
    environment = {item.get("name").text: item.get("value").word for item in node.get("env").items() if item.get("value")}
    token = node.get("hf_token")
    secrets = [*secrets_in(environment, found.flags)]
    for name, value in (("hf_token", token), ("vllmApiKey", stack.get("vllmApiKey"))):
        if value.kind == "scalar" and is_secret(f"{name.upper()}_TOKEN", value.text):
            secrets.append(Secret(name, value.place))
    model = node.get("modelURL")
    size = node.get("shmSize")
    tensor = config.get("tensorParallelSize")
    shared = SharedMemory(memory_bytes(size.text) if size else 20 * 2**30, (size if size else tensor).place) if tensor else None
    return server_of(
        Invocation("vllm", Word("", node.place), model.word if model else found.model, (*flags, *found.flags)),
        "values",
        node.get("name").text or "model",
        environment,
        secrets,
        release=release_of_image(image.text) if image else None,
        joined=read.joined,
        box=_box(image, stack, node, shared),
        pod=_pod(stack, node, node.get("replicaCount").number(1)),
        incomplete="raySpec" if node.get("raySpec", "enabled").true else found.incomplete,
    )


def _box(image: Word | None, around: Yaml, node: Yaml, shared: SharedMemory | None) -> Box:
    spec, container = around, node
    context = next((around.get(key) for key in ("containerSecurityContext", "podSecurityContext") if around.get(key)), around.get(""))
    user, place = user_of(spec, container)
    if not user and context:
        as_user = context.get("runAsUser")
        user = "root" if as_user.text == "0" else ("other" if as_user or context.get("runAsNonRoot").true else "")
        place = context.place
    asked = node.get("requestGPU")
    cards = asked if asked else next((value for key, value in node.get("resources", "limits").pairs() if key.text.endswith("/gpu")), asked)
    return Box(
        image,
        shared_memory=shared,
        user=user,
        user_place=place,
        mounts=tuple(
            Mount(item.get("mountPath").text.rstrip("/"), item.get("readOnly").true, "", item.place)
            for item in (*node.get("extraVolumeMounts").items(), *node.get("volumeMounts").items())
        ),
        cards=cards.number(0) or None if cards else None,
        asks_cards=bool(cards),
        cards_place=cards.place if cards else node.place,
    )


def _plain_memory(node: Yaml) -> SharedMemory | None:
    """Return the /dev/shm that a plain chart's values ask for, by the names that charts use."""
    for key in ("shm", "sharedMemory", "dshm"):
        shm = node.get(key)
        if shm.kind == "mapping" and not shm.get("enabled").false:
            size = next((shm.get(name) for name in ("sizeLimit", "size") if shm.get(name)), Yaml(node.source, None))
            return SharedMemory(memory_bytes(size.text) if size else None, (size if size else shm).place)
    mounts = (*node.get("volumeMounts").items(), *node.get("extraVolumeMounts").items())
    return next((SharedMemory(None, mount.place) for mount in mounts if mount.get("mountPath").text.rstrip("/") == "/dev/shm"), None)


def _pod(around: Yaml, node: Yaml, replicas: int) -> Pod:
    found = []
    for key, kind in (("startupProbe", "startup"), ("readinessProbe", "readiness"), ("livenessProbe", "liveness")):
        probe = probe_of(node, key, kind) or probe_of(around, key, kind)
        if probe is not None:
            found.append(probe)
    return Pod("values", "", (), replicas, probes=tuple(found))


def _image(repository: Yaml, tag: Yaml) -> Word | None:
    if not repository:
        return None
    if not tag:
        return repository.word
    joint = "" if tag.text.startswith("@") else ("@" if tag.text.startswith("sha256:") else ":")
    return Word(f"{repository.text}{joint}{tag.text}", tag.word.place)


def _plain(node: Yaml, depth: int = 0) -> Iterator[Yaml]:
    """Yield the mappings of a values file that have an engine's image, or a command that starts one."""
    if node.kind != "mapping" or depth > DEEPEST:
        return
    words = [item.word for key in ARGUMENTS for item in node.get(key).items()]
    image = node.get("image")
    repository = image.get("repository").text if image.kind == "mapping" else image.text
    inside = [item.word for item in image.get("command").items()] if image.kind == "mapping" else []
    if engine_of_image(repository) or invocation(words or inside) is not None:
        yield node
        return
    for _, value in node.pairs():
        yield from _plain(value, depth + 1)


def _of_plain(source: Source, node: Yaml) -> Server | None:
    image = node.get("image")
    tag = image.get("digest") if image.get("digest") else image.get("tag")
    reference = _image(image.get("repository"), tag) if image.kind == "mapping" else (image.word if image else None)
    text = reference.text if reference is not None else ""
    items = [item for part in (image, node) for key in ARGUMENTS for item in part.get(key).items()]
    environment: dict[str, Word] = {}
    for key in ("env", "extraEnv", "extraEnvVars"):
        environment |= {item.get("name").text: item.get("value").word for item in node.get(key).items() if item.get("value")}
        environment |= {name.text: value.word for name, value in node.get(key).pairs() if value.kind == "scalar"}
    spans = {item.word: (item.start, item.end) for item in items}
    read = read_words(source, [], [item.word for item in items], spans, environment)
    found = invocation(read.words, image=text)
    if found is None:
        return None
    return server_of(
        found,
        "values",
        node.get("name").text or "engine",
        {**environment, **found.environment},
        secrets_in(environment, found.flags),
        release=release_of_image(text) if found.engine == "vllm" else None,
        joined=read.joined,
        box=_box(reference, node, node, _plain_memory(node)),
        pod=_pod(node, node, node.get("replicaCount").number(1)),
    )
