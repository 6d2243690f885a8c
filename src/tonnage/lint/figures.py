"""The figures that rules reason with, by name, as far as a case knows them: what a report shows of each server."""

from __future__ import annotations

import msgspec

from tonnage.lint.case import Case
from tonnage.memory.defaults import Host, resolved
from tonnage.units import GIB


def numbers(case: Case) -> dict[str, float]:
    """The figures that rules reason with, by name, as far as they are known."""
    found: dict[str, float] = {}
    if case.weights_bytes is not None:
        found["weights_gib"] = round(case.weights_bytes / GIB, 2)
    if case.weights_on_card is not None:
        found["weights_gib_per_card"] = round(case.weights_on_card / GIB, 2)
    load = case.context.load
    if case.whole_cost is not None and case.cost is not None:
        tokens = load.context_tokens if load is not None else 1
        found["kv_bytes_per_token"] = case.whole_cost.growth(tokens)
        found["kv_bytes_per_token_per_card"] = case.cost.growth(tokens)
        if load is not None:
            found["kv_needed_gib"] = round(load.users * case.whole_cost.sequence_bytes(load.context_tokens) / GIB, 2)
    if case.model is not None:
        found["attention_heads"] = case.model.shape.heads
    if case.settings is not None and case.cost is not None:
        found["max_model_len"] = case.settings.max_model_len or 0
        found["max_num_seqs"] = case.settings.max_num_seqs or 0
        found["kv_gib_at_max_len_per_card"] = round(case.cost.sequence_bytes(case.settings.max_model_len or 0) / GIB, 2)
        bare = msgspec.structs.replace(case.asked, max_num_seqs=None) if case.asked is not None else None
        if bare is not None and case.model is not None and case.card is not None:
            host = Host(case.card.memory.best, case.card.compute_capability, f"{case.card.name} {case.card.slug}")
            found["default_max_num_seqs"] = resolved(bare, case.model.shape, host, case.rules).max_num_seqs or 0
    if case.plan is not None:
        found["pool_tokens"] = case.plan.pool.tokens
        found["pool_gib_per_card"] = round(max(0, case.plan.pool.bytes) / GIB, 2)
        if case.block_tokens is not None:
            found["attention_block_tokens"] = case.block_tokens
    return {**found, **_probe_numbers(case)}


def _probe_numbers(case: Case) -> dict[str, float]:
    found: dict[str, float] = {}
    if case.load_s is not None:
        found["load_s"] = round(case.load_s, 1)
    pod = case.server.pod
    if pod is not None:
        probe = pod.probe("startup") or pod.probe("liveness")
        if probe is not None:
            found["startup_budget_s"] = probe.patience_s
        cards = (case.server.box.cards if case.server.box is not None else None) or case.ranks
        if pod.surge is not None:
            found["gpus_wanted_during_update"] = (pod.replicas + pod.surge) * cards
    return found
