"""Does each rule fire on its BAD example, alone, and is each GOOD example clean?"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tonnage.lint.context import read_context
from tonnage.lint.examples import Example, context_value, examples_of
from tonnage.lint.problem import Report
from tonnage.lint.rules import RULES
from tonnage.lint.run import lint
from tonnage.lint.source import read_bundle, read_source

BASE = Path(__file__).parent / "base.yaml"

CASES = [
    pytest.param(rule, example, id=f"{name}-{'bad' if example.bad else 'good'}-{number}")
    for name, rule in RULES.items()
    for number, example in enumerate(examples_of(rule))
]


def text_of(example: Example) -> str:
    """Return the input that an example stands for: itself, merged into a clean manifest, or a plan."""
    if example.part == "pod":
        return manifest(example)
    if example.given.get("form") == "plan":
        return planned(example.given["measured"])
    return example.text


def manifest(example: Example) -> str:
    """Return the clean manifest with an example's part merged in."""
    deployment, policy = yaml.safe_load_all(BASE.read_text())
    part = yaml.safe_load(example.text) or {}
    for key in ("strategy", "replicas"):
        if key in part:
            deployment["spec"][key] = part.pop(key)
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    tp = example.given.get("tensor_parallel_size")
    if tp:
        container["args"] = [*container["args"], f"--tensor-parallel-size={tp}"]
        container["resources"]["limits"]["nvidia.com/gpu"] = tp
    if "host" in example.given:
        container["args"] = [*container["args"], f"--host={example.given['host']}"]
    merge(pod, part)
    names = {"ingress": "Ingress", "egress": "Egress"}
    if (only := example.given.get("policies", "")) in names:
        policy["spec"]["policyTypes"] = [names[only]]
    return str(yaml.safe_dump_all([deployment, policy], sort_keys=False))


def merge(into: dict[str, Any], part: dict[str, Any]) -> None:
    """Merge mappings into mappings, containers into containers, and add volumes and mounts to those that are there."""
    for key, value in part.items():
        if key == "containers":
            for old, new in zip(into[key], value, strict=False):
                merge(old, new)
        elif key in ("volumes", "volumeMounts"):
            names = {entry["name"] for entry in value}
            into[key] = [*(entry for entry in into.get(key, []) if entry["name"] not in names), *value]
        elif isinstance(value, dict) and isinstance(into.get(key), dict) and key == "spec":
            merge(into[key], value)
        else:
            into[key] = value


def planned(measured: str) -> str:
    """Return a plan on 0.33 whose knee was measured on another release, or the same."""
    from click.testing import CliRunner

    from tonnage.cli import main

    arguments = ["plan", "qwen3-8b-fp8", "--gpu", "l40s", "--users", "8", "--context", "8k", "--json"]
    value = json.loads(CliRunner().invoke(main, arguments).stdout)
    value["measured"] = {"release": measured, "model": value["model"]["name"], "precision": "auto"}
    return json.dumps(value)


def judged(example: Example) -> Report:
    """Return what lint finds in an example."""
    name = "example.yaml" if example.part == "pod" or example.text.startswith("groups:") else "example"
    context = read_context(json.dumps(context_value(example.given)).encode(), "context")
    return lint(read_bundle([read_source(text_of(example).encode(), name)]), context)


@pytest.mark.parametrize(("rule", "example"), CASES)
def test_a_rule_fires_on_its_bad_example_alone_and_is_silent_on_the_good_one(rule: ModuleType, example: Example) -> None:
    """Nothing else is wrong with either, so that the page of a rule shows one thing."""
    found = {finding.rule for finding in judged(example).findings}
    also = {example.given["also"]} if "also" in example.given else set()
    assert found == ({rule.ID, *also} if example.bad else set())


@pytest.mark.parametrize("name", RULES)
def test_every_rule_says_what_it_is_about_and_shows_both(name: str) -> None:
    """A title of one sentence, a BAD and a GOOD example, and a file of its own name."""
    rule = RULES[name]
    assert (rule.__doc__ or "").splitlines()[0].endswith(".")
    assert {example.bad for example in examples_of(rule)} == {True, False}
    assert rule.__name__.endswith(name.replace("-", "_"))
    assert rule.SEVERITY in ("error", "warning", "advice")
