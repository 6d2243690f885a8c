"""What an engine takes besides weights and cache: the constants of its laws, with the evidence behind each.

`memory/activation.py` and `memory/overhead.py` hold the laws; `data/overheads.toml` holds the numbers, each with source,
rows, residuals and the settings (an envelope) in which rows support it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from tonnage.errors import InputError
from tonnage.facts.tables import table
from tonnage.units import parse_bytes

Release = tuple[int, int]
Value = TypeVar("Value")


class _Law(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the tables: a field that is not known is refused, since a misspelt constant would be a silent default."""


class Steps(_Law, frozen=True):
    """How far a setting stands from an envelope: what each kind of difference counts."""

    release: float
    release_most: float
    runner: float
    capability: float
    vendor: float
    link: float
    doubling: float
    parallel: float
    feature: float


class Evidence(_Law, frozen=True):
    """What stands behind a law. Inside its envelope the truth lies at most `below` and `above` the best; per step outside, more."""

    source: str
    rows: int
    models: int
    below: int
    above: int
    step: int
    step_share: float


class Envelope(_Law, frozen=True):
    """The settings that rows support: ranges are inclusive; what is not named here does not matter to the law."""

    releases: tuple[Release, Release]
    capabilities: tuple[str, ...]
    links: tuple[str, ...] = ()
    sequences: tuple[int, int] | None = None
    batch: tuple[int, int] | None = None
    tp: int = 1
    pp: int = 1


class ContextLaw(_Law, frozen=True):
    """CUDA contexts, kernels and collectives. Sizes in bytes; `alone` by release, the rest by link."""

    alone: dict[str, int]
    rocm: int
    rocm_spread: int
    staged: int
    link: dict[str, int]
    link_below: dict[str, int]
    link_above: dict[str, int]
    link_ampere_below: int
    peer: int
    peer_layer: int
    unified: tuple[str, ...]
    unified_spread: int
    evidence: Evidence
    envelope: Envelope


class RunnerLaw(_Law, frozen=True):
    """Which model runner a release starts for which architectures."""

    second: dict[str, str]
    listed: tuple[str, ...]
    listed_first: tuple[str, ...]
    source: str


class SamplerLaw(_Law, frozen=True):
    """The sample of the profile: bytes a logit, by release."""

    row_bytes: dict[str, int]
    wide_extra: int
    drafted_extra: int
    scratch_rows: dict[str, int]
    multiprocessors: dict[str, int]
    hidden_rows: int


class ForwardLaw(_Law, frozen=True):
    """The forward pass of the profile, and the workspaces it leaves."""

    residuals: int
    buffer: int
    int8_share: float
    stage_copies: int
    workspace: dict[str, int]
    latent_tokens: int


class ExpertsLaw(_Law, frozen=True):
    """The workspace of fused experts."""

    kept_since: str
    free_forms: dict[str, tuple[str, ...]]


class EmbeddingLaw(_Law, frozen=True):
    """The copy of the embedding that compiling makes."""

    since: str


class VisionLaw(_Law, frozen=True):
    """The image tower in the profile; `items`: architecture -> patches a token, tokens of the largest item."""

    split: int
    whole: int
    items: dict[str, tuple[int, int]]
    source: str


class ActivationLaw(_Law, frozen=True):
    """The evidence for the peak as a whole."""

    evidence: Evidence
    envelope: Envelope


class GraphLaw(_Law, frozen=True):
    """The engine's estimate of its CUDA graphs."""

    charged_since: str
    charged_since_rocm: str
    largest: int
    shared: int
    graph_layer: int
    experts: int
    rocm: float
    rocm_above: int
    pair_above: int
    evidence: Evidence
    envelope: Envelope


class LoadLaw(_Law, frozen=True):
    """What loading leaves beyond the parameters."""

    latent_copies: bool
    peak_until: str
    repacked: dict[str, tuple[str, ...]]
    repacked_copies: int
    evidence: Evidence
    envelope: Envelope


class OverheadConstants(_Law, frozen=True):
    """All constants of one engine's overhead."""

    engine: str
    steps: Steps
    context: ContextLaw
    runner: RunnerLaw
    sampler: SamplerLaw
    forward: ForwardLaw
    experts: ExpertsLaw
    embedding: EmbeddingLaw
    vision: VisionLaw
    activation: ActivationLaw
    graphs: GraphLaw
    load: LoadLaw


def parse_overheads(text: str, *, where: str = "overheads.toml") -> OverheadConstants:
    """Return the constants in a TOML text.

    Raises InputError: not TOML, a size without a unit, a field that is missing, unknown or of the wrong kind.
    """
    import tomllib

    try:
        return constants_from(tomllib.loads(text), where=where)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=where) from None


def constants_from(fields: Mapping[str, Any], *, where: str = "overheads.toml") -> OverheadConstants:
    """Return the constants in a table whose sizes are text with units. Raises InputError as `parse_overheads`."""
    try:
        kept = {name: value for name, value in fields.items() if name != "checked"}
        return msgspec.convert(_sized(kept, where), OverheadConstants)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where=where, hint="sizes are text with their unit, like '32 MiB'") from None


def _sized(value: Any, where: str) -> Any:
    """Return a value with every text that starts like a size turned into bytes; other texts stay."""
    if isinstance(value, dict):
        return {key: _sized(entry, f"{where}: {key}") for key, entry in value.items() if key != "source"} | (
            {"source": value["source"]} if "source" in value else {}
        )
    if isinstance(value, list):
        return [_sized(entry, where) for entry in value]
    return parse_bytes(value, where=where) if isinstance(value, str) and value[:1].isdigit() and " " in value else value


@lru_cache(maxsize=1)
def overhead_constants() -> OverheadConstants:
    """Return the constants that ship with tonnage.

    >>> constants = overhead_constants()
    >>> constants.forward.buffer, at_release(constants.sampler.row_bytes, (0, 19)), at_release(constants.sampler.row_bytes, (0, 16))
    (52428800, 14, 38)
    """
    return constants_from(table("overheads"))


def release_of(text: str) -> Release:
    """Return a release written like `0.19`."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def at_release(history: Mapping[str, Value], release: Release) -> Value:
    """Return the value that holds in a release: the newest at or before it, or the oldest known.

    >>> at_release({"0.8": 38, "0.17": 14}, (0, 33)), at_release({"0.8": 38, "0.17": 14}, (0, 6))
    (14, 38)
    """
    past = sorted((release_of(since), since) for since in history)
    held = [since for known, since in past if known <= release]
    return history[held[-1] if held else past[0][1]]


def capability_key(capability: Release | None) -> str:
    """Return a compute capability as the tables write it, "" for cards without one.

    >>> capability_key((8, 9)), capability_key(None)
    ('8.9', '')
    """
    return "" if capability is None else f"{capability[0]}.{capability[1]}"


def by_card(rule: Mapping[str, Value], capability: Release | None) -> Value:
    """Return the value for a compute capability, "other" where it has none of its own."""
    return rule[key] if (key := capability_key(capability)) in rule else rule["other"]
