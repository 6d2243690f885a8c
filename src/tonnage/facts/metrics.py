"""The metrics of each vLLM release: exported since, until; read from its wheels. SGLang's and others' are the monitor's."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tonnage.facts.flags import Flag, release_tuple
from tonnage.facts.tables import DATA

SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_created")


@lru_cache(maxsize=1)
def every_metric() -> dict[str, Flag]:
    """Return every metric that any release exports, with its first and last release, by the name without a suffix."""
    value = msgspec.json.decode((DATA / "engines" / "vllm-metrics.json").read_bytes())
    return msgspec.convert(value["metrics"], dict[str, Flag])


@lru_cache(maxsize=32)
def metrics_of(release: tuple[int, int]) -> frozenset[str]:
    """Return the metrics that a release exports.

    >>> "vllm:gpu_cache_usage_perc" in metrics_of((0, 10)), "vllm:gpu_cache_usage_perc" in metrics_of((0, 24))
    (True, False)
    """
    return frozenset(
        name
        for name, fact in every_metric().items()
        if (release_tuple(fact.first) <= release or fact.first == "0.9.2") and (fact.last is None or release <= release_tuple(fact.last))
    )


def names_of(series: str) -> tuple[str, ...]:
    """Return the metrics that a series on the page may belong to: counters end in _total, histograms in _bucket, _sum, _count.

    >>> names_of("vllm:time_to_first_token_seconds_bucket")
    ('vllm:time_to_first_token_seconds_bucket', 'vllm:time_to_first_token_seconds')
    """
    return (series, *(series.removesuffix(suffix) for suffix in SUFFIXES if series.endswith(suffix)))
