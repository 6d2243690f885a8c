"""A start as a row of measured starts: the columns of startups.csv, so that a site's rows and published ones are read alike."""

from __future__ import annotations

import csv
import io

from tonnage.diagnose.start import Start
from tonnage.diagnose.told import case_of
from tonnage.errors import InputError
from tonnage.lint.context import Context
from tonnage.memory.measured import too_large

COLUMNS = (
    "id", "source", "engine", "version", "model", "weights_dtype_or_quant", "gpu", "gpu_count", "tp", "pp", "dp", "max_model_len",
    "gpu_memory_utilization", "kv_cache_dtype", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "other_flags",
    "weights_gib_per_gpu", "activation_peak_gib", "non_torch_gib", "graph_gib", "kv_mem_gib_per_gpu", "gpu_blocks", "kv_tokens",
    "max_concurrency_x", "outcome", "note", "catalogue_model", "weights_rule", "catalogue_card", "usable",
)  # fmt: skip
"""The columns, in their order."""


def row_of(start: Start, context: Context, *, number: int = 0) -> dict[str, str]:
    """Return the row of a start that sized its cache.

    Raises InputError: model or card are not known, without which a row is of no use.
    """
    case = case_of(start, context)
    if case.model is None:
        raise InputError(
            "the log does not say which model of the catalogue it is", where="--save-row", hint="name it: --model qwen3-8b-fp8"
        )
    if case.card is None:
        raise InputError("the log does not say which card it ran on", where="--save-row", hint="name it: --gpu h100")
    if case.release is None:
        raise InputError("the log does not say which release of the engine it is", where="--save-row", hint="name it: --engine vllm:0.33")
    held = (int(start.figures.get("weights_bytes", 0)), int(start.figures.get("pool_bytes", 0)))
    if sum(held) > case.card.memory.best:
        raise InputError(too_large(*held, case.card), where="--save-row", hint="is --gpu right? --model?")
    settings, asked = case.settings, case.asked
    if settings is None or asked is None:
        raise InputError("the settings in the log cannot be read", where="--save-row")
    figures = start.figures

    def size(name: str) -> str:
        return f"{figures[name] / 2**30:.3f}" if name in figures else ""

    def count(name: str) -> str:
        return f"{figures[name]:.0f}" if name in figures else ""

    parallel = asked.parallel
    return {
        "id": f"site-{number:04d}", "source": "tonnage diagnose", "engine": start.engine or "vllm",
        "version": start.release or f"{case.release[0]}.{case.release[1]}",
        "model": case.model.name,
        "weights_dtype_or_quant": case.model.shape.quantisation.label or case.model.shape.dtype, "gpu": case.card.name,
        "gpu_count": str(parallel.cards), "tp": str(parallel.tp), "pp": str(parallel.pp), "dp": str(parallel.dp),
        "max_model_len": str(settings.max_model_len or ""), "gpu_memory_utilization": f"{settings.gpu_memory_utilization or 0:g}",
        "kv_cache_dtype": asked.kv_cache_dtype, "max_num_seqs": str(settings.max_num_seqs or ""),
        "max_num_batched_tokens": str(settings.max_num_batched_tokens or ""),
        "enforce_eager": str(asked.enforce_eager) if asked.enforce_eager else "",
        "other_flags": f"enable_prefix_caching={settings.enable_prefix_caching}", "weights_gib_per_gpu": size("weights_bytes"),
        "activation_peak_gib": size("activation_bytes"), "non_torch_gib": size("non_torch_bytes"), "graph_gib": size("graphs_bytes"),
        "kv_mem_gib_per_gpu": size("pool_bytes"), "gpu_blocks": count("blocks"), "kv_tokens": count("pool_tokens"),
        "max_concurrency_x": f"{figures['concurrency']:g}" if "concurrency" in figures else "",
        "outcome": "ok" if start.stage == "ready" else "failed",
        "note": "", "catalogue_model": case.model.name, "weights_rule": "", "catalogue_card": case.card.slug, "usable": "yes",
    }  # fmt: skip


def appended(text: str, row: dict[str, str]) -> str:
    """Return a file of rows with one more.

    Raises InputError: the file holds other columns, or the row already.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    if text:
        header = next(csv.reader([text.partition("\n")[0]]), [])
        if header != list(COLUMNS):
            raise InputError("is no file of measured starts: its columns are others", where="--save-row", hint="name a new file")
        if not text.endswith("\n"):
            text += "\n"
    else:
        writer.writeheader()
    rest = [row[name] for name in COLUMNS[1:]]
    if any(known[1:] == rest for known in csv.reader(io.StringIO(text))):
        raise InputError("has this start already", where="--save-row", hint="a start tells once, however often it is counted")
    writer.writerow(row)
    return text + out.getvalue()
