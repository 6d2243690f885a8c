"""A plan as the value that `--json` prints and `--out` writes (docs: contract, `plan`)."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.memory.changes import Change
from tonnage.memory.plan import MemoryPlan
from tonnage.memory.thumb import RuleOfThumb, guide, reference, worked_example
from tonnage.memory.weights import checkpoint_bytes
from tonnage.units import size

SCHEMA = "tonnage.plan/1"


def rules_of_thumb(made: MemoryPlan) -> tuple[RuleOfThumb, ...]:
    """Return the three rules of thumb for a plan, with why each differs from what the engine admits."""
    shape, workload, card = made.request.model.shape, made.request.workload, made.request.card
    tokens = workload.context_tokens
    lines = {entry.label: entry.bytes for entry in made.ledger}
    weights = lines["weights"]
    overhead = made.requested_bytes - weights - made.pool.bytes
    by_guide = guide(made.card_bytes, weights, made.cost, tokens)
    by_reference = reference(made.requested_bytes, weights, overhead, made.cost, tokens)
    decimal = card.marketing_bytes or made.card_bytes
    asked_fp8 = made.request.settings.weights.lower() == "fp8"
    parallel = made.settings.parallel
    worked = worked_example(
        decimal, shape, made.cost, tokens, fp8=asked_fp8, checkpoint=checkpoint_bytes(shape), cards=parallel.tp * parallel.pp
    )
    by_guide, by_reference, worked = (users * parallel.dp for users in (by_guide, by_reference, worked))
    forgotten = f"; {size(made.cost.state_bytes)} of state a user is forgotten" if made.cost.state_bytes else ""
    return (
        RuleOfThumb("guide", by_guide, f"uses the whole card, a flat 2 GB and 15 % on the cache; no utilization, no pages{forgotten}"),
        RuleOfThumb("reference", by_reference, f"divides the pool into tokens, not into pages{forgotten}"),
        RuleOfThumb(
            "worked-example",
            worked,
            f"takes the decimal card of {decimal / 1e9:.0f} GB, 0.90 and 1.5 GiB of overhead; CUDA reports {size(made.card_bytes)}",
        ),
    )


def plan_value(made: MemoryPlan, alternatives: tuple[Change, ...]) -> dict[str, Any]:
    """Return the plan as plain values, by the words of the contract; bytes, tokens and blocks are integers."""
    request, settings, shape = made.request, made.settings, made.request.model.shape
    card = request.card
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "fits": made.fits,
        "model": {
            "name": request.model.name,
            "architecture": shape.architecture,
            "params_total": shape.params_total,
            "params_active": shape.params_active,
            "weights": made.weights_label,
            "confidence": request.model.confidence,
            "path": request.model.path,
            "notes": list(made.notes),
        },
        "card": {
            "name": card.name,
            "slug": card.slug,
            "vendor": card.vendor,
            "memory_bytes": card.memory.best,
            "memory_low_bytes": card.memory.low,
            "memory_high_bytes": card.memory.high,
            "confidence": card.memory.confidence,
            "source": card.memory.source,
            "compute_capability": list(card.compute_capability) if card.compute_capability else None,
        },
        "cards": settings.parallel.cards,
        "settings": {
            **msgspec.to_builtins(settings),
            "release": f"{settings.release[0]}.{settings.release[1]}",
            "served_dtype": made.served_dtype,
            "cache_dtype": made.cache_dtype,
        },
        "workload": msgspec.to_builtins(request.workload),
        "card_bytes": made.card_bytes,
        "ledger": [msgspec.to_builtins(entry) for entry in made.ledger],
        "pool": {
            **msgspec.to_builtins(made.pool),
            "block_bytes": made.allocation.bytes_per_block,
            "block_tokens": made.allocation.block_size,
            "would_narrow": made.would_narrow,
        },
        "kv_bytes_per_token": made.cost.growth(request.workload.context_tokens),
        "kv_windows": [{"window_tokens": window, "bytes_per_token": each} for window, each in made.cost.windows],
        "state_bytes_per_sequence": made.cost.state_bytes,
        "per_user": msgspec.to_builtins(made.per_user),
        "users": msgspec.to_builtins(made.users),
        "shortfall_bytes": made.shortfall_bytes,
        "refusals": [msgspec.to_builtins(entry) for entry in made.refusals],
        "rules_of_thumb": [msgspec.to_builtins(rule) for rule in rules_of_thumb(made)],
        "warnings": list(made.warnings),
        "changes": [msgspec.to_builtins(change) for change in alternatives],
    }
    return value
