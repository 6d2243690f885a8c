"""Starts and a context -> what is told: engine, model, settings, measured beside predicted, causes, what was not understood."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.diagnose.causes import CAUSES
from tonnage.diagnose.signs import STARTUP
from tonnage.diagnose.start import Sign, Start
from tonnage.diagnose.told import case_of, model_of, settings_told
from tonnage.lint.case import Case
from tonnage.lint.context import Context

RUNNING = ("preempting", "prefix-cache-ineffective")
"""Causes of a server that runs: one does not set off the other."""


class Said(msgspec.Struct, frozen=True):
    """A line of the input that says so."""

    line: int
    text: str


class Cause(msgspec.Struct, frozen=True):
    """A cause: whether it came first in its start, the lines that say so, why, what to do; `set_off` names what followed from it."""

    id: str
    first: bool
    evidence: tuple[Said, ...]
    why: str
    fix: str
    start: int = 1
    set_off: tuple[str, ...] = ()
    numbers: dict[str, float] = {}


class StartSaid(msgspec.Struct, frozen=True):
    """One start: lines, engine, model, card, settings, how far it came, its measured ledger and the prediction for the same settings."""

    lines: tuple[int, int]
    engine: str
    release: str
    model: str
    card: str
    settings: dict[str, Any]
    stage: str
    measured: dict[str, float]
    predicted: dict[str, float]
    causes: tuple[Cause, ...]
    remarks: tuple[str, ...] = ()
    unread: tuple[Said, ...] = ()
    numbers: dict[str, float] = {}


def diagnose(starts: list[Start], context: Context) -> list[StartSaid]:
    """Return what is told of each start."""
    return [_said(start, number, case_of(start, context)) for number, start in enumerate(starts, 1)]


def _said(start: Start, number: int, case: Case) -> StartSaid:
    over = (*STARTUP, "probe-killed") if start.stage == "ready" else ()
    signs = [sign for sign in start.signs if sign.cause not in over]  # it came up: what its start complained of did not stop it
    known = {sign.cause for sign in signs}
    for cause in RUNNING:
        judged = CAUSES[cause].judge(start, case) if cause not in known else None
        if judged is not None:
            signs.append(judged)
    causes = _causes(start, signs, number, case)
    numbers = {**_figures(start, case), **{key: value for cause in causes for key, value in cause.numbers.items()}}
    return StartSaid(
        (start.first_line, start.last_line),
        case.engine if start.engine else "",
        start.release or (f"{case.release[0]}.{case.release[1]}" if case.release else ""),
        case.model.name if case.model is not None else model_of(start),
        case.card.name if case.card is not None else "",
        settings_told(start),
        start.stage,
        measured(start),
        predicted(case),
        causes,
        tuple(_remarks(start)),
        tuple(Said(one.line, one.text) for one in start.unread) if not causes else (),
        numbers,
    )


def _causes(start: Start, signs: list[Sign], number: int, case: Case) -> tuple[Cause, ...]:
    """Return the first cause with what it set off, and the causes of a running server."""
    crashes = [sign for sign in signs if sign.cause not in RUNNING]
    found: list[Cause] = []
    if crashes:
        first, rest = crashes[0], crashes[1:]
        found.append(_told(start, first, number, case, True, tuple(sign.cause for sign in rest)))
    for sign in signs:
        if sign.cause in RUNNING and not (crashes and sign is not signs[0] and sign.evidence[0].line > crashes[0].evidence[0].line):
            found.append(_told(start, sign, number, case, not found))
    return tuple(found)


def _told(start: Start, sign: Sign, number: int, case: Case, first: bool, set_off: tuple[str, ...] = ()) -> Cause:
    told = CAUSES[sign.cause].explain(start, sign, case)
    evidence = tuple(Said(one.line, one.text) for one in sign.evidence)
    return Cause(sign.cause, first, evidence, told.why, told.fix, number, set_off, told.numbers)


MEASURED = (
    "weights_bytes", "activation_bytes", "non_torch_bytes", "graphs_bytes", "graphs_estimated_bytes", "pool_bytes", "pool_tokens", "blocks",
    "concurrency", "concurrency_tokens", "attention_block_tokens", "load_s", "compile_s", "init_s",
    "max_model_len", "max_num_batched_tokens",
)  # fmt: skip


def measured(start: Start) -> dict[str, float]:
    """Return what the engine itself measured, per card."""
    whole = ("_bytes", "_tokens", "blocks", "_len")
    return {name: int(start.figures[name]) if name.endswith(whole) else start.figures[name] for name in MEASURED if name in start.figures}


LINES = {"weights": "weights_bytes", "activations": "activation_bytes", "context, comms": "non_torch_bytes", "CUDA graphs": "graphs_bytes"}


def predicted(case: Case) -> dict[str, float]:
    """Return what a plan says of the same settings on the same card; empty where model or card is not known."""
    plan = case.plan
    if plan is None:
        return {}
    found: dict[str, float] = {LINES[line.label]: line.bytes for line in plan.ledger if line.label in LINES}
    found |= {"pool_bytes": plan.pool.bytes, "pool_low_bytes": plan.pool.low_bytes, "pool_high_bytes": plan.pool.high_bytes,
              "pool_tokens": plan.pool.tokens, "blocks": plan.pool.blocks}  # fmt: skip
    if plan.settings.max_model_len:
        found["concurrency"] = round(plan.allocation.concurrency(plan.settings.max_model_len), 2)
        found["concurrency_tokens"] = plan.settings.max_model_len
    if case.block_tokens is not None and case.stateful:
        found["attention_block_tokens"] = case.block_tokens
    return found


def _figures(start: Start, case: Case) -> dict[str, float]:
    """Return the figures by the names that checks use."""
    found: dict[str, float] = {}
    figures = start.figures
    names = {"weights_bytes": "weights_gib_per_card", "pool_bytes": "kv_available_gib"}
    found |= {ours: round(figures[name] / 2**30, 2) for name, ours in names.items() if name in figures}
    found |= {name: figures[name] for name in ("pool_tokens", "load_s", "attention_block_tokens") if name in figures}
    if case.cost is not None and case.whole_cost is not None:
        tokens = int(figures.get("max_model_len", 0)) or 1
        found["kv_bytes_per_token"] = case.whole_cost.growth(tokens)
        found["kv_bytes_per_token_per_card"] = case.cost.growth(tokens)
    if case.model is not None:
        found["attention_heads"] = case.model.shape.heads
    return found


def _remarks(start: Start) -> list[str]:
    """Return what is worth knowing and is no cause."""
    remarks = []
    if start.fp8_scale_one:
        remarks.append("the FP8 cache runs with scale 1.0: evaluate the model with it before you rely on it")
    return remarks
