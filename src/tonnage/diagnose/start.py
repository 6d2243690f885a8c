"""One start of an engine as its log tells it: what it was told, what it measured, how far it came, what went wrong.

Values grow while lines are read, and each is bounded: a log of any length costs the memory of its starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_EVIDENCE = 5
MOST_TEXT = 400
STAGES = ("start", "load", "profile", "cache", "graphs", "ready")


@dataclass(slots=True)
class Evidence:
    """A line that says so."""

    line: int
    text: str


@dataclass(slots=True)
class Sign:
    """A cause as it was first met: its evidence, what the words of the line held, and when."""

    cause: str
    evidence: list[Evidence]
    words: dict[str, str]
    at: int | None

    def number(self, name: str) -> float | None:
        """Return a figure that the line held."""
        text = self.words.get(name, "")
        return float(text) if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text) else None


@dataclass(slots=True)
class Interval:
    """What a periodic line of a running engine says."""

    line: int
    running: int
    waiting: int
    cache_share: float
    hit_share: float | None
    preemptions: int
    prompt_per_s: float
    generation_per_s: float


@dataclass(slots=True)
class Start:
    """What is known of one start.

    `figures` hold what the engine measured, by name and in bytes, tokens, blocks and seconds; where ranks differ the largest is
    kept of what is spent, the least of what is left. `intervals` keep the first, the last and the worst; sums run along.
    """

    first_line: int = 0
    last_line: int = 0
    engine: str = ""
    release: str = ""
    arguments: dict[str, object] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    architecture: str = ""
    device: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    stage: str = "start"
    signs: list[Sign] = field(default_factory=list)
    began_at: int | None = None
    ended_at: int | None = None
    shards: tuple[int, int, float] | None = None
    closed: bool = False
    running: Interval | None = None
    worst: Interval | None = None
    count: int = 0
    preemptions: int = 0
    first_preemption: Evidence | None = None
    last_interval: Evidence | None = None
    unread: list[Evidence] = field(default_factory=list)
    fp8_scale_one: bool = False
    prompted: bool = False

    def at_stage(self, stage: str) -> None:
        """Move on to a stage; never back."""
        if STAGES.index(stage) > STAGES.index(self.stage):
            self.stage = stage

    @property
    def empty(self) -> bool:
        """Whether nothing of an engine was read."""
        return not (
            self.release
            or self.arguments
            or self.config
            or self.figures
            or self.signs
            or self.count
            or self.unread
            or self.stage != "start"
        )

    def seconds(self, until: int | None = None) -> int | None:
        """Return the seconds from the first clock to another, over a turn of the year too."""
        end = until if until is not None else self.ended_at
        if self.began_at is None or end is None:
            return None
        return (end - self.began_at) % (366 * 86_400)

    def keep_most(self, name: str, value: float) -> None:
        """Keep the largest of what ranks say."""
        self.figures[name] = max(value, self.figures.get(name, value))

    def keep_least(self, name: str, value: float) -> None:
        """Keep the least of what ranks say."""
        self.figures[name] = min(value, self.figures.get(name, value))

    def sign(self, cause: str, line: int, text: str, words: dict[str, str], at: int | None) -> None:
        """Note a cause; the first time is kept, with a few lines more of the same."""
        evidence = Evidence(line, text.strip()[:MOST_TEXT])
        for known in self.signs:
            if known.cause == cause:
                known.at = at if known.at is None else known.at
                if _worse(cause, words, known.words):
                    known.words = {**known.words, **words}
                if len(known.evidence) < MOST_EVIDENCE and evidence.text not in [one.text for one in known.evidence]:
                    known.evidence.append(evidence)
                    known.words = {**words, **known.words}
                return
        self.signs.append(Sign(cause, [evidence], words, at))


def _worse(cause: str, words: dict[str, str], known: dict[str, str]) -> bool:
    """Return whether a line of a known cause says more of it: a later total of preemptions, a card with less free memory."""
    if cause == "preempting":
        return "total" in words
    return cause == "memory-held-by-others" and _number(words.get("free")) < _number(known.get("free"))


def _number(text: str | None) -> float:
    return float(text) if text and re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text) else 1e9
