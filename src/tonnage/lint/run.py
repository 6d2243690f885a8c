"""All rules over all that was given: findings in the order of their places, and what could not be judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType
from typing import Any

from tonnage.errors import InputError, UnknownError, closest_hint
from tonnage.lint.case import Case
from tonnage.lint.context import Context
from tonnage.lint.figures import numbers
from tonnage.lint.problem import Finding, Judged, NotJudged, Problem, Report
from tonnage.lint.rules import RULES
from tonnage.lint.server import Bundle

SEVERITIES = ("error", "warning", "advice")
NEEDS: dict[str, tuple[Callable[[Case], bool], str]] = {
    "model": (lambda case: case.model is not None, "--model"),
    "gpu": (lambda case: case.card is not None, "--gpu"),
    "users": (lambda case: case.context.load is not None, "--users and --context"),
    "concurrency": (lambda case: case.context.users > 0, "--users"),
    "p99": (lambda case: case.context.p99_tokens > 0, "--workload with p99"),
    "shared_prefix": (lambda case: case.context.shared_prefix_tokens is not None, "--workload with shared_prefix"),
    "storage": (lambda case: case.context.read_bytes_per_s > 0, "--context-file with storage.read_gib_per_s"),
    "gateway": (lambda case: case.context.token_accounting is not None or bool(case.bundle.gateways), "the gateway's configuration"),
    "policies": (lambda case: case.server.form == "pod", "the NetworkPolicies"),
    "node": (lambda case: bool(case.context.node_gpus or case.context.gpu_count), "--context-file with node_gpus"),
    "cards": (lambda case: bool(case.context.node_gpus or case.context.gpu_count), "--count"),
}
"""What a rule may need: whether a case has it, and how a user gives it."""


def lint(bundle: Bundle, context: Context, *, select: Collection[str] = (), ignore: Collection[str] = ()) -> Report:
    """Return what the rules find.

    Raises UnknownError: a rule in `select` or `ignore` that is none.
    """
    for name in (*select, *ignore):
        if name not in RULES:
            raise UnknownError(f"no rule is named {name!r}", hint=closest_hint(name, RULES, "tonnage lint --rules lists them"))
    rules = [rule for name, rule in RULES.items() if (not select or name in select) and name not in ignore]
    if not rules:
        raise InputError("no rule is left", where="--select, --ignore", hint="tonnage lint --rules lists them")
    cases = [Case(server, bundle, context) for server in bundle.servers]
    findings: dict[tuple[str, str, int, int], Finding] = {}
    not_judged: dict[tuple[str, str], NotJudged] = {}
    for rule in rules:
        for problem in _problems(rule, cases, bundle, context, not_judged):
            found = _finding(rule, problem)
            findings.setdefault((found.rule, found.file, found.line, found.column), found)
    kept = [found for found in findings.values() if not _silenced(found, bundle)]
    kept.sort(key=lambda found: (found.file, found.line, found.column, SEVERITIES.index(found.severity), found.rule))
    return Report(tuple(kept), tuple(not_judged.values()), tuple(_judged(case) for case in cases))


def _problems(
    rule: ModuleType, cases: Iterable[Case], bundle: Bundle, context: Context, not_judged: dict[tuple[str, str], NotJudged]
) -> Iterator[Problem]:
    bundled: Any = getattr(rule, "check_bundle", None)
    if bundled is not None:
        yield from bundled(bundle, context)
    for case in cases if hasattr(rule, "check") else ():
        if not _applies(rule, case):
            continue
        missing = [need for need in getattr(rule, "NEEDS", ()) if not NEEDS[need][0](case)]
        for need in missing:
            not_judged.setdefault((rule.ID, need), NotJudged(rule.ID, NEEDS[need][1]))
        if not missing:
            yield from rule.check(case)


def _applies(rule: ModuleType, case: Case) -> bool:
    forms, engines = getattr(rule, "FORMS", None), getattr(rule, "ENGINES", None)
    return (forms is None or case.server.form in forms) and (engines is None or case.engine in engines)


def _finding(rule: ModuleType, problem: Problem) -> Finding:
    place = problem.place
    severity = problem.severity or rule.SEVERITY
    return Finding(rule.ID, severity, place.file, place.line, place.column, problem.message, problem.why, problem.fix, problem.numbers)


def _silenced(found: Finding, bundle: Bundle) -> bool:
    """Return whether a comment silences a finding: on its line, above it, above the command it belongs to, or for the file."""
    lines = {found.line, 0}
    for server in bundle.servers:
        if server.place.file == found.file and server.place.line <= found.line <= server.last_line:
            lines.add(server.place.line)
    for line in lines:
        rules = bundle.ignored.get((found.file, line))
        if rules is not None and (not rules or found.rule in rules):
            return True
    return False


def _judged(case: Case) -> Judged:
    server = case.server
    release = f" {case.release[0]}.{case.release[1]}" if case.release is not None else ""
    return Judged(
        server.name,
        server.form,
        server.place.file,
        server.place.line,
        case.engine + release,
        case.model.name if case.model is not None else case.model_text,
        case.card.name if case.card is not None else "",
        numbers(case),
    )
