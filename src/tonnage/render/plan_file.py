"""plan.json as other commands read it: the plan of one replica, and how many replicas there are."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.settings import EngineSettings
from tonnage.workload.spec import Workload

PLAN, OPTIONS = "tonnage.plan/1", "tonnage.options/1"


class Named(msgspec.Struct, frozen=True):
    """A model or a card by name; `path` where a folder was planned."""

    name: str
    path: str = ""
    slug: str = ""
    vendor: str = "NVIDIA"


class UsersRead(msgspec.Struct, frozen=True):
    """Users at once: by formula, as the engine admits them, at the low end of the pool."""

    ideal: int
    admitted: int
    safe: int


class PerUserRead(msgspec.Struct, frozen=True):
    """What one user takes of a card; 0 where a model keeps no cache."""

    admitted_bytes: int = 0


class LineRead(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    label: str
    bytes: int
    low: int
    high: int
    confidence: str
    why: str = ""


class PlanFile(msgspec.Struct, frozen=True):
    """A plan that was kept: of one replica on its cards, for its share of the users."""

    fits: bool
    model: Named
    card: Named
    settings: EngineSettings
    workload: Workload
    users: UsersRead
    ledger: tuple[LineRead, ...]
    per_user: PerUserRead
    warnings: tuple[str, ...] = ()
    replicas: int = 1

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights on one card."""
        return next((entry.bytes for entry in self.ledger if entry.label == "weights"), 0)


def read_plan(data: bytes, where: str) -> PlanFile:
    """Return the plan in a file: what `plan --out` wrote, with or without --gpu.

    Raises InputError: no whole JSON, something else, a later schema, or a search that found nothing.
    """
    again = "write it again: tonnage plan ... --out plan.json"
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InputError(f"is no whole plan ({error})", where=where, hint=again) from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema == OPTIONS:
        if not value.get("chosen"):
            raise InputError("is a search that found nothing", where=where, hint=again)
        value, schema = value["chosen"], PLAN
    if schema != PLAN:
        ours = isinstance(schema, str) and schema.startswith(("tonnage.plan/", "tonnage.options/"))
        later = f"is {schema}, written by a later tonnage; this one reads {PLAN}" if ours else "is no plan"
        raise InputError(later, where=where, hint=again)
    try:
        settings = dict(value["settings"])
        major, minor = str(settings["release"]).split(".")
        settings["release"] = (int(major), int(minor))
        return msgspec.convert({**value, "settings": settings}, PlanFile)
    except (KeyError, ValueError, TypeError, AttributeError) as error:  # ValidationError is a ValueError
        raise InputError(f"is no whole plan ({error})", where=where, hint=again) from None
