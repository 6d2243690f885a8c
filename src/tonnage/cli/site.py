"""Where a site keeps what it measured: the calibration file, by option, by TONNAGE_CALIBRATION, or in the user's configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.options import read_file

if TYPE_CHECKING:
    from tonnage.facts.site import Correction


def default_path() -> Path:
    """Return where the calibration lies unless an option says otherwise."""
    named = os.environ.get("TONNAGE_CALIBRATION")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(base) / "tonnage" / "calibration.toml"


def corrections(path: Path | None, *, none: bool = False) -> tuple[Correction, ...]:
    """Return what the site measured: from the file named, else from the default one where there is one.

    Raises InputError: the file named is missing, or one that is there is malformed.
    """
    if none:
        return ()
    where = path or default_path()
    if path is None and not where.is_file():
        return ()
    from tonnage.calibration import read_calibration

    return read_calibration(read_file(where).decode("utf-8", "replace"), str(where)).overhead


def calibration_options(function: click.decorators.FC) -> click.decorators.FC:
    """Give a command `--calibration` and `--no-calibration`."""
    function = click.option("--no-calibration", is_flag=True, help="Do not read what this site measured.")(function)
    return click.option(
        "--calibration", type=click.Path(path_type=Path), metavar="FILE", help="What this site measured (tonnage fit); by default its own."
    )(function)
