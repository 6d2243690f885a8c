"""What happened, for a person: the cause first, its lines, what to do; then what was measured beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tonnage.diagnose.diagnosis import Cause, StartSaid
from tonnage.monitor.verdicts import Verdict
from tonnage.report.terminal import paint, sentence, table, wrapped
from tonnage.units import counted, gib

LEDGER = (
    ("weights", "weights_bytes"), ("activations", "activation_bytes"),
    ("context, comms", "non_torch_bytes"), ("CUDA graphs", "graphs_bytes"),
    ("cache pool", "pool_bytes"),
)  # fmt: skip
COUNTS = (("tokens", "pool_tokens"), ("blocks", "blocks"), ("concurrency", "concurrency"), ("block tokens", "attention_block_tokens"))
LONGEST = 200
"""Characters of a line that are shown; --json has more of it."""
REACHED = {
    "start": "stopped before it loaded anything", "load": "stopped while loading weights", "profile": "stopped while profiling",
    "cache": "stopped after the cache was sized", "graphs": "stopped after graphs were captured", "ready": "came up",
}  # fmt: skip


def diagnosis_text(starts: Sequence[StartSaid], *, width: int = 80, colour: bool = False) -> str:
    """Return what happened in each start; the last is the current one."""
    lines: list[str] = []
    if not starts:
        lines += wrapped("Nothing of an engine was found in it: no start, no message that we know.", width)
    for number, start in enumerate(starts, 1):
        if len(starts) > 1:
            current = ", the current one" if number == len(starts) else ""
            lines.append(paint(f"Start {number} of {len(starts)}, lines {start.lines[0]}-{start.lines[1]}{current}", "dim", colour))
        lines += _start(start, width, colour)
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _start(start: StartSaid, width: int, colour: bool) -> Iterator[str]:
    yield from wrapped(_head(start), width)
    for cause in start.causes:
        yield from _cause(cause, width, colour)
    if not start.causes and not start.unread:
        yield "Nothing wrong found."
    if start.unread:
        yield from wrapped("Something failed that is not known here; what it said:", width)
        for said in start.unread:
            yield from wrapped(f"line {said.line}  {_short(said.text)}", width, "  ", "      ")
    for remark in start.remarks:
        yield from wrapped(f"note: {remark}", width, "", "  ")
    rows = list(_rows(start))
    if rows:
        yield ""
        yield from ("  " + line for line in table([("", "measured", "predicted", ""), *rows], "lrrl"))


def _head(start: StartSaid) -> str:
    engine = {"vllm": "vLLM", "sglang": "SGLang", "": "An engine"}.get(start.engine, start.engine)
    release = f" {start.release}" if start.release else ""
    model = f", {start.model}" if start.model else ""
    card = f" on {start.card}" if start.card else ""
    return f"{engine}{release}{model}{card}: {REACHED[start.stage]}."


def _cause(cause: Cause, width: int, colour: bool) -> Iterator[str]:
    word = "Cause" if cause.first else "Also"
    yield f"{word}: {paint(cause.id, 'bold', colour)}"
    yield from wrapped(sentence(cause.why), width, "  ")
    for said in cause.evidence[:3]:
        where = f"line {said.line}" if said.line else "     "
        yield from wrapped(f"{where}  {_short(said.text)}", width, "    ", "        ")
    yield from wrapped(f"Do: {cause.fix}.", width, "  ", "      ")
    if cause.set_off:
        yield from wrapped(f"It set off: {', '.join(cause.set_off)}.", width, "  ")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _rows(start: StartSaid) -> Iterator[tuple[str, str, str, str]]:
    for label, name in LEDGER:
        if name in start.measured:
            yield _row(label, start.measured[name], start.predicted.get(name), "GiB")
    for label, name in COUNTS:
        if name in start.measured:
            yield _row(label, start.measured[name], start.predicted.get(name), "")


def _row(label: str, measured: float, predicted: float | None, unit: str) -> tuple[str, str, str, str]:
    def text(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{gib(value)} GiB" if unit else (f"{value:,.2f}" if label == "concurrency" else f"{value:,.0f}")

    off = f"{(measured - predicted) / predicted:+.1%}" if predicted and predicted > 0 else ""
    return label, text(measured), text(predicted), off


def diagnosis_value(starts: Sequence[StartSaid]) -> dict[str, Any]:
    """Return the diagnosis as JSON holds it: the current start's facts on top, the causes of all, and every start by itself."""
    last = starts[-1] if starts else None
    value: dict[str, Any] = {"schema": "tonnage.diagnosis/1"}
    for name in ("engine", "release", "model", "card", "settings", "measured", "predicted"):
        value[name] = (
            msgspec.to_builtins(getattr(last, name)) if last is not None else ({} if name in ("settings", "measured", "predicted") else "")
        )
    value["causes"] = [msgspec.to_builtins(cause) for start in starts for cause in start.causes]
    value["unread"] = [msgspec.to_builtins(said) for start in starts for said in start.unread]
    value["starts"] = [msgspec.to_builtins(start) for start in starts]
    value["numbers"] = {key: number for start in starts for key, number in start.numbers.items()}
    return value


def verdicts_text(found: Sequence[Verdict], engines: int, seconds: float, *, width: int = 80, colour: bool = False) -> str:
    """Return what two pages, or one, say of the engines."""
    over = f"over {seconds:g} s" if seconds else "on one page"
    lines = [f"{counted(engines, 'engine')} {over}."]
    for verdict in found:
        engine = f" (engine {verdict.engine})" if verdict.engine and engines > 1 else ""
        lines.append(f"{paint(verdict.id.upper(), 'bold', colour)}{engine}")
        lines += wrapped(sentence(verdict.why), width, "  ")
        lines += wrapped(", ".join(text for _, text in verdict.evidence), width, "    ") if verdict.evidence else []
        lines += wrapped(f"Do: {verdict.fix}.", width, "  ", "      ")
    if not found:
        lines += wrapped(
            "Nothing wrong shows on this page. Preemptions, a hang and queue times need a second page: give it with --seconds-between.",
            width,
        )
    return "\n".join(lines) + "\n"
