"""`tonnage backtest`: predictions against measured rows, one JSON line a row for others to score, and a table of errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec

from tonnage.cli.options import write_beside
from tonnage.errors import InputError


@click.group("backtest")
def command() -> None:
    """Predictions against rows that were measured, with a table of errors.

    \b
    tonnage backtest allocator rows.jsonl --configs configs --predictions out.jsonl
    """


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                if text.strip():
                    try:
                        row = msgspec.json.decode(text)
                    except msgspec.DecodeError as error:
                        raise InputError(f"is no JSON ({error})", where=f"{path}:{number}") from None
                    if not isinstance(row, dict):
                        raise InputError("is no row", where=f"{path}:{number}", hint="one JSON object a line, with id and inputs")
                    yield row
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from None


@command.command("allocator")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--configs", type=click.Path(path_type=Path), help="Folder with the config.json of each model, by the rows' names.")
@click.option("--predictions", type=click.Path(path_type=Path), help="Write one JSON line a row to this file.")
@click.option("--worst", default=20, show_default=True, help="Rows to show that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def allocator(file: Path, configs: Path | None, predictions: Path | None, worst: int, as_json: bool) -> int:
    """Blocks, bytes, concurrency and refusals against an engine's own allocator.

    \b
    tonnage backtest allocator rows.jsonl --configs configs
    """
    from tonnage.backtest.allocator import Score, compare, kind_of, predict
    from tonnage.facts.catalog import find_model

    @cache
    def load(name: str) -> Any:
        path = configs / f"{name}.json" if configs is not None else None
        return find_model(str(path) if path is not None and path.exists() else name.replace("--", "/", 1)).shape

    lines: list[bytes] = []
    tables: dict[str, Score] = {}
    differing: list[dict[str, Any]] = []
    for row in _rows(file):
        made = predict(row, load)
        lines.append(msgspec.json.encode(made))
        answers = row.get("answers")
        if not isinstance(answers, dict):
            continue
        inputs = row.get("inputs", {})
        kind = "unknown" if made.skipped else kind_of(load(str(inputs.get("model"))))
        keys = ("all", f"kind {kind}", f"capability {str(inputs.get('capability'))[:1]}", f"release {inputs.get('engine')}")
        differs = ""
        for key in keys:
            differs = compare(made, answers, tables.setdefault(key, Score()))
        if differs:
            differing.append(
                {
                    "id": made.id,
                    "model": inputs.get("model"),
                    "engine": inputs.get("engine"),
                    "capability": inputs.get("capability"),
                    "differs": differs,
                }
            )
    if predictions is not None:
        write_beside(predictions, b"\n".join(lines) + b"\n")
    if as_json:
        click.echo(
            msgspec.json.encode({"schema": "tonnage.backtest/1", "rows": len(lines), "scores": tables, "differing": differing}).decode()
        )
        return 0
    _table(len(lines), tables, differing, worst)
    return 0


def _table(count: int, tables: dict[str, Any], differing: list[dict[str, Any]], worst: int) -> None:
    from tonnage.report.terminal import table

    if not tables:
        click.echo(f"{count} rows predicted; none has answers to compare with")
        return
    head = ("rows of", "rows", "exact", "weights within 0.5 %", "refusals right", "skipped")
    order = sorted(tables, key=lambda key: (key != "all", not key.startswith("kind"), not key.startswith("cap"), _version(key)))
    body = [
        (key, f"{s.rows:,}", f"{s.exact / s.rows:.2%}", f"{s.weights / s.rows:.2%}", f"{s.refusals_right} of {s.refusals}", str(s.skipped))
        for key in order
        for s in [tables[key]]
    ]
    click.echo("\n".join(table([head, *body], "lrrrrr")))
    click.echo("exact: bytes a block, blocks, concurrency and printed tokens, or refused as the engine refuses")
    for entry in differing[:worst]:
        click.echo(f"  {entry['id']}  {entry['model']}  {entry['engine']}  {entry['capability']}  {entry['differs']}")
    if len(differing) > worst:
        click.echo(f"  and {len(differing) - worst} more; --json lists them all")


def _version(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.rsplit(":", 1)[-1].split(".") if part.isdigit())
