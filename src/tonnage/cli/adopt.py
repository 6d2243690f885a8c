"""`tonnage adopt`: a plan from what already runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from tonnage.cli.around import around_options, context_of
from tonnage.cli.options import in_colour, read_file, terminal_width, whole, write_beside
from tonnage.cli.site import calibration_options, corrections
from tonnage.errors import InputError


@click.command("adopt")
@click.argument("sources", nargs=-1, required=True, metavar="LOG|URL|MANIFEST...")
@around_options
@calibration_options
@click.option("--key", default="", envvar="TONNAGE_API_KEY", help="API key of the server, where it wants one.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plan as JSON to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(sources: tuple[str, ...], key: str, out: Path | None, as_json: bool, **given: Any) -> int:
    """A plan from what already runs: its start-up log, the server itself, its command or manifest, together or alone.

    The pool is the one that was measured; what no source says is named, and what tonnage would have chosen stands beside it.

    \b
    tonnage adopt start.log --gpu h100 --out plan.json
    tonnage adopt http://127.0.0.1:8000 deploy.yaml --gpu l40s --users 20 --context 8k
    """
    from tonnage.adopt import adopted
    from tonnage.memory.changes import changes
    from tonnage.report.adopted import adopted_text, differences
    from tonnage.report.plan_value import plan_value

    context = context_of(given)
    site = corrections(given["calibration"], none=given["no_calibration"])
    found = adopted([told for source in sources for told in _told(source, key)], context, site)
    value = plan_value(found.plan, changes(found.plan))
    chosen = _chosen(found.plan) if context.load is not None else None
    value["adopted"] = {
        "sources": list(found.sources), "unknown": list(found.unknown), "measured": msgspec.to_builtins(found.measured),
        "differences": [
            {"setting": name, "runs": runs, "chosen": best, "why": why} for name, runs, best, why in differences(found.plan, chosen)
        ],
    }  # fmt: skip
    if out is not None:
        write_beside(out, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    if as_json:
        click.echo(msgspec.json.encode(value).decode())
        return int(not found.plan.fits)
    click.echo(adopted_text(found, chosen, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
    if out is not None:
        click.echo(f"wrote {out}", err=True)
    return int(not found.plan.fits)


def _told(source: str, key: str) -> list[Any]:
    """Return what a source tells.

    Raises InputError: a file that is neither a log of an engine, nor a command, nor a page.
    """
    from tonnage.adopt import told_by_server

    if "://" in source or (not Path(source).exists() and ":" in source and "/" not in source):
        from tonnage.monitor.page import read_page
        from tonnage.monitor.scrape import base_of, fetch, fetch_json

        base = base_of(source)
        page = read_page(fetch(f"{base}/metrics", key=key), f"{base}/metrics")
        return [told_by_server(page, fetch_json(f"{base}/v1/models", key=key), fetch_json(f"{base}/version", key=key), base)]
    return _of_file(source)


def _of_file(source: str) -> list[Any]:
    from tonnage.adopt import told_by_command, told_by_log, told_by_server
    from tonnage.diagnose.lines import opened, read_lines
    from tonnage.diagnose.reader import read_starts
    from tonnage.lint.source import LARGEST_BYTES, read_bundle, read_source
    from tonnage.monitor.page import is_page, read_page

    path = Path(source)
    data = read_file(path) if path.is_dir() or not path.exists() or path.stat().st_size <= LARGEST_BYTES else b""
    text = data.decode("utf-8", "replace")
    if is_page(text.splitlines()[:40]):
        return [told_by_server(read_page(text, source), None, None, source)]
    with whole(source), opened(path.open("rb")) as stream:
        starts = [start for start in read_starts(read_lines(stream)) if start.arguments or start.config or start.figures]
    if starts:
        return [told_by_log(starts[-1], source)]
    servers = read_bundle([read_source(data, source)]).servers if data else ()
    if not servers:
        raise InputError("is no log of an engine, no command or manifest that starts one, and no metrics page", where=source)
    return [told_by_command(servers[0], source)]


def _chosen(made: Any) -> Any:
    """Return the plan that a search of the same card would have chosen for the same users; None where nothing holds them."""
    from tonnage.capacity.choose import ranked
    from tonnage.capacity.inventory import inventory
    from tonnage.capacity.search import Limits, search
    from tonnage.settings import EngineSettings

    request, settings = made.request, made.settings
    if request.card.slug in ("cpu", "custom"):
        return None
    asked = EngineSettings(
        engine=settings.engine, release=settings.release, weights=settings.weights, kv_cache_dtype=settings.kv_cache_dtype
    )
    shelf = inventory(request.card.slug)
    order = ranked(search(msgspec.structs.replace(request, settings=asked), shelf, Limits()))
    return order[0].option if order else None
