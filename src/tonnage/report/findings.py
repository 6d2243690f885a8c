"""What lint found, for a person, a program, GitHub's annotations, and tools that read SARIF 2.1.0."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from tonnage.lint.problem import Finding, Report, Severity
from tonnage.report.terminal import paint, sentence, wrapped
from tonnage.units import counted

COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "advice": "cyan"}
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "advice": "note"}
FEW = 4
"""Rules that wait for something up to which each is named."""
GITHUB: dict[Severity, str] = {"error": "error", "warning": "warning", "advice": "notice"}


def findings_text(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """Return findings as a person reads them: place, severity and rule, then what, why and what to do."""
    lines: list[str] = []
    for found in report.findings:
        head = f"{found.file}:{found.line}:{found.column}"
        lines.append(f"{paint(head, 'bold', colour)} {paint(found.severity, COLOURS[found.severity], colour)} {found.rule}")
        lines += wrapped(f"{sentence(found.message)} {sentence(found.why)}", width, "    ")
        lines += wrapped(f"fix: {found.fix}", width, "    ", "         ")
    lines += wrapped(summary(report), width) if report.findings else wrapped(f"{summary(report)} in {_read(report)}.", width)
    for line in _not_judged(report):
        lines += wrapped(line, width, "", "  ")
    return "\n".join(lines) + "\n"


def summary(report: Report) -> str:
    """Return how many findings there are of each severity."""
    if not report.findings:
        return "Nothing wrong found"
    counts = (("error", "errors"), ("warning", "warnings"), ("advice", "advice"))
    parts = [(report.count("error"), *counts[0]), (report.count("warning"), *counts[1]), (report.count("advice"), *counts[2])]
    return ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in parts if number) + "."


def _read(report: Report) -> str:
    names = [
        " ".join(part for part in (server.engine, server.model, f"on {server.card}" if server.card else "") if part)
        for server in report.servers
    ]
    return f"{counted(len(names), 'engine')} ({'; '.join(names[:3])}{'; ...' if len(names) > 3 else ''})" if names else "what was given"


def _not_judged(report: Report) -> Iterator[str]:
    """Yield a line for each set of things that are missing, with the rules that wait for them."""
    missing: dict[str, list[str]] = {}
    for entry in report.not_judged:
        missing.setdefault(entry.rule, []).append(entry.needs)
    by_needs: dict[tuple[str, ...], list[str]] = {}
    for rule, needs in missing.items():
        by_needs.setdefault(tuple(needs), []).append(rule)
    if len(missing) > FEW:
        wanted = list(dict.fromkeys(need for needs in missing.values() for need in needs))
        yield f"Not judged: {len(missing)} rules, for want of {', '.join(wanted)} (--format json names them)."
        return
    for several, rules in by_needs.items():
        yield f"Not judged for want of {', '.join(several)}: {', '.join(rules)}"


def findings_value(report: Report) -> dict[str, Any]:
    """Return findings as JSON holds them."""
    value: dict[str, Any] = msgspec.to_builtins(report)
    return {"schema": "tonnage.lint/1", **value}


def github_lines(report: Report) -> str:
    """Return findings as workflow commands, which GitHub shows beside the lines of a change."""
    return "".join(
        f"::{GITHUB[found.severity]} file={_property(found.file)},line={found.line},col={found.column},title={_property(found.rule)}"
        f"::{_data(f'{sentence(found.message)} {sentence(found.why)} Fix: {found.fix}')}\n"
        for found in report.findings
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif_value(report: Report, rules: Mapping[str, ModuleType], version: str) -> dict[str, Any]:
    """Return findings as SARIF 2.1.0."""
    described = [
        {"id": name, "shortDescription": {"text": title(rule)}, "fullDescription": {"text": prose(rule)},
         "defaultConfiguration": {"level": LEVELS[rule.SEVERITY]}}
        for name, rule in rules.items()
    ]  # fmt: skip
    order = {name: number for number, name in enumerate(rules)}
    results = [_result(found, order[found.rule]) for found in report.findings]
    driver = {"name": "tonnage", "version": version, "rules": described}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _result(found: Finding, number: int) -> dict[str, Any]:
    region = {"startLine": found.line, "startColumn": found.column}
    return {
        "ruleId": found.rule,
        "ruleIndex": number,
        "level": LEVELS[found.severity],
        "message": {"text": f"{sentence(found.message)} {sentence(found.why)} Fix: {found.fix}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": found.file}, "region": region}}],
    }


def title(rule: ModuleType) -> str:
    """Return what a rule is about: the first line of its docstring."""
    return inspect.getdoc(rule).partition("\n")[0] if rule.__doc__ else ""  # type: ignore[union-attr]


def prose(rule: ModuleType) -> str:
    """Return a rule's explanation, without its examples."""
    text = inspect.getdoc(rule) or ""
    before = text.partition("\nBAD")[0]
    return " ".join(before.split())
