"""Nothing is left for the cache once weights, activations and graphs are paid."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case
from tonnage.units import gib

ID = "no-cache-blocks"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    pool, weights = start.figures.get("pool_bytes"), start.figures.get("weights_bytes")
    share = case.server.text("--gpu-memory-utilization") or (
        f"{case.rules.default_utilization:g} (the default)" if case.engine == "vllm" else ""
    )
    numbers = {"kv_available_gib": round(pool / 2**30, 2)} if pool is not None else {}
    spent = f"{gib(weights)} GiB of weights and the activation peak" if weights else "weights and the activation peak"
    short = f" by {gib(-pool)} GiB" if pool is not None and pool < 0 else ""
    of = f" utilization {share} of the card" if share else " the engine's share of the card"
    return Told(
        f"{spent} exceed{of}{short}: nothing is left for cache blocks",
        "raise --gpu-memory-utilization towards 0.95 only if that gives a useful pool; else "
        "--max-num-batched-tokens 2048, more cards, or a "
        "narrower checkpoint. Lowering it makes it worse",
        numbers,
    )
