"""Measured starts of real servers -> the pool we would have predicted, with its band.

A row names the server (release, model, card, parallelism, limits, precisions); what was measured, and its note, are
never read. Settings that a row leaves out are the engine's defaults for that release and card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from tonnage.errors import TonnageError, UnknownError
from tonnage.facts.engine import EngineRules, newest, rules_for
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import OverheadConstants
from tonnage.facts.provenance import Banded
from tonnage.facts.shape import ModelShape
from tonnage.memory.allocator import allocate
from tonnage.memory.budget import Budget, Server, budget, stage_weights
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.ledger import Line, exact, line
from tonnage.memory.weights import served_dtype, with_precision
from tonnage.settings import EngineSettings, Parallelism

ASSUMED_SPREAD = 20
"""Weights in a precision that was asked for, by the rule of its kind: right within a twentieth."""

Admit = Callable[[ModelShape, EngineSettings, EngineRules, Card, int, str], tuple[int, float]]
"""(shape, settings with defaults, rules, card, pool bytes, served dtype) -> (tokens that the engine prints, concurrency)."""


class StartPrediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we say of one start; `skipped` holds the reason where we say nothing. `terms` are the lines of the overhead.

    `pool_bytes` is what the log of the first rank prints; with pipeline stages the tokens follow from the poorest stage.
    """

    id: str
    weights_bytes: int | None = None
    pool_bytes: int | None = None
    pool_low_bytes: int | None = None
    pool_high_bytes: int | None = None
    tokens: int | None = None
    max_concurrency: float | None = None
    confidence: str = ""
    terms: tuple[Line, ...] = ()
    skipped: str = ""


class Start(msgspec.Struct, frozen=True):
    """A row, understood: the shape in its precision, the card, settings with their defaults, and the served dtype."""

    id: str
    shape: ModelShape
    card: Card
    settings: EngineSettings
    rules: EngineRules
    dtype: str
    drafter_layers: int = 0


def by_allocator(
    shape: ModelShape, settings: EngineSettings, rules: EngineRules, card: Card, pool_bytes: int, dtype: str
) -> tuple[int, float]:
    """Return (tokens printed, concurrency at max_model_len) as the engine's allocator cuts a pool."""
    made = allocate(shape, settings, rules, card.compute_capability, pool_bytes, dtype=dtype)
    return made.printed_tokens, made.concurrency(settings.max_model_len or shape.max_position)


def predict_start(
    row: Mapping[str, str],
    load: Callable[[str], ModelShape],
    card: Callable[[str], Card],
    constants: OverheadConstants,
    admit: Admit | None = by_allocator,
) -> StartPrediction:
    """Return the prediction for a row; `load` and `card` find a model and a card by the catalogue's names.

    Without `admit` only bytes are predicted. Never reads a measured column, nor `note`.
    """
    name = row.get("id", "")
    try:
        start = read_start(row, load, card)
        return _predict(start, constants, admit)
    except TonnageError as error:
        return StartPrediction(name, skipped=str(error))
    except (KeyError, ValueError, TypeError, ArithmeticError) as error:
        return StartPrediction(name, skipped=f"the row is malformed ({error!r})")


def read_start(row: Mapping[str, str], load: Callable[[str], ModelShape], card: Callable[[str], Card]) -> Start:
    """Return what a row says about its server, with the engine's defaults where it is silent.

    Raises UnknownError: a row without a model or card of the catalogue, or an engine we do not know.
    """
    for field in ("catalogue_model", "catalogue_card"):
        if not row.get(field):
            raise UnknownError(f"the row has no {field}", where=row.get("id", ""))
    if row.get("engine", "vllm") not in ("", "vllm"):
        raise UnknownError(f"engine {row['engine']!r} is not known", where=row.get("id", ""))
    found = card(row["catalogue_card"])
    shape, dtype = _in_precision(load(row["catalogue_model"]), row)
    if not dtype:
        dtype = served_dtype(shape, bf16="bf16" in found.formats or found.compute_capability is None)
    release = release_in(row.get("version", ""))
    rules = rules_for("vllm", release)
    host = Host(found.memory.best, found.compute_capability, f"{found.name} {found.slug}")
    settings = _settings(row, release)
    if settings.parallel.dp > 1 and shape.experts:  # data-parallel ranks share the experts, with or without the flag
        settings = msgspec.structs.replace(settings, parallel=msgspec.structs.replace(settings.parallel, expert=True))
    return Start(row.get("id", ""), shape, found, resolved(settings, shape, host, rules), rules, dtype, _drafter_layers(row))


def release_in(text: str) -> tuple[int, int]:
    """Return the release in a version text; builds that name none are taken for the newest.

    >>> release_in("0.19.0"), release_in(">=0.21 (2026-07)"), release_in("0.29.1rc1.dev17"), release_in("nightly")
    ((0, 19), (0, 21), (0, 29), (0, 33))
    """
    found = re.search(r"(?<![\d.])0\.(\d{1,2})(?!\d)", text)
    return (0, int(found[1])) if found and int(found[1]) >= 2 else newest("vllm")


def _number(text: str | None) -> int | None:
    found = re.match(r"\s*(\d+)", text or "")
    return int(found[1]) if found else None


def _settings(row: Mapping[str, str], release: tuple[int, int]) -> EngineSettings:
    flags = row.get("other_flags", "").lower()
    cache = (row.get("kv_cache_dtype") or "auto").split()[0]
    drafted = re.search(r"mtp(?: n=| )?(\d+)?", flags)
    share = row.get("gpu_memory_utilization", "").split()
    return EngineSettings(
        release=release,
        parallel=Parallelism(
            tp=_number(row.get("tp")) or 1,
            pp=_number(row.get("pp")) or 1,
            dp=_number(row.get("dp")) or 1,
            expert="expert parallel" in flags or bool(re.search(r"\bep\b", flags)),
        ),
        kv_cache_dtype={"bf16": "bfloat16", "fp16": "float16"}.get(cache, cache),
        max_model_len=_number(row.get("max_model_len")) or None,
        max_num_seqs=_number(row.get("max_num_seqs")) or None,
        max_num_batched_tokens=_number(row.get("max_num_batched_tokens")) or None,
        gpu_memory_utilization=float(share[0]) if share else None,
        enable_prefix_caching=_prefix_caching(flags),
        block_size=_number(found[1]) if (found := re.search(r"(?<!attention )block-size[ =](\d+)", flags)) else None,
        num_speculative_tokens=(_number(drafted[1]) or 1) if drafted and "mtp off" not in flags and "no mtp" not in flags else 0,
        enforce_eager=row.get("enforce_eager", "").lower() == "true",
        language_model_only="language-model-only" in flags or "limit-mm-per-prompt 0" in flags or "image 0" in flags,
    )


def _drafter_layers(row: Mapping[str, str]) -> int:
    """Return the layers of a draft model that is loaded beside: five of DFlash, one of EAGLE, as published ones have."""
    flags = row.get("other_flags", "").lower()
    return 5 if "dflash" in flags else (1 if "eagle" in flags else 0)


def _prefix_caching(flags: str) -> bool | None:
    if "no prefix caching" in flags or "enable_prefix_caching=false" in flags:
        return False
    return True if "prefix caching" in flags or "enable_prefix_caching" in flags else None


def _in_precision(shape: ModelShape, row: Mapping[str, str]) -> tuple[ModelShape, str]:
    """Return the shape in the precision of the row, and the served dtype where the row says one.

    A row's rule goes first; else a quantised checkpoint is as published, and an unquantised one as the row describes it.
    """
    rule = row.get("weights_rule", "").lower()
    said = row.get("weights_dtype_or_quant", "").lower()
    dtype = next((name for name in ("float32", "float16") if said.startswith(name)), "")
    if not rule and not shape.quantisation.targets:
        rule = next((kind for kind in ("nvfp4", "mxfp4", "int4", "awq", "gptq", "int8", "fp8") if kind in said), "")
    word = re.split(r"[-_ ]", rule)[0]
    return (with_precision(shape, word), dtype) if word and not shape.quantisation.targets else (shape, dtype)


def _predict(start: Start, constants: OverheadConstants, admit: Admit | None) -> StartPrediction:
    settings = start.settings
    ledgers = [_stage(start, constants, stage) for stage in range(settings.parallel.pp)]
    lines, pool = ledgers[0].lines, ledgers[0].pool
    poorest = min((entry.pool for entry in ledgers), key=lambda entry: entry.bytes)
    tokens, concurrency = admit(start.shape, settings, start.rules, start.card, poorest.bytes, start.dtype) if admit else (None, None)
    return StartPrediction(
        start.id, lines[0].bytes, pool.bytes, pool.low_bytes, pool.high_bytes, tokens, concurrency, pool.confidence, tuple(lines[1:])
    )


def _stage(start: Start, constants: OverheadConstants, stage: int) -> Budget:
    server = Server(start.shape, start.settings, start.rules, start.card, start.dtype)
    weights = stage_weights(server, stage).total
    spread = weights // ASSUMED_SPREAD if start.shape.quantisation.assumed else 0
    held = Banded(weights, weights - spread, weights + spread, "assumed") if spread else exact(weights)
    drafter = [line("draft model", _drafter(start), f"{start.drafter_layers} layers as wide as the model's")][: start.drafter_layers]
    return budget(server, constants, stage, [line("weights", held, ""), *drafter])


def _drafter(start: Start) -> Banded:
    """Return what a draft model takes on a rank: layers as wide as the model's own, in 16 bits; its embedding is shared."""
    shape = start.shape
    attention = shape.hidden_size * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.hidden_size * (shape.ffn_hidden or shape.expert_hidden * shape.experts_per_token)
    best = 2 * start.drafter_layers * layer // start.settings.parallel.tp
    return Banded(best, best // 4, best * 3 // 2, "assumed", "layers of published draft models")
