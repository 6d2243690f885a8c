"""What one card really offers: memory as CUDA reports it, bandwidth, arithmetic, links.

Three sizes are called "the memory" of a card, and they differ by up to 9 %:

- the marketing size (L4: 24 GB), a label; kept for one rule of thumb, never used for arithmetic,
- nvidia-smi's figure (23034 MiB = 22.49 GiB),
- what CUDA reports (22.03 GiB), of which engines take their utilization: `Card.memory`.

Pure: text in, values out. `cards.py` reads the files.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tonnage.errors import InputError
from tonnage.facts.provenance import Banded, Confidence
from tonnage.units import GIB, MIB, parse_bytes, parse_rate

Format = Literal["fp16", "bf16", "fp8", "fp4", "int8"]
Link = Literal["nvlink", "nvlink-bridge", "infinity-fabric", "ici", "ethernet", "pcie", "none"]
"""nvlink: all cards of a machine. nvlink-bridge: an optional part that joins pairs; other pairs go over PCIe."""


class MigProfile(msgspec.Struct, frozen=True):
    """A slice that the card can be cut into; `memory_bytes` as its driver lists it, None where nobody published it."""

    name: str
    compute_slices: int
    max_instances: int
    memory_bytes: int | None = None


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asked for `gpus` cards per hour, and when; `date` is empty where the source has none."""

    usd_per_hour: float
    gpus: int
    provider: str
    source: str
    instance: str = ""
    region: str = ""
    date: str = ""


class Card(msgspec.Struct, frozen=True):
    """One GPU, as an engine sees it: half a board where a board holds two.

    `memory` is the CUDA total in bytes; `flops` dense operations per second by number format, without sparsity and
    with 32-bit accumulation where the two differ; `link_bytes_per_s` and `pcie_bytes_per_s` count both directions
    together, as data sheets do, and are 0 where there is no such link. `unified`: memory shared with the CPU.
    `display`: may drive a screen, which then takes part of the memory. `cloud`: provider -> instance -> cards.
    """

    slug: str
    name: str
    vendor: str
    arch: str
    memory: Banded
    bandwidth_bytes_per_s: float
    formats: tuple[str, ...]
    flops: dict[str, float]
    compute_capability: tuple[int, int] | None = None
    nvidia_smi_bytes: int | None = None
    marketing_bytes: int | None = None
    link: Link = "none"
    link_bytes_per_s: float = 0.0
    link_name: str = ""
    pcie: str = ""
    pcie_bytes_per_s: float = 0.0
    tdp_w: int | None = None
    unified: bool = False
    display: bool = False
    mig: tuple[MigProfile, ...] = ()
    cloud: dict[str, dict[str, int]] = {}
    prices: tuple[Price, ...] = ()
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    verified: str = ""
    checked: datetime.date | None = None
    conflicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sliced(self) -> bool:
        """Whether this is a MIG slice of a card."""
        return ":" in self.slug and not self.slug.startswith("custom")

    @property
    def memory_source(self) -> str:
        """Where the memory figure comes from, as a sentence."""
        return self.memory.source


class _MigFile(msgspec.Struct, forbid_unknown_fields=True):
    profile: str
    compute_slices: int
    max_instances: int
    memory: str | None = None


class _CardFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The form of a card's TOML file; sizes and rates are text with units."""

    name: str
    vendor: str
    arch: str
    bandwidth: str
    formats: list[Format]
    tflops_dense: dict[Format, float]
    source: list[str]
    checked: datetime.date
    compute_capability: str | None = None
    memory_cuda: str | None = None
    memory_cuda_low: str | None = None
    memory_cuda_high: str | None = None
    memory_confidence: Confidence = "measured"
    memory_source: str = ""
    memory_nvidia_smi: str | None = None
    marketing_size: str | None = None
    link: Link = "none"
    link_rate: str | None = None
    link_name: str = ""
    pcie: str = ""
    pcie_rate: str | None = None
    tdp_w: int | None = None
    unified: bool = False
    display: bool = False
    mig: list[_MigFile] = []
    cloud: dict[str, dict[str, int]] = {}
    prices: list[Price] = []
    aliases: list[str] = []
    default_for: list[str] = []
    verified: str = ""
    conflicts: list[str] = []
    notes: list[str] = []


def driver_reserve_bytes(nvidia_smi_bytes: int, compute_capability: tuple[int, int]) -> tuple[int, int, int]:
    """Return low, best and high of what the driver keeps from CUDA, from nvidia-smi's figure.

    Ampere and later::

        0.40 GiB + 0.19 % of the memory, minus 0.2 or plus 0.3 GiB

    Fitted on ten cards from 22 to 269 GiB (largest residual 0.12 GiB); eleven others, not used for the fit, lie within
    0.08 GiB. The band is wider because drivers differ: one A100 80 GB shows 79.15 GiB under one driver and 79.33 under
    another. Before Ampere the reserve is 0.26 GiB at 15 and at 32 GiB, and 0.44 under recent drivers.
    Grace superchips keep about 0.5 GiB more than this; their files carry measured totals.

    >>> [round(reserve / GIB, 2) for reserve in driver_reserve_bytes(23034 * MIB, (8, 9))]
    [0.24, 0.44, 0.74]
    """
    if compute_capability < (8, 0):
        return int(0.20 * GIB), int(0.26 * GIB), int(0.50 * GIB)
    best = int(0.40 * GIB + 0.0019 * nvidia_smi_bytes)
    return best - int(0.2 * GIB), best, best + int(0.3 * GIB)


def memory_from_nvidia_smi(nvidia_smi_bytes: int, compute_capability: tuple[int, int], *, where: str = "") -> Banded:
    """Return what CUDA probably reports on a card of which only nvidia-smi's figure is known."""
    low, best, high = driver_reserve_bytes(nvidia_smi_bytes, compute_capability)
    if nvidia_smi_bytes <= high:
        raise InputError(f"a card of {nvidia_smi_bytes} bytes leaves nothing after the driver's reserve", where=where)
    source = (
        f"nvidia-smi's {nvidia_smi_bytes // MIB} MiB minus the driver's reserve, {best / GIB:.2f} GiB "
        f"({low / GIB:.2f} to {high / GIB:.2f}) by the law of 21 cards"
    )
    return Banded(nvidia_smi_bytes - best, nvidia_smi_bytes - high, nvidia_smi_bytes - low, "extrapolated", source)


def parse_card(text: str, *, slug: str, where: str = "") -> Card:
    """Return the card that a TOML file describes; `where` names the file in errors.

    Raises InputError: not TOML, a field that is missing, unknown or of the wrong kind, a size without unit.
    """
    import tomllib

    where = where or f"{slug}.toml"
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=where) from None
    return card_of(table, slug=slug, where=where)


def card_of(table: Mapping[str, Any], *, slug: str, where: str = "") -> Card:
    """Return the card that a parsed card file describes.

    Raises InputError: a field that is missing, unknown or of the wrong kind, a size without unit.
    """
    where = where or f"{slug}.toml"
    try:
        fields = msgspec.convert(table, _CardFile)
    except (msgspec.ValidationError, RecursionError) as error:
        problem, _, place = str(error).partition(" - at `$.")
        hint = "write sizes and rates as text with their unit, like '24 GiB' or '300 GB/s'"
        raise InputError(problem, where=f"{where}: {place.rstrip('`')}" if place else where, hint=hint) from None
    return _card(fields, slug, where)


def _card(fields: _CardFile, slug: str, where: str) -> Card:
    if not fields.source:
        raise InputError("a card needs at least one source", where=f"{where}: source")
    if any(value <= 0 for value in fields.tflops_dense.values()):
        raise InputError("must be above 0; leave out what is not known", where=f"{where}: tflops_dense")
    capability = _capability(fields.compute_capability, f"{where}: compute_capability")
    smi = _size(fields.memory_nvidia_smi, f"{where}: memory_nvidia_smi")
    return Card(
        slug=slug,
        name=fields.name,
        vendor=fields.vendor,
        arch=fields.arch,
        memory=_memory(fields, smi, capability, where),
        bandwidth_bytes_per_s=_rate(fields.bandwidth, f"{where}: bandwidth"),
        formats=tuple(fields.formats),
        flops={kind: value * 1e12 for kind, value in fields.tflops_dense.items()},
        compute_capability=capability,
        nvidia_smi_bytes=smi,
        marketing_bytes=_size(fields.marketing_size, f"{where}: marketing_size"),
        link=fields.link,
        link_bytes_per_s=_rate(fields.link_rate, f"{where}: link_rate"),
        link_name=fields.link_name,
        pcie=fields.pcie,
        pcie_bytes_per_s=_rate(fields.pcie_rate, f"{where}: pcie_rate"),
        tdp_w=fields.tdp_w,
        unified=fields.unified,
        display=fields.display,
        mig=tuple(
            MigProfile(row.profile, row.compute_slices, row.max_instances, _size(row.memory, f"{where}: mig.memory")) for row in fields.mig
        ),
        cloud=fields.cloud,
        prices=tuple(fields.prices),
        aliases=tuple(fields.aliases),
        default_for=tuple(fields.default_for),
        source=tuple(fields.source),
        verified=fields.verified,
        checked=fields.checked,
        conflicts=tuple(fields.conflicts),
        notes=tuple(fields.notes),
    )


def _memory(fields: _CardFile, smi: int | None, capability: tuple[int, int] | None, where: str) -> Banded:
    if fields.memory_cuda is None:
        if smi is None or capability is None:
            hint = "give memory_cuda, or memory_nvidia_smi with compute_capability"
            raise InputError("the memory of this card is not known", where=f"{where}: memory_cuda", hint=hint)
        return memory_from_nvidia_smi(smi, capability, where=f"{where}: memory_nvidia_smi")
    best = parse_bytes(fields.memory_cuda, where=f"{where}: memory_cuda")
    low = _size(fields.memory_cuda_low, f"{where}: memory_cuda_low")
    high = _size(fields.memory_cuda_high, f"{where}: memory_cuda_high")
    band = Banded(
        best, best if low is None else low, best if high is None else high, fields.memory_confidence,
        fields.memory_source,
    )  # fmt: skip
    if not 0 < band.low <= band.best <= band.high:
        raise InputError("must be low <= best <= high, above 0", where=f"{where}: memory_cuda")
    if smi is not None and band.best > smi:
        raise InputError("CUDA cannot see more than nvidia-smi shows", where=f"{where}: memory_cuda")
    return band


def _size(text: str | None, where: str) -> int | None:
    return None if text is None else parse_bytes(text, where=where)


def _rate(text: str | None, where: str) -> float:
    rate = 0.0 if text is None else parse_rate(text, where=where)
    if text is not None and rate <= 0:
        raise InputError(f"rate {text!r} is not above 0", where=where)
    return rate


def _capability(text: str | None, where: str) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    if match is None:
        raise InputError(f"compute capability {text!r} is not like '8.9'", where=where)
    return int(match[1]), int(match[2])


def formats_of(compute_capability: tuple[int, int]) -> tuple[str, ...]:
    """Return the number formats that an NVIDIA card of this compute capability multiplies in hardware.

    >>> formats_of((7, 5)), formats_of((8, 9))
    (('fp16', 'int8'), ('fp16', 'bf16', 'fp8', 'int8'))
    """
    since = {"fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0), "int8": (6, 1)}
    return tuple(kind for kind, first in since.items() if compute_capability >= first)


def custom_card(text: str) -> Card:
    """Return a card from the user's own words: memory as CUDA sees it, bandwidth, compute capability, 16-bit speed.

    >>> card = custom_card('"48 GiB",864GB/s,8.9')
    >>> card.memory.best // GIB, card.bandwidth_bytes_per_s, card.formats
    (48, 864000000000.0, ('fp16', 'bf16', 'fp8', 'int8'))

    The last two may be left out; without a compute capability no format is ruled out but FP4. A fourth part like
    `121TFLOPS` is the dense 16-bit rate, which `simulate` needs. Raises InputError.
    """
    where = "custom card"
    hint = 'write it like custom:"48 GiB",864GB/s,8.9,362TFLOPS; the memory is what CUDA reports'
    parts = [part.strip().strip("\"'") for part in text.split(",")]
    if not 2 <= len(parts) <= 4 or not all(parts):
        raise InputError("needs memory and bandwidth at least, four parts at most", where=where, hint=hint)
    memory_bytes = parse_bytes(parts[0], where=where)
    bandwidth = parse_rate(parts[1], where=where)
    if memory_bytes < 1 or bandwidth < 1:
        raise InputError("memory and bandwidth must be above 0", where=where, hint=hint)
    capability = _capability(parts[2], where) if len(parts) > 2 else None
    formats = formats_of(capability) if capability else ("fp16", "bf16", "fp8", "int8")
    source = "given on the command line"
    return Card(
        slug="custom",
        name=f"custom card {parts[0]}",
        vendor="custom",
        arch=f"sm_{capability[0]}{capability[1]}" if capability else "custom",
        memory=Banded(memory_bytes, memory_bytes, memory_bytes, "read", source),
        bandwidth_bytes_per_s=bandwidth,
        formats=formats,
        flops=_custom_flops(parts[3], formats, where) if len(parts) > 3 else {},
        compute_capability=capability,
        source=(source,),
        verified=source,
        notes=("nothing is known of its links: cards are joined over PCIe at an unknown rate",),
    )


def _custom_flops(text: str, formats: tuple[str, ...], where: str) -> dict[str, float]:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)\s*TFLOPS", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{text!r} is not a speed", where=where, hint="write it like '121TFLOPS'")
    speed = float(match[1]) * 1e12
    times = {"fp16": 1, "bf16": 1, "fp8": 2, "int8": 2, "fp4": 4}
    return {kind: speed * times[kind] for kind in formats}
