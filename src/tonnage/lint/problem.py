"""What a rule says, and what was found: values, in the order of their places."""

from __future__ import annotations

from typing import Literal

import msgspec

from tonnage.lint.place import Place

Severity = Literal["error", "warning", "advice"]
ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "advice": 2}


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, what with the value as given, why it matters here, what to do.

    `numbers` are the figures behind it, by name; `severity` overrides the rule's own where a case is milder or worse.
    """

    place: Place
    message: str
    why: str
    fix: str
    numbers: dict[str, float] = {}
    severity: Severity | None = None


class Finding(msgspec.Struct, frozen=True):
    """A problem with the rule that found it."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int
    message: str
    why: str
    fix: str
    numbers: dict[str, float] = {}


class NotJudged(msgspec.Struct, frozen=True):
    """A rule that could not be judged, and what it needs to be."""

    rule: str
    needs: str


class Judged(msgspec.Struct, frozen=True):
    """One server that was looked at: how it was read, and its figures."""

    name: str
    form: str
    file: str
    line: int
    engine: str
    model: str
    card: str
    numbers: dict[str, float]


class Report(msgspec.Struct, frozen=True):
    """What lint found in everything that was given."""

    findings: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    servers: tuple[Judged, ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings are of a severity."""
        return sum(finding.severity == severity for finding in self.findings)
