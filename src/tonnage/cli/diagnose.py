"""`tonnage diagnose`: a log or a metrics page, explained."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import IO, Any

import click

from tonnage.cli.around import around_options, context_of
from tonnage.cli.options import in_colour, read_file, terminal_width, whole
from tonnage.errors import InputError

HEAD_BYTES = 65_536
FINE = {"healthy", "idle"}


@click.command("diagnose")
@click.argument("file", metavar="LOG|METRICS|-")
@click.argument("later", required=False, metavar="[LATER_METRICS]")
@click.option("--seconds-between", type=float, metavar="S", help="Seconds between the two metrics pages.")
@around_options
@click.option(
    "--save-row", type=click.Path(path_type=Path), metavar="ROWS.csv", help="Append what the last start measured, for tonnage fit overhead."
)
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as JSON.")
def command(file: str, later: str | None, seconds_between: float | None, save_row: Path | None, as_json: bool, **given: Any) -> int:
    """What happened, why, and what to do: a start-up, running or crash log, or one or two metrics pages.

    Logs of vLLM 0.5 to 0.33, SGLang and llama.cpp, as the terminal, docker, compose or kubectl give them, gzip too; the causes of every
    start in the file, what was measured beside what a plan of the same settings says.

    \b
    tonnage diagnose crash.log --gpu h100
    tonnage diagnose before.prom after.prom --seconds-between 30 --users 60 --context 8k
    """
    context = context_of(given, lenient=True)
    if "://" in file:
        raise InputError(
            "is an address", where=file, hint=f"save its page: curl {file.rstrip('/')}/metrics > now.prom; tonnage adopt reads addresses"
        )
    with whole(file), _opened(file) as stream:
        return _told(stream, file, later, seconds_between, save_row, context, as_json)


def _told(
    stream: IO[bytes], file: str, later: str | None, seconds_between: float | None, save_row: Path | None, context: Any, as_json: bool
) -> int:
    head = stream.peek(HEAD_BYTES)[:HEAD_BYTES] if hasattr(stream, "peek") else b""
    from tonnage.monitor.page import is_page

    first = head.decode("utf-8", "replace").splitlines()[:40]
    if later is not None or is_page(first):
        if save_row is not None:
            raise InputError("a metrics page measures no start", where="--save-row", hint="give a start-up log")
        return _metrics(file, stream, later, seconds_between, context, as_json)
    if seconds_between is not None:
        raise InputError("a log says itself when it was", where="--seconds-between", hint="it is for two metrics pages")
    return _log(stream, file, context, save_row, as_json)


def _opened(file: str) -> IO[bytes]:
    from tonnage.diagnose.lines import opened

    if file == "-":
        if sys.stdin is None:
            raise InputError("stdin is closed", hint="give a file, or pipe one in")
        buffer: Any = sys.stdin.buffer
        return opened(buffer if hasattr(buffer, "peek") else io.BufferedReader(buffer))
    path = Path(file)
    try:
        plain = path.open("rb")
    except OSError:
        read_file(path)
        raise
    return opened(plain)


def _log(stream: IO[bytes], file: str, context: Any, save_row: Path | None, as_json: bool) -> int:
    import json

    from tonnage.diagnose.diagnosis import diagnose
    from tonnage.diagnose.lines import read_lines
    from tonnage.diagnose.reader import read_starts
    from tonnage.report.diagnosis import diagnosis_text, diagnosis_value

    said = diagnose(starts := read_starts(read_lines(stream)), context)
    if not any(start.engine or start.measured or start.causes or start.unread or start.stage != "start" for start in said):
        raise InputError(
            "holds nothing of an engine: no start, no message that we know",
            where=file,
            hint="manifests and commands are read by tonnage lint",
        )
    if as_json:
        click.echo(json.dumps(diagnosis_value(said)))
    else:
        click.echo(diagnosis_text(said, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
    if save_row is not None:
        _save(starts, context, save_row)
    return int(any(start.causes or start.unread for start in said))


def _save(starts: list[Any], context: Any, path: Path) -> None:
    from tonnage.cli.options import write_beside
    from tonnage.diagnose.row import appended, row_of

    measured = [start for start in starts if "pool_bytes" in start.figures or "pool_tokens" in start.figures]
    if not measured:
        raise InputError("no start in the log came to size its cache", where="--save-row")
    text = read_file(path).decode("utf-8", "replace") if path.exists() else ""
    row = row_of(measured[-1], context, number=max(1, text.count("\n")))
    write_beside(path, appended(text, row).encode())
    click.echo(f"wrote a row to {path}", err=True)


def _metrics(file: str, stream: IO[bytes], later: str | None, seconds: float | None, context: Any, as_json: bool) -> int:
    import json

    from tonnage.monitor.page import LARGEST_BYTES, is_page, read_page
    from tonnage.monitor.verdicts import figures, gone, nothing_of_an_engine, verdicts
    from tonnage.monitor.window import windows
    from tonnage.report.diagnosis import verdicts_text

    if later is not None and seconds is None:
        raise InputError(
            "how long after the first the second page was taken is not said", where="--seconds-between", hint="--seconds-between 30"
        )
    if seconds is not None and not 0 < seconds < 10**8:
        raise InputError(f"{seconds:g} is no time between two pages", where="--seconds-between", hint="the later page comes second")
    if seconds is not None and later is None:
        raise InputError("there is one page only", where="--seconds-between", hint="give the later page as well")
    texts = [stream.read(LARGEST_BYTES).decode("utf-8", "replace")]
    names = [file]
    if later is not None:
        texts.append(read_file(Path(later)).decode("utf-8", "replace"))
        names.append(later)
        for text, name in zip(texts, names, strict=True):
            if not is_page(text.splitlines()[:40]):
                raise InputError("is no metrics page", where=name, hint="two files are two pages of /metrics; a log is given alone")
        if texts[0] == texts[1]:
            raise InputError("is the same page as the first", where=later, hint="take it again, half a minute later")
    pages = [read_page(text, name) for text, name in zip(texts, names, strict=True)]
    last, before = pages[-1], pages[0] if later is not None else None
    seen = windows(last, before, seconds or 0.0)
    found = [*verdicts(seen, context), *gone(before, last)] if seen else [nothing_of_an_engine("")]
    if any(verdict.id == "metric-missing" for verdict in found):
        found = [verdict for verdict in found if verdict.id != "healthy"]
    if as_json:
        click.echo(json.dumps(_value(found, figures(seen), last, seen, context)))
    else:
        click.echo(verdicts_text(found, len(seen), seconds or 0.0, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
    return int(any(verdict.id not in FINE for verdict in found))


def _value(found: list[Any], numbers: dict[str, float], page: Any, seen: list[Any], context: Any) -> dict[str, Any]:
    causes = [
        {
            "id": verdict.id, "first": number == 0, "engine": verdict.engine, "why": verdict.why,
            "fix": verdict.fix, "numbers": verdict.numbers,
            "evidence": [{"line": _line(page, verdict.engine, name), "text": text} for name, text in verdict.evidence],
        }
        for number, verdict in enumerate(found)
    ]  # fmt: skip
    merged = {**numbers, **{key: value for verdict in found for key, value in verdict.numbers.items() if key not in numbers}}
    configs = {window.engine.label: window.engine.cache_config for window in seen}
    return {
        "schema": "tonnage.diagnosis/1", "engine": page.source, "release": "", "model": page.engines[0].model if page.engines else "",
        "card": context.gpu, "settings": configs, "measured": numbers, "predicted": {}, "causes": causes, "unread": [], "numbers": merged,
    }  # fmt: skip


def _line(page: Any, label: str, figure: str) -> int:
    """Return the line of a figure of an engine; of a row that names another engine, where that one's running requests stand."""
    if figure.startswith("engine "):
        label, figure = figure.removeprefix("engine "), "running"
    engine = page.engine(label)
    return int(engine.lines.get(figure, 0)) if engine is not None else 0
