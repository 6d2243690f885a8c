"""Is each form of input read into the server it describes?"""
# ruff: noqa: E501 - inputs are kept as they are written

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.lint.context import Context
from tonnage.lint.place import Source
from tonnage.lint.run import lint
from tonnage.lint.server import Bundle, Server
from tonnage.lint.source import LARGEST_BYTES, read_bundle, read_source


def bundle(text: str, name: str = "input") -> Bundle:
    """Return what a text holds."""
    return read_bundle([Source(name, text)])


def server(text: str, name: str = "input") -> Server:
    """Return the only server of a text."""
    (found,) = bundle(text, name).servers
    return found


def rules(text: str, name: str = "input", context: Context | None = None) -> set[str]:
    """Return the rules that fire on a text."""
    return {finding.rule for finding in lint(bundle(text, name), context or Context()).findings}


@pytest.mark.parametrize(
    ("text", "engine", "model", "flags"),
    [
        pytest.param("vllm serve M --port 1", "vllm", "M", {"--port": "1"}, id="vllm serve"),
        pytest.param("vllm serve --trust-remote-code M", "vllm", "M", {"--trust-remote-code": None}, id="a switch takes no model"),
        pytest.param("vllm serve --served-model-name a b --model M", "vllm", "M", {"--served-model-name": "a b"}, id="several names"),
        pytest.param("python3 -m vllm.entrypoints.openai.api_server --model=M", "vllm", "M", {}, id="the module"),
        pytest.param("CUDA_VISIBLE_DEVICES=0 nohup /opt/bin/vllm serve M &", "vllm", "M", {}, id="wrapped"),
        pytest.param("env A=b uv run vllm serve M --max_num_seqs=4", "vllm", "M", {"--max-num-seqs": "4"}, id="env, underscores, equals"),
        pytest.param("bash -lc 'cd /x && vllm serve M -tp 2'", "vllm", "M", {"--tensor-parallel-size": "2"}, id="a shell in a shell"),
        pytest.param("vllm serve M --tensor-parallel 2", "vllm", "M", {"--tensor-parallel-size": "2"}, id="an abbreviation"),
        pytest.param("python -m sglang.launch_server --model-path M --tp 2", "sglang", "M", {"--tp-size": "2"}, id="sglang"),
        pytest.param("llama-server -m M -np 4", "llama.cpp", "M", {"-np": "4"}, id="llama.cpp"),
        pytest.param("trtllm-serve M --tp_size 2", "trtllm", "M", {"--tp-size": "2"}, id="trtllm"),
        pytest.param("docker run --gpus all vllm/vllm-openai:v0.24.0 --model M", "vllm", "M", {}, id="docker run"),
        pytest.param("docker run -it --rm IMG vllm serve M", "vllm", "M", {}, id="docker run with a command"),
        pytest.param("sudo docker run --gpus=all -v a:b vllm/vllm-openai M --port 1", "vllm", "M", {"--port": "1"}, id="a positional model"),
        pytest.param("[Service]\nExecStart=/opt/vllm serve M \\\n  --port 1\n", "vllm", "M", {"--port": "1"}, id="a unit"),
        pytest.param("services:\n  a:\n    image: vllm/vllm-openai\n    command: --model M\n", "vllm", "M", {}, id="compose, a string"),
        pytest.param("services:\n  a:\n    image: vllm/vllm-openai\n    command: [--model, M]\n", "vllm", "M", {}, id="compose, a list"),
        pytest.param("services:\n  a:\n    image: ollama/ollama\n", "ollama", None, {}, id="an image that starts by itself"),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: x\n    command: [sh, -c]\n    args:\n    - |\n      exec vllm serve M \\\n        --port 1\n",
            "vllm", "M", {"--port": "1"}, id="a pod with a shell",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, $(M)]\n    env: [{name: M, value: A/B}]\n",
            "vllm", "A/B", {}, id="a pod with a variable",
        ),
        pytest.param(
            "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec:\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n      spec:\n"
            "        containers:\n        - image: vllm/vllm-openai\n          args: [--model, M, -tp, '8', -pp, '2']\n    workerTemplate:\n      spec:\n"
            "        containers: [{image: vllm/vllm-openai, command: [sh, -c, ray start]}]\n",
            "vllm", "M", {"--tensor-parallel-size": "8", "--pipeline-parallel-size": "2"}, id="a group of pods",
        ),
        pytest.param(
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s}\nspec:\n  predictor:\n    model:\n"
            "      modelFormat: {name: huggingface}\n      args: [--max-num-seqs=4]\n      storageUri: pvc://models/m\n",
            "vllm", "pvc://models/m", {"--max-num-seqs": "4"}, id="kserve",
        ),
        pytest.param(
            "image: {repository: vllm/vllm-openai, tag: v0.24.0}\nextraArgs: [--model, M, --port=1]\nreplicaCount: 2\n",
            "vllm", "M", {"--port": "1"}, id="plain values",
        ),
    ],
)  # fmt: skip
def test_an_engine_is_found_in_every_form(text: str, engine: str, model: str | None, flags: dict[str, str | None]) -> None:
    """Engine, model and flags, whatever they are written in."""
    found = server(text)
    assert (found.engine, found.model.text if found.model is not None else None) == (engine, model)
    assert {flag.name: flag.value for flag in found.flags if flag.name in flags} == flags


@pytest.mark.parametrize(
    "text", ["echo vllm serve M", "pip install vllm serve", "docker build -t vllm serve .", "nginx -g x", "# vllm serve M"]
)
def test_what_starts_no_engine_is_none(text: str) -> None:
    """Words that only speak of one."""
    assert not bundle(text).servers


def test_compose_anchors_are_merged() -> None:
    """`<<: *base` gives a service its image and its ports; its own keys win."""
    text = "x-base: &base\n  image: vllm/vllm-openai:v0.24.0\n  ports: ['8000:8000']\nservices:\n  a:\n    <<: *base\n    command: [--model, M]\n"
    found = server(text)
    assert found.release == (0, 24) and found.box is not None and found.box.ports[0].address == ""


def test_a_folded_command_is_split_and_a_two_word_item_is_joined() -> None:
    """Compose splits strings as a shell does; an item of a list is one word."""
    folded = "services:\n  a:\n    image: vllm/vllm-openai\n    command: >\n      --model M\n      --port 1\n"
    assert "args-joined" not in rules(folded)
    listed = "services:\n  a:\n    image: vllm/vllm-openai\n    command: ['--model', M, '--port 1']\n"
    assert "args-joined" in rules(listed)


@pytest.mark.parametrize(
    ("comment", "silenced"),
    [("# tonnage: ignore[bind-open]", True), ("# tonnage: ignore", True), ("# tonnage: ignore[hub-model]", False), ("# a note", False)],
)
def test_a_comment_above_a_command_silences_its_rules(comment: str, silenced: bool) -> None:
    """For the whole command, continuations too; other rules go on."""
    assert ("bind-open" not in rules(f"{comment}\nvllm serve /m \\\n  --host 0.0.0.0\n")) == silenced


def test_files_given_together_are_judged_together() -> None:
    """A policy in a second file closes the pod of the first; an Envoy that counts tokens asks for usage."""
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: s, labels: {a: b}}\nspec:\n  containers: [{image: vllm/vllm-openai, args: [--model, /m]}]\n"
    policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: s}\nspec: {podSelector: {}, policyTypes: [Ingress, Egress]}\n"
    envoy = "static_resources:\n  http_filters: [{name: envoy.filters.http.sse_to_metadata}]\n"
    alone, together = (
        lint(read_bundle([Source(f"{n}.yaml", text) for n, text in enumerate(texts)]), Context()) for texts in ([pod], [pod, policy, envoy])
    )
    assert {"ingress-open", "egress-open"} <= {finding.rule for finding in alone.findings}
    found = {finding.rule for finding in together.findings}
    assert not found & {"ingress-open", "egress-open"} and "usage-not-forced" in found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"\xff\xfe\x00", "UTF-8", id="no text"),
        pytest.param(b"a\x00b", "zero bytes", id="zero bytes"),
        pytest.param(b"x" * (LARGEST_BYTES + 1), "larger", id="too large"),
    ],
)
def test_what_is_no_text_is_one_error(data: bytes, said: str) -> None:
    """Named, not read."""
    with pytest.raises(InputError, match=said):
        read_source(data, "f")


def test_a_yaml_bomb_is_not_unfolded() -> None:
    """Ten levels of nine aliases each would be 3.5 billion nodes."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 11)]
    text = "\n".join(lines) + "\nservices: {a: {image: vllm/vllm-openai, command: *a10, environment: *a10, volumes: *a10, ports: *a10}}\n"
    lint(bundle(text, "bomb.yaml"), Context())


def test_a_merge_that_holds_itself_ends() -> None:
    """YAML allows an anchor inside itself."""
    lint(bundle("services: &s\n  a: &a\n    <<: *a\n    image: vllm/vllm-openai\n", "loop.yaml"), Context())


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, "a: &a [*a]", "? " * 10_000])
def test_deep_nesting_is_one_error_or_nothing(text: str) -> None:
    """Never a crash."""
    try:
        bundle(text, "deep.yaml")
    except InputError as error:
        assert "is no YAML" in error.problem
