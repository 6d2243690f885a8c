"""What stands around engines and is read beside them: proxies that count tokens, alerts that read metrics."""

from __future__ import annotations

import re

from tonnage.lint.place import Source
from tonnage.lint.server import Alert, Gateway
from tonnage.lint.yaml_text import Yaml

METRIC = re.compile(r"\bvllm:[a-z0-9_]+")
COUNTERS = ("envoy.filters.http.sse_to_metadata", "envoy.filters.http.json_to_metadata", "sse_to_metadata", "json_to_metadata")


def is_envoy(document: Yaml) -> bool:
    """Return whether a document is an Envoy configuration."""
    return bool(document.get("static_resources")) or bool(document.get("dynamic_resources"))


def read_gateway(source: Source, document: Yaml) -> Gateway:
    """Return the gateway of an Envoy configuration; it counts tokens where a filter reads usage out of answers."""
    at = min((found for name in COUNTERS if (found := source.text.find(name, document.start, document.end)) != -1), default=-1)
    return Gateway(at != -1, source.place(max(at, document.start)))


def is_rules(document: Yaml) -> bool:
    """Return whether a document holds alert or recording rules."""
    return document.get("kind").text == "PrometheusRule" or bool(document.get("groups"))


def read_alerts(source: Source, document: Yaml) -> list[Alert]:
    """Return every engine metric that the rules read."""
    return [Alert(match[0], source.place(match.start())) for match in METRIC.finditer(source.text, document.start, document.end)]
