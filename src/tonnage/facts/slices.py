"""MIG slices: what one of a card's profiles is as a card of its own."""

from __future__ import annotations

import re

import msgspec

from tonnage.errors import UnknownError, closest_hint
from tonnage.facts.gpu import Card, MigProfile
from tonnage.facts.provenance import Banded
from tonnage.units import GIB

MIG_PROFILE = re.compile(r"^(?:mig-)?(([0-9]+)g\.([0-9]+)gb(?:[+-][a-z.]+)*)$")


def mig_slice(card: Card, profile: str) -> Card:
    """Return a slice of the card as a card of its own.

    Memory is the driver's figure for the profile where known (CUDA shows the same: 4.75 GiB on an A100's 1g.5gb).
    Else it is the slice's eighths of the card, of which known profiles give 91 to 99 % (best 95). Bandwidth goes with
    the eighths, arithmetic with the compute slices of seven (A30: of four). Slices talk neither over NVLink nor peer
    to peer.

    Raises UnknownError: a profile that this card does not have.
    """
    match = MIG_PROFILE.match(profile.lower())
    known = {row.name: row for row in card.mig}
    row = known.get(match[1]) if match else None
    if row is None:
        otherwise = f"{card.name} has {', '.join(known)}" if known else f"{card.name} cannot be cut into slices"
        hint = closest_hint(profile, known, otherwise)
        raise UnknownError(f"no slice of {card.name} is named {profile!r}", hint=hint)
    whole = max(card.mig, key=lambda other: (other.compute_slices, _nominal(other.name)))
    share = min(1.0, max(1, round(8 * _nominal(row.name) / _nominal(whole.name))) / 8)
    compute_share = row.compute_slices / whole.compute_slices
    return msgspec.structs.replace(
        card,
        slug=f"{card.slug}:{row.name}",
        name=f"{card.name} slice {row.name}",
        memory=_slice_memory(card, row, share),
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s * share,
        flops={kind: value * compute_share for kind, value in card.flops.items()},
        nvidia_smi_bytes=None,
        marketing_bytes=_nominal(row.name) * 10**9,
        link="pcie",
        link_bytes_per_s=card.pcie_bytes_per_s,
        link_name="",
        mig=(),
        cloud={},
        prices=(),
        aliases=(),
        default_for=(),
        notes=(*card.notes, f"a slice: {row.compute_slices} of {whole.compute_slices} compute slices, "
               f"{round(8 * share)} of 8 of memory and bandwidth, no NVLink"),
    )  # fmt: skip


def _slice_memory(card: Card, row: MigProfile, share: float) -> Banded:
    if row.memory_bytes is not None:
        margin = GIB // 8
        source = f"the driver lists {row.memory_bytes / GIB:.2f} GiB for this profile"
        return Banded(row.memory_bytes, row.memory_bytes - margin, row.memory_bytes + margin, "extrapolated", source)
    part = share * (card.nvidia_smi_bytes or card.memory.best)
    source = f"{round(8 * share)} of 8 parts of the card, of which known profiles give 91 to 99 %"
    return Banded(int(part * 0.95), int(part * 0.91), int(part * 0.99), "assumed", source)


def _nominal(profile: str) -> int:
    match = MIG_PROFILE.match(profile)
    return int(match[3]) if match else 1
