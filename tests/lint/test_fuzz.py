"""Does any text end in findings or in one clean error, whatever it is?"""

from __future__ import annotations

import string
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import TonnageError
from tonnage.lint.context import Context
from tonnage.lint.run import lint
from tonnage.lint.source import read_bundle, read_source

BASE = (Path(__file__).parent / "base.yaml").read_text()
CONTEXT = Context("vllm", (0, 24), "Qwen/Qwen3-8B", "l4", 1, 1, 16, 8000, 9000, 100, 100, 0, 2**30, True, 1.0, 0.05)

keys = st.sampled_from(
    [
        "kind",
        "apiVersion",
        "spec",
        "template",
        "metadata",
        "containers",
        "image",
        "command",
        "args",
        "env",
        "name",
        "value",
        "volumes",
        "volumeMounts",
        "services",
        "ports",
        "deploy",
        "resources",
        "limits",
        "servingEngineSpec",
        "modelSpec",
        "vllmConfig",
        "extraArgs",
        "startupProbe",
        "httpGet",
        "port",
        "podSelector",
        "policyTypes",
        "egress",
        "to",
    ]
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(string.printable, max_size=12),
    st.sampled_from(["Deployment", "Pod", "NetworkPolicy", "vllm/vllm-openai", "--model", "-tp", "2", "25%", "vllm", "serve"]),
)  # fmt: skip
trees = st.recursive(leaves, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)), max_leaves=30)
flags = st.sampled_from(
    [
        "--model",
        "--tensor-parallel-size",
        "--max-num-seqs",
        "--max-model-len",
        "--gpu-memory-utilization",
        "--kv-cache-dtype",
        "--quantization",
        "--dtype",
        "--host",
        "--max-num-batched-tokens",
        "--data-parallel-size",
        "--pipeline-parallel-size",
        "--speculative-config",
        "--block-size",
        "--served-model-name",
        "--enable-lora",
    ]
)
values = st.one_of(
    st.text(string.printable, max_size=8),
    st.integers().map(str),
    st.sampled_from(["fp8", "auto", "-1", "0", "1e9", "nan", "{", "9" * 40, "0.9"]),
)


def judge(data: bytes, name: str) -> None:
    """Lint bytes with everything known around them; only our own errors may come out."""
    try:
        lint(read_bundle([read_source(data, name)]), CONTEXT)
    except TonnageError as error:
        assert error.problem


@given(trees)
def test_any_tree_as_yaml(tree: object) -> None:
    """Keys of manifests in every order, with any values."""
    judge(yaml.safe_dump(tree).encode(), "t.yaml")


@given(st.dictionaries(keys, trees, max_size=4))
def test_any_tree_inside_a_manifest(part: dict[str, object]) -> None:
    """A whole manifest with any part of its container replaced."""
    deployment = next(iter(yaml.safe_load_all(BASE)))
    deployment["spec"]["template"]["spec"]["containers"][0].update(part)
    judge(yaml.safe_dump(deployment).encode(), "m.yaml")


@given(st.lists(st.tuples(flags, values), max_size=8))
def test_any_flags(pairs: list[tuple[str, str]]) -> None:
    """A command with any values of its flags."""
    import shlex

    judge(("vllm serve /m " + shlex.join(word for pair in pairs for word in pair)).encode(), "c")


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """As a manifest, as a script, as either."""
    for name in ("f.yaml", "f.sh", "f"):
        judge(data, name)


@given(st.data())
@settings(max_examples=150)
def test_a_manifest_with_a_damaged_line(data: st.DataObject) -> None:
    """One line cut, doubled, shifted or replaced."""
    lines = BASE.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["cut", "double", "shift", "half", "junk"]))
    line = lines[at]
    lines[at : at + 1] = {
        "cut": [],
        "double": [line, line],
        "shift": ["  " + line],
        "half": [line[: len(line) // 2]],
        "junk": ["\t{" + line],
    }[how]
    judge("\n".join(lines).encode(), "b.yaml")
