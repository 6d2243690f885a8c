"""The flags of each vLLM release: known since, until, deprecated since; read from the add_argument calls of its wheels."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tonnage.facts.tables import DATA

SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-q": "--quantization",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-sc": "--speculative-config",
    "-dc": "--diffusion-config",
    "-n": "--nnodes",
    "-r": "--node-rank",
}

MANY = {
    "--served-model-name", "--lora-modules", "--api-key", "--cudagraph-capture-sizes", "--cuda-graph-sizes", "--prompt-adapters",
    "--ignore-patterns", "--allowed-media-domains", "--device-ids", "--logits-processors", "--offload-params",
    "--cpu-offload-params", "--kv-cache-dtype-skip-layers", "--lora-target-modules", "--collect-detailed-traces",
    "--long-lora-scaling-factors", "--numa-bind-nodes", "--numa-bind-cpus",
}  # fmt: skip
"""Flags that take every word up to the next flag (nargs "+" or "*" in vLLM's parsers)."""

BARE = {
    "--aggregate-engine-logging", "--allow-credentials", "--allow-deprecated-quantization", "--async-scheduling", "--calculate-kv-scales",
    "--cohere-is-reasoning-model", "--cudagraph-metrics", "--data-parallel-external-lb", "--data-parallel-hybrid-lb",
    "--data-parallel-multi-port-external-lb", "--dcp-q-replicate", "--enforce-eager", "--eplb-log-balancedness",
    "--exclude-tools-when-tool-choice-none", "--expand-tools-even-if-tool-choice-none", "--fully-sharded-loras", "--grpc",
    "--guided-decoding-disable-additional-properties", "--guided-decoding-disable-any-whitespace", "--guided-decoding-disable-fallback",
    "--headless", "--interleave-mm-strings", "--kv-cache-metrics", "--kv-sharing-fast-prefill", "--language-model-only",
    "--log-error-stack", "--mm-encoder-only", "--multi-step-stream-outputs", "--numa-bind", "--per-request-spec-decode-metrics",
    "--ray-workers-use-nsight", "--return-sampling-mask", "--return-tokens-as-token-ids", "--scheduler-reserve-full-isl",
    "--skip-mm-profiling", "--skip-tokenizer-init", "--specialize-active-lora", "--tokens-only", "--trust-remote-code",
    "--trust-request-chat-template", "--trust-request-mm-kwargs", "--use-fp64-gumbel", "--use-gpu-for-pooling-score",
    "--use-replayssm", "--use-tqdm-on-load", "--use-v2-block-manager",
}  # fmt: skip
"""Flags without a value, beside those whose name begins with --enable-, --disable- or --no-."""


def is_switch(flag: str) -> bool:
    """Return whether a flag stands without a value.

    >>> is_switch("--trust-remote-code"), is_switch("--no-enable-prefix-caching"), is_switch("--dtype")
    (True, True, False)
    """
    return flag in BARE or flag.startswith(("--enable-", "--disable-", "--no-"))


class Flag(msgspec.Struct, frozen=True):
    """One flag: first and last release that know it (last None: the newest still does)."""

    first: str
    last: str | None = None
    deprecated: str | None = None


def release_tuple(text: str) -> tuple[int, int]:
    """Return (major, minor) of a release text.

    >>> release_tuple("0.33.0")
    (0, 33)
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@lru_cache(maxsize=1)
def every_flag() -> dict[str, Flag]:
    """Return every flag that any release knows, by its long spelling."""
    value = msgspec.json.decode((DATA / "engines" / "vllm-flags.json").read_bytes())
    return msgspec.convert(value["flags"], dict[str, Flag])


@lru_cache(maxsize=1)
def flag_releases() -> tuple[tuple[int, int], ...]:
    """Return the releases whose flags were read."""
    value = msgspec.json.decode((DATA / "engines" / "vllm-flags.json").read_bytes())
    return tuple(release_tuple(text) for text in value["releases"])


@lru_cache(maxsize=32)
def flags_of(release: tuple[int, int]) -> frozenset[str]:
    """Return the flags that a release knows; a release newer than all read knows what the newest does.

    >>> "--disable-log-requests" in flags_of((0, 9)), "--disable-log-requests" in flags_of((0, 33))
    (True, False)
    """
    return frozenset(
        name
        for name, flag in every_flag().items()
        if release_tuple(flag.first) <= release and (flag.last is None or release <= release_tuple(flag.last))
    )
