"""`tonnage backtest`: predictions against measured rows, one JSON line a row for others to score, and a table of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _loader(configs: Path | None) -> Callable[[str], Any]:
    from tonnage.facts.catalog import find_model

    @cache
    def load(name: str) -> Any:
        path = configs / f"{name.replace('/', '--')}.json" if configs is not None else None
        return find_model(str(path) if path is not None and path.exists() else name.replace("--", "/", 1)).shape

    return load


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

    load = _loader(configs)
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


@command.command("startups")
@click.argument("file", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--configs", type=click.Path(path_type=Path), help="Folder with the config.json of each model, by the rows' names.")
@click.option("--predictions", type=click.Path(path_type=Path), help="Write one JSON line a row to this file.")
@click.option("--worst", default=10, show_default=True, help="Rows to show that are furthest off.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def startups(file: tuple[Path, ...], configs: Path | None, predictions: Path | None, worst: int, as_json: bool) -> int:
    """The pool of measured starts, predicted from their settings alone.

    \b
    tonnage backtest startups startups.csv --predictions out.jsonl
    """
    from tonnage.backtest.allocator import kind_of
    from tonnage.backtest.startup_scores import groups, judge
    from tonnage.backtest.startups import predict_start
    from tonnage.facts.cards import find_card
    from tonnage.facts.overheads import overhead_constants

    load, constants = _loader(configs), overhead_constants()
    lines, judged = [], []
    for row in (row for path in file for row in _csv_rows(path)):
        made = predict_start(row, load, lambda name: find_card(name).card, constants)
        lines.append(msgspec.json.encode(made))
        if row.get("usable", "yes") != "no":
            judged.append(judge(row, made, "unknown" if made.skipped else kind_of(load(row["catalogue_model"]))))
    if predictions is not None:
        write_beside(predictions, b"\n".join(lines) + b"\n")
    scores = groups(judged)
    differing = sorted((row for row in judged if row.tokens_error is not None), key=lambda row: -(row.tokens_error or 0.0))
    if as_json:
        value = {"schema": "tonnage.backtest/1", "rows": len(lines), "scores": scores, "differing": differing}
        click.echo(msgspec.json.encode(value).decode())
        return 0
    if not any(row.measured_pool_gib is not None or row.tokens_error is not None for row in judged):
        click.echo(f"{len(lines)} rows predicted; none has measured columns to compare with")
        return 0
    _starts_table(scores, len(lines))
    for far in differing[:worst]:
        error = f"tokens off by {far.tokens_error:.1%}, {'inside' if far.inside else 'outside'} the band ({far.confidence})"
        click.echo(f"  {far.id}  {far.model}  {far.card}  {far.release}  {error}")
    return 0


def _starts_table(scores: dict[str, Any], count: int) -> None:
    from tonnage.report.terminal import table

    def said(value: float | None, form: str, unit: str = "") -> str:
        return "-" if value is None else f"{value:{form}}{unit}"

    head = ("rows of", "rows", "models", "pool, mean error", "largest", "tokens, median error", "inside the band", "half-width", "skipped")
    body = [
        (key, str(s.rows), str(s.models), said(s.pool_error_gib, ".2f", " GiB"), said(s.pool_worst_gib, ".2f", " GiB"),
         said(s.tokens_error, ".2%"), f"{s.inside} of {s.judged}", said(s.half_width, ".1%"), str(s.skipped))
        for key, s in scores.items()
    ]  # fmt: skip
    click.echo("\n".join(table([head, *body], "lrrrrrrrr")))
    click.echo(f"{count} rows predicted, those marked usable compared; means and medians are of each model first, then of the models")


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                yield {name: value or "" for name, value in row.items() if isinstance(name, str) and not isinstance(value, list)}
    except FileNotFoundError:
        raise InputError("there is no such file", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is no CSV ({error})", where=str(path)) from None


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
