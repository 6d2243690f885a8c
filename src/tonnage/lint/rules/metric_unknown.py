"""An alert reads a metric that this release does not export, so it never fires.

Names change: gpu_cache_usage_perc went with 0.12, time_per_output_token_seconds with 0.15. A rule over a series that does not
exist is silent for ever, which looks like health.

BAD (engine=vllm 0.24):

    groups:
      - name: vllm
        rules:
          - {alert: CacheFull, expr: "vllm:gpu_cache_usage_perc > 0.9"}

GOOD (engine=vllm 0.24):

    groups:
      - name: vllm
        rules:
          - {alert: CacheFull, expr: "vllm:kv_cache_usage_perc > 0.9"}
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts.metrics import every_metric, metrics_of, names_of
from tonnage.lint.context import Context
from tonnage.lint.problem import Problem
from tonnage.lint.server import Bundle

ID = "metric-unknown"
SEVERITY = "error"


def check_bundle(bundle: Bundle, context: Context) -> Iterator[Problem]:
    release = context.release or next((server.release for server in bundle.servers if server.engine == "vllm" and server.release), None)
    for alert in bundle.alerts:
        known = [name for name in names_of(alert.metric) if name in every_metric()]
        if not known:
            said, fix = f"no vLLM release exports {alert.metric}", "see what /metrics of your server exports"
        elif release is not None and not any(name in metrics_of(release) for name in known):
            fact = every_metric()[known[0]]
            since = f"from {fact.first}" + (f" to {fact.last}" if fact.last else "")
            said, fix = f"{alert.metric} is exported {since}, not by {release[0]}.{release[1]}", _instead(known[0])
        else:
            continue
        yield Problem(alert.place, said, "a rule over a series that does not exist never fires", fix)


RENAMED = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:gpu_prefix_cache_queries": "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_hits": "vllm:prefix_cache_hits",
    "vllm:time_per_output_token_seconds": "vllm:inter_token_latency_seconds",
}


def _instead(name: str) -> str:
    return f"use {RENAMED[name]}" if name in RENAMED else "use a series that this release exports"
