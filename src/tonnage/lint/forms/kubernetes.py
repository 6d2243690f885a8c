"""Kubernetes manifests: pods that start an engine, whatever makes them, and the policies and services around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Literal

import msgspec

from tonnage.lint.forms.args import read_words, substituted
from tonnage.lint.forms.command import memory_bytes, server_of
from tonnage.lint.forms.policies import cilium_policy_of, namespace_of, policy_of
from tonnage.lint.forms.secrets import LOOKS, is_secret, secrets_in
from tonnage.lint.invocation import Invocation, engine_of_image, invocation, release_of_image
from tonnage.lint.place import Place, Source, Word
from tonnage.lint.server import Box, Mount, Pod, Policy, Probe, Secret, Server, Service, SharedMemory
from tonnage.lint.yaml_text import Yaml

TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
ACCELERATORS = ("gpu.intel.com", "google.com", "aws.amazon.com", "habana.ai", "huawei.com", "cloud-tpus.google.com", "qualcomm.com")
"""Vendors of resources other than GPUs that an engine runs on."""
PRODUCT = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name")
"""Node labels whose value names the card."""


class Manifests(msgspec.Struct, frozen=True):
    """What a file of manifests holds."""

    servers: tuple[Server, ...] = ()
    policies: tuple[Policy, ...] = ()
    services: tuple[Service, ...] = ()
    secrets: tuple[Secret, ...] = ()


def read_manifests(source: Source, documents: Sequence[Yaml]) -> Manifests:
    """Return the servers, policies and services of a file, and what stands in clear text beside the engines."""
    servers: list[Server] = []
    policies: list[Policy] = []
    services: list[Service] = []
    secrets: list[Secret] = []
    for document in _objects(documents):
        kind = document.get("kind").text
        if kind == "NetworkPolicy":
            policies.append(policy_of(document))
        elif kind in ("CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"):
            policies.append(cilium_policy_of(document))
        elif kind == "Service" and document.get("apiVersion").text == "v1":
            services.append(_service(document))
        elif kind in ("ConfigMap", "Secret"):
            secrets += _written(document, kind)
        else:
            found = list(_pods(source, document, kind))
            servers += found
            known = {secret.place for server in found for secret in server.secrets}
            secrets += [secret for secret in _beside(document, kind) if secret.place not in known]
    return Manifests(tuple(servers), tuple(policies), tuple(services), tuple(secrets))


def _written(document: Yaml, kind: str) -> list[Secret]:
    """Return what a ConfigMap, or a Secret that is written out, holds in clear text."""
    values = (
        (*document.get("data").pairs(), *document.get("stringData").pairs())
        if kind == "ConfigMap"
        else (*document.get("stringData").pairs(),)
    )
    return [
        Secret(key.text, value.place)
        for key, value in values
        if LOOKS.match(value.text) or (kind == "Secret" and is_secret("TOKEN", value.text))
    ]


def _beside(document: Yaml, kind: str) -> list[Secret]:
    """Return what stands in clear text in any container of an object's pods."""
    found: list[Secret] = []
    for spec in _pod_specs(document, kind):
        for container in (*spec.get("initContainers").items(), *spec.get("containers").items()):
            found += secrets_in({name: word for name, word in _environment(container.get("env")).items() if word.text}, ())
    return found


def _pod_specs(document: Yaml, kind: str) -> list[Yaml]:
    group = document.get("spec", "leaderWorkerTemplate")
    if group:
        return [group.get(part, "spec") for part in ("leaderTemplate", "workerTemplate")]
    if kind == "Pod":
        return [document.get("spec")]
    template = document.get(*TEMPLATES.get(kind, ("spec", "template")))
    return [template.get("spec") if template.get("spec") else template, document.get("spec", "predictor"), document.get("spec")]


def _objects(documents: Sequence[Yaml]) -> Iterator[Yaml]:
    for document in documents:
        if document.get("kind").text == "List":
            yield from document.get("items").items()
        else:
            yield document


def _pods(source: Source, document: Yaml, kind: str) -> Iterator[Server]:
    name = document.get("metadata", "name").text or kind.lower()
    spec = document.get("spec")
    if kind == "Pod":
        yield from _containers(source, name, document, _pod(document, document, kind))
    elif kind in TEMPLATES:
        template = document.get(*TEMPLATES[kind])
        yield from _containers(source, name, template, _pod(document, template, kind))
    elif kind == "LeaderWorkerSet":
        group = spec.get("leaderWorkerTemplate")
        size = group.get("size").number(1)
        for part in ("leaderTemplate", "workerTemplate"):
            template = group.get(part)
            if template:
                pod = _pod(document, template, kind, ("leaderworkerset.sigs.k8s.io/name", name))
                yield from _containers(source, name, template, msgspec.structs.replace(pod, pods_a_replica=size))
    elif kind == "InferenceService":
        yield from _inference_service(source, name, document)
    elif spec.get("template", "spec", "containers") or spec.get("template", "containers") or spec.get("containers"):
        template = spec.get("template") if spec.get("template", "spec") else document
        inner = template.get("spec") if spec.get("template", "spec") else (spec.get("template") if spec.get("template") else spec)
        yield from _of_spec(source, name, inner, _pod(document, template, kind))


OTHER_FORMATS = ("sklearn", "xgboost", "lightgbm", "triton", "tensorflow", "pytorch", "onnx", "pmml", "mlflow", "paddle", "catboost")


def _inference_service(source: Source, name: str, document: Yaml) -> Iterator[Server]:
    """Yield the server of a KServe InferenceService: containers of its own, or a model and a runtime that starts vLLM."""
    predictor = document.get("spec", "predictor")
    replicas = predictor.get("minReplicas").number(1) or 1
    labels = (*document.get("metadata", "labels").labels(), ("serving.kserve.io/inferenceservice", name))
    pod = Pod("InferenceService", namespace_of(document), labels, replicas)
    model = predictor.get("model")
    if predictor.get("containers"):
        yield from _of_spec(source, name, predictor, pod)
    elif model and model.get("modelFormat", "name").text.lower() not in OTHER_FORMATS:
        for server in _container(source, name, predictor, model, pod, image="vllm"):
            yield _of_runtime(server, model)


def _of_runtime(server: Server, model: Yaml) -> Server:
    """Return a server as KServe's huggingface runtime starts it: with names of its own for the model and its alias."""
    if model.get("modelFormat", "name").text.lower() != "huggingface":
        return server
    names = {"--model-name": "--served-model-name"}
    flags = tuple(msgspec.structs.replace(flag, name=names.get(flag.name, flag.name)) for flag in server.flags)
    given = next((flag for flag in flags if flag.name in ("--model-id", "--model-dir") and flag.value), None)
    word = Word(given.value or "", given.place) if given is not None else server.model
    return msgspec.structs.replace(server, flags=flags, model=word, wrapper="KServe's huggingface runtime")


def _pod(document: Yaml, template: Yaml, kind: str, *more: tuple[str, str]) -> Pod:
    spec = document.get("spec")
    replicas = spec.get("replicas").number(1) if kind not in ("Pod", "Job", "CronJob", "DaemonSet") else 1
    surge, unavailable, place = _update(spec, replicas, kind)
    return Pod(
        kind,
        namespace_of(document),
        (*template.get("metadata", "labels").labels(), *more),
        replicas,
        surge,
        unavailable,
        place,
    )


def _update(spec: Yaml, replicas: int, kind: str) -> tuple[int | None, int | None, Place | None]:
    """Return (surge, unavailable) in pods during an update, with Kubernetes' defaults of 25 % each."""
    if kind != "Deployment":
        return None, None, None
    strategy = spec.get("strategy")
    place = strategy.place if strategy else (spec.place if spec else None)
    if strategy.get("type").text == "Recreate":
        return None, None, place
    rolling = strategy.get("rollingUpdate")
    surge = _share(rolling.get("maxSurge").text or "25%", replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable").text or "25%", replicas, up=False)
    return surge, unavailable, place


def _share(text: str, of: int, *, up: bool) -> int:
    if text.endswith("%") and text[:-1].isdecimal() and len(text) < 8:
        part = int(text[:-1]) * of / 100
        return ceil(part) if up else int(part)
    return int(text) if text.isdecimal() and len(text) < 8 else 0


def _containers(source: Source, name: str, template: Yaml, pod: Pod) -> Iterator[Server]:
    yield from _of_spec(source, name, template.get("spec"), pod)


def _of_spec(source: Source, name: str, spec: Yaml, pod: Pod) -> Iterator[Server]:
    containers = spec.get("containers").items()
    for container in containers:
        yield from _container(source, name if len(containers) == 1 else f"{name}/{container.get('name').text}", spec, container, pod)


def _container(source: Source, name: str, spec: Yaml, container: Yaml, pod: Pod, image: str = "") -> Iterator[Server]:
    reference = container.get("image").word if container.get("image") else None
    text = (reference.text if reference is not None else "") or image
    environment = _environment(container.get("env"))
    nodes = (*container.get("command").items(), *container.get("args").items())
    spans = {node.word: (node.start, node.end) for node in nodes}
    command = substituted([node.word for node in container.get("command").items()], environment)
    args = substituted([node.word for node in container.get("args").items()], environment)
    spans.update(dict(zip([*command, *args], spans.values(), strict=False)))
    read = read_words(source, command, args, spans, environment)
    found = invocation(read.words, image="" if container.get("command") else text)
    if found is None:
        if engine_of_image(text) not in ("vllm", "ollama") or nodes or not container:
            return
        found = Invocation(engine_of_image(text), reference or Word("", container.place), None, ())
    if image and found.model is None and container.get("storageUri"):
        found = msgspec.structs.replace(found, model=container.get("storageUri").word)
    probes = tuple(
        probe
        for key, kind in (("startupProbe", "startup"), ("readinessProbe", "readiness"), ("livenessProbe", "liveness"))
        if (probe := probe_of(container, key, kind)) is not None
    )
    ports = tuple((port.get("name").text, port.get("containerPort").text) for port in container.get("ports").items())
    yield server_of(
        found,
        "pod",
        name,
        {**environment, **found.environment},
        secrets_in({key: word for key, word in environment.items() if word.text}, found.flags),
        release=release_of_image(text) if found.engine == "vllm" else None,
        joined=read.joined,
        box=_box(reference, spec, container),
        pod=msgspec.structs.replace(pod, probes=probes, ports=ports),
    )


def _environment(node: Yaml) -> dict[str, Word]:
    found: dict[str, Word] = {}
    for item in node.items():
        name, value = item.get("name").text, item.get("value")
        word = value.word if value else Word("$(from elsewhere)" if item.get("valueFrom") else "", item.place)
        found[name] = substituted([word], found)[0]
    return found


def _box(image: Word | None, spec: Yaml, container: Yaml) -> Box:
    mounts = [_mount(node, spec) for node in container.get("volumeMounts").items()]
    shm = next((node for node in container.get("volumeMounts").items() if node.get("mountPath").text.rstrip("/") == "/dev/shm"), None)
    user, user_place = user_of(spec, container)
    cards, place = _cards(container)
    return Box(
        image,
        shared_memory=_shared_memory(shm, spec) if shm is not None else None,
        host_ipc=spec.get("hostIPC").place if spec.get("hostIPC").true else None,
        host_network=spec.get("hostNetwork").place if spec.get("hostNetwork").true else None,
        user=user,
        user_place=user_place,
        mounts=tuple(mounts),
        cards=cards,
        asks_cards=cards is not None,
        cards_place=place or container.key("resources") or container.place,
        card=next((value.text for key, value in spec.get("nodeSelector").pairs() if key.text in PRODUCT), ""),
    )


def _volume(spec: Yaml, name: str) -> Yaml:
    return next((node for node in spec.get("volumes").items() if node.get("name").text == name), Yaml(spec.source, None))


def _mount(node: Yaml, spec: Yaml) -> Mount:
    behind = _volume(spec, node.get("name").text)
    kind = next((key.text for key, _ in behind.pairs() if key.text != "name"), "")
    inside = behind.get(kind) if kind else behind
    closed = (
        node.get("readOnly").true or inside.get("readOnly").true or kind in ("configMap", "secret", "image", "downwardAPI", "projected")
    )
    return Mount(node.get("mountPath").text.rstrip("/") or "/", closed, kind, node.place)


def _shared_memory(mount: Yaml, spec: Yaml) -> SharedMemory:
    inside = _volume(spec, mount.get("name").text).get("emptyDir")
    limit = inside.get("sizeLimit")
    if inside.get("medium").text == "Memory":
        return SharedMemory(memory_bytes(limit.text) if limit else None, (limit if limit else mount).place)
    return SharedMemory(None, mount.place)


def user_of(spec: Yaml, container: Yaml) -> tuple[Literal["root", "other", ""], Place | None]:
    """Return whether the container runs as root, which its own context says before the pod's."""
    own, pod = container.get("securityContext"), spec.get("securityContext")
    for context in (own, pod):
        if context.get("runAsUser"):
            return ("root" if context.get("runAsUser").text == "0" else "other"), context.get("runAsUser").place
    for context in (own, pod):
        if context.get("runAsNonRoot"):
            return ("other" if context.get("runAsNonRoot").true else ""), context.get("runAsNonRoot").place
    return "", None


def _cards(container: Yaml) -> tuple[int | None, Place | None]:
    """Return the devices of the container's limits: GPUs of any vendor, or slices of them."""
    resources = container.get("resources")
    limits = resources.get("limits")
    for key, value in limits.pairs():
        vendor = key.text.split("/")[0]
        if "/" in key.text and (key.text.endswith(("/gpu", "/gpu.shared")) or "/mig-" in key.text or vendor in ACCELERATORS):
            return value.number(0) or None, value.place
    if resources.get("claims"):
        return len(resources.get("claims").items()), resources.get("claims").place
    return None, resources.place if resources else None


def probe_of(container: Yaml, key: str, name: Any) -> Probe | None:
    node = container.get(key)
    if not node:
        return None
    http, tcp = node.get("httpGet"), node.get("tcpSocket")
    kind = "http" if http else ("tcp" if tcp else ("exec" if node.get("exec") else ("grpc" if node.get("grpc") else "")))
    timeout = node.get("timeoutSeconds")
    return Probe(
        name,
        kind,  # type: ignore[arg-type]
        http.get("path").text,
        (http or tcp).get("port").text,
        node.get("initialDelaySeconds").number(0),
        node.get("periodSeconds").number(10),
        node.get("failureThreshold").number(3),
        timeout.number(1) if timeout else None,
        container.key(key) or node.place,
    )


def _service(document: Yaml) -> Service:
    spec = document.get("spec")
    kind = spec.get("type")
    return Service(namespace_of(document), kind.text or "ClusterIP", spec.get("selector").labels(), (kind if kind else document).place)
