"""How much of what is wrong in the shared cases is found, and how much is found that is not wrong?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tonnage.lint.context import read_context
from tonnage.lint.problem import Report
from tonnage.lint.run import lint
from tonnage.lint.source import read_bundle, read_source

KINDS = ("command", "manifest", "compose", "values")


@cache
def cases(folder: Path) -> list[dict[str, Any]]:
    """Return the expectations of the cases that lint judges."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.expect.json"))]
    return [case for case in found if case["kind"] in KINDS]


@cache
def judged(folder: Path, name: str, context: str) -> Report:
    """Return what lint finds in a case."""
    return lint(read_bundle([read_source((folder / name).read_bytes(), name)]), read_context(context.encode(), name))


def report_of(folder: Path, case: dict[str, Any]) -> Report:
    """Return the report of a case in its context."""
    return judged(folder, case["input"], json.dumps(case["context"]))


def test_recall_and_precision_on_the_shared_cases(shared: Path, record_property: Callable[[str, object], None]) -> None:
    """All that is expected is found; nothing is found that must not be; few findings are in neither list."""
    folder = shared / "data" / "lint"
    expected = found_right = found_wrong = unlisted = 0
    for case in cases(folder):
        found = {finding.rule for finding in report_of(folder, case).findings}
        expected += len(case["expect"])
        found_right += len(found & set(case["expect"]))
        found_wrong += len(found & set(case["must_not"]))
        unlisted += len(found - set(case["expect"]) - set(case["must_not"]))
    recall, precision = found_right / expected, found_right / (found_right + found_wrong)
    record_property("recall", recall)
    record_property("precision", precision)
    print(f"recall {recall:.1%}, precision {precision:.1%}, {unlisted} unlisted findings for {found_right} right ones")
    assert (recall, precision) == (1.0, 1.0)
    assert unlisted <= found_right / 2


def test_clean_cases_have_nothing_above_advice(shared: Path) -> None:
    """A false alarm is a bug."""
    folder = shared / "data" / "lint"
    for case in cases(folder):
        if not case["expect"]:
            assert {finding.severity for finding in report_of(folder, case).findings} <= {"advice"}, case["id"]


def test_the_figures_of_the_cases(shared: Path) -> None:
    """Each number that a case states is among those of its server or its findings, within its tolerance."""
    folder = shared / "data" / "lint"
    for case in cases(folder):
        report = report_of(folder, case)
        numbers: dict[str, float] = {}
        for figures in [server.numbers for server in report.servers] + [finding.numbers for finding in report.findings]:
            numbers |= figures
        for name, wanted in case.get("numbers", {}).items():
            assert numbers[name] == pytest.approx(wanted["value"], abs=wanted["tolerance"] + 1e-9), (case["id"], name)
