"""A metrics page -> what each engine on it says, by names that do not change: old and new names of series are one.

vLLM 0.5 to 0.33 and SGLang. Reading the text is prometheus-client's; a series that is absent or NaN is None, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from tonnage.errors import InputError

LARGEST_BYTES = 64 * 2**20

SERIES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "cache": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_requests_total"),
    "steps": ("vllm:iteration_tokens_total_count",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "generation_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prefix_queries": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:prefix_cache_queries",
        "vllm:gpu_prefix_cache_queries",
    ),
    "prefix_hits": (
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits",
    ),
    "finished": ("vllm:request_success_total", "sglang:num_requests_total"),
    "queue_s": ("vllm:request_queue_time_seconds_sum", "sglang:queue_time_seconds_sum"),
    "queue_count": ("vllm:request_queue_time_seconds_count", "sglang:queue_time_seconds_count"),
    "inference_s": ("vllm:request_inference_time_seconds_sum",),
    "inference_count": ("vllm:request_inference_time_seconds_count",),
    "prefill_s": ("vllm:request_prefill_time_seconds_sum",),
    "decode_s": ("vllm:request_decode_time_seconds_sum",),
    "ttft_s": ("vllm:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_sum"),
    "ttft_count": ("vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count"),
    "itl_s": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum", "sglang:inter_token_latency_seconds_sum"),
    "itl_count": (
        "vllm:inter_token_latency_seconds_count",
        "vllm:time_per_output_token_seconds_count",
        "sglang:inter_token_latency_seconds_count",
    ),
    "e2e_s": ("vllm:e2e_request_latency_seconds_sum", "sglang:e2e_request_latency_seconds_sum"),
    "e2e_count": ("vllm:e2e_request_latency_seconds_count", "sglang:e2e_request_latency_seconds_count"),
    "pool_tokens": ("sglang:max_total_num_tokens",),
}
"""What we call a figure, and the series that hold it, the newest name first."""
GAUGES = ("running", "waiting", "cache", "pool_tokens")
_BY_NAME = {name: (figure, rank) for figure, names in SERIES.items() for rank, name in enumerate(names)}
_ENGINE_LABELS = ("engine", "dp_rank", "engine_index")


class Engine(msgspec.Struct, frozen=True):
    """One engine of a page: its label, its model's name, its figures (None: absent or NaN), its cache's configuration.

    `lines` tell where each figure stands in the page.
    """

    label: str
    model: str
    figures: dict[str, float | None]
    cache_config: dict[str, str]
    lines: dict[str, int]
    source: str = ""

    def get(self, name: str) -> float | None:
        """Return a figure; None where it is absent or NaN."""
        return self.figures.get(name)

    @property
    def pool_tokens(self) -> int | None:
        """Tokens that the cache holds, as the engine says, else blocks x block size where blocks are plain ones."""
        if (own := self.figures.get("pool_tokens")) is not None:
            return int(own)
        said = self.cache_config.get("kv_cache_size_tokens", "")
        if said.isdigit():
            return int(said)
        blocks, size = self.cache_config.get("num_gpu_blocks", ""), self.cache_config.get("block_size", "")
        plain = blocks.isdigit() and size.isdigit() and int(size) in (8, 16, 32, 64, 128)
        return int(blocks) * int(size) if plain else None

    @property
    def block_tokens(self) -> int | None:
        """Tokens of a block."""
        size = self.cache_config.get("block_size", "")
        return int(size) if size.isdigit() else None


class Page(msgspec.Struct, frozen=True):
    """A page: its engines by label, when its process began, and whether any series of an engine was on it."""

    engines: tuple[Engine, ...]
    began_at: float | None
    source: str = ""
    others: int = 0

    def engine(self, label: str) -> Engine | None:
        """Return the engine of a label."""
        return next((engine for engine in self.engines if engine.label == label), None)


def read_page(text: str, where: str) -> Page:
    """Return what a metrics page says.

    Raises InputError: no metrics text.
    """
    from prometheus_client.parser import text_string_to_metric_families

    figures: dict[str, dict[str, tuple[int, float]]] = {}
    models: dict[str, str] = {}
    configs: dict[str, dict[str, str]] = {}
    began_at, others, source = None, 0, ""
    try:
        families = list(text_string_to_metric_families(text))
        several = _several_models(sample.labels for family in families for sample in family.samples)
        for family in families:
            for sample in family.samples:
                name = sample.name
                if name == "process_start_time_seconds":
                    began_at = sample.value
                elif name.startswith(("vllm:", "sglang:")):
                    source = source or name.partition(":")[0]
                    if sample.labels.get("tp_rank", "0") != "0":
                        continue  # every rank says the same of the same requests
                    label = next((sample.labels[key] for key in _ENGINE_LABELS if key in sample.labels), "")
                    label = label or (sample.labels.get("model_name", "") if several else "") or "0"
                    if several and label == "0":
                        continue  # of no model: it cannot be said whose it is
                    models.setdefault(label, sample.labels.get("model_name", ""))
                    if name == "vllm:cache_config_info":
                        configs[label] = dict(sample.labels)
                    elif name in _BY_NAME:
                        _keep(figures.setdefault(label, {}), name, sample.value)
                else:
                    others += 1
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"is no metrics page ({error})", where=where) from None
    if not models and not others and began_at is None:
        raise InputError("holds no metrics", where=where, hint="save what curl http://SERVER/metrics prints")
    lines = _lines(text)
    engines = tuple(
        Engine(
            label,
            models[label],
            {name: _real(value) for name, (_, value) in figures.get(label, {}).items()},
            configs.get(label, {}),
            {**lines.get("", {}), **lines.get(label, {})},
            source,
        )
        for label in sorted(models)
    )
    return Page(engines, began_at, source, others)


def _keep(into: dict[str, tuple[int, float]], name: str, value: float) -> None:
    """Keep the newest name of a figure; series of one name that differ in other labels (reasons) are summed."""
    figure, rank = _BY_NAME[name]
    known = into.get(figure)
    if known is not None and not math.isfinite(value):
        return
    if known is None or rank < known[0] or not math.isfinite(known[1]):
        into[figure] = (rank, value)
    elif rank == known[0]:
        into[figure] = (rank, max(known[1], value) if figure == "cache" else known[1] + value)


def _real(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _several_models(labels: Iterable[dict[str, str]]) -> bool:
    """Return whether a page without labels of engines speaks of several models: then the model tells them apart."""
    return len({one["model_name"] for one in labels if "model_name" in one and not any(key in one for key in _ENGINE_LABELS)}) > 1


def _lines(text: str) -> dict[str, dict[str, int]]:
    """Return the first line of each figure's series, by engine; under "" of any."""
    found: dict[str, dict[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"((?:vllm|sglang):\w+)", line)
        if match is not None and match[1] in _BY_NAME:
            figure = _BY_NAME[match[1]][0]
            found.setdefault("", {}).setdefault(figure, number)
            for label in re.findall(r'(?:engine|dp_rank|engine_index|model_name)="([^"]*)"', line):
                found.setdefault(label, {}).setdefault(figure, number)
    return found


def is_page(first: Iterable[str]) -> bool:
    """Return whether a text begins as a metrics page does."""
    for line in first:
        if line.startswith(("# HELP ", "# TYPE ")):
            return True
        if line.strip() and not line.startswith("#"):
            match = re.match(r"([a-zA-Z_:][\w:]*(?:\{[^}]*\})?) ([-+0-9.eNIinfa]+)(?: \d+)?$", line.strip())
            return match is not None and _is_number(match[2]) and any(character in match[1] for character in ":_{")
    return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
