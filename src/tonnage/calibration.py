"""A site's measured constants: a TOML file <-> values. Read by plans from then on; written by `tonnage fit`."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.facts.site import Correction
from tonnage.units import size

SCHEMA = "tonnage.calibration/1"


class Calibration(msgspec.Struct, frozen=True):
    """What a site measured: when it was made, from which rows (how many, and the digest of their file), and the corrections."""

    made: str
    rows: int
    digest: str
    overhead: tuple[Correction, ...]


def read_calibration(text: str, where: str) -> Calibration:
    """Return the calibration in a TOML text.

    Raises InputError: no TOML, another or later schema, or a field that is missing or malformed.
    """
    import tomllib

    again = "write it again: tonnage fit overhead ROWS.csv"
    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is no TOML ({error})", where=where, hint=again) from None
    schema = value.get("schema")
    if schema != SCHEMA:
        later = isinstance(schema, str) and schema.startswith("tonnage.calibration/")
        raise InputError(f"is {schema}, written by a later tonnage" if later else "is no calibration", where=where, hint=again)
    try:
        for entry in value.get("overhead", []):
            major, minor = str(entry["release"]).split(".")
            entry["release"] = (int(major), int(minor))
        return msgspec.convert({"overhead": [], **value}, Calibration)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"is no whole calibration ({error})", where=where, hint=again) from None


def calibration_text(calibration: Calibration) -> str:
    """Return the calibration as TOML; reading it gives the same value."""
    lines = [
        "# What this site's starts measured, against tonnage's laws; read by `tonnage plan`. Written by `tonnage fit overhead`.",
        f'schema = "{SCHEMA}"',
        f'made = "{calibration.made}"',
        f"rows = {calibration.rows}",
        f'digest = "{calibration.digest}"  # of the file of rows',
    ]
    for one in calibration.overhead:
        lines += [
            "",
            "[[overhead]]",
            f'card = "{one.card}"',
            f'engine = "{one.engine}"',
            f'release = "{one.release[0]}.{one.release[1]}"',
            f"tp = {one.tp}",
            f"pp = {one.pp}",
            f'line = "{one.line}"',
            f"bytes = {one.bytes}  # {'+' if one.bytes >= 0 else ''}{size(one.bytes)} beside the law",
            f"spread = {one.spread}  # +-{size(one.spread)}",
            f"starts = {one.starts}",
        ]
    return "\n".join(lines) + "\n"
