"""`tonnage fit`: constants of this site from what was measured here."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli.options import read_file, write_beside
from tonnage.errors import InputError


@click.group("fit")
def command() -> None:
    """Constants of this site from what was measured here; plans read them from then on.

    \b
    tonnage fit overhead rows.csv
    """


@command.command("overhead")
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write; the one that plans read by default unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print the corrections and residuals as JSON.")
def overhead(rows: Path, out: Path | None, as_json: bool) -> int:
    """What starts of this site say of the overhead: ROWS are those of `tonnage diagnose LOG --save-row`.

    \b
    tonnage diagnose start.log --gpu h100 --save-row rows.csv
    tonnage fit overhead rows.csv
    """
    import csv
    import hashlib
    import io
    from datetime import date

    import msgspec

    from tonnage.calibration import Calibration, calibration_text
    from tonnage.cli.site import default_path
    from tonnage.facts.cards import find_card
    from tonnage.facts.catalog import find_model
    from tonnage.facts.overheads import overhead_constants
    from tonnage.fit import fit_overhead

    data = read_file(rows)
    try:
        table = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig")), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is no CSV ({error})", where=str(rows)) from None
    if not table or "catalogue_model" not in table[0]:
        raise InputError("holds no rows of measured starts", where=str(rows), hint="tonnage diagnose LOG --save-row makes them")
    fitted = fit_overhead(table, lambda name: find_model(name).shape, lambda name: find_card(name).card, overhead_constants())
    told = len({one.row for one in fitted.residuals})
    made = Calibration(date.today().isoformat(), told, f"sha256:{hashlib.sha256(data).hexdigest()}", fitted.corrections)
    where = out or default_path()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made ({error.strerror})", where=str(where.parent)) from None
    write_beside(where, calibration_text(made).encode())
    if as_json:
        value = {"schema": "tonnage.fit/1", "file": str(where), **msgspec.to_builtins(made),
                 "residuals": msgspec.to_builtins(fitted.residuals),
                 "skipped": [{"row": row, "reason": reason} for row, reason in fitted.skipped]}  # fmt: skip
        click.echo(msgspec.json.encode(value).decode())
        return 0
    from tonnage.report.terminal import table as columns
    from tonnage.units import size

    lines = [("card", "release", "tp", "pp", "line", "beside the law", "left open", "starts")]
    for one in fitted.corrections:
        sign = "+" if one.bytes >= 0 else ""
        lines.append((one.card, f"{one.release[0]}.{one.release[1]}", str(one.tp), str(one.pp), one.line, f"{sign}{size(one.bytes)}",
                      f"+-{size(one.spread)}", str(one.starts)))  # fmt: skip
    click.echo("\n".join(columns(lines, "llrrlrrr")))
    for row, reason in fitted.skipped:
        click.echo(f"row {row or '?'} says nothing: {reason}", err=True)
    click.echo(f"wrote {where}; plans read it from now on (--no-calibration does without)" if out is None else f"wrote {where}")
    return 0
