"""`tonnage report`: the page for the budget review."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tonnage.cli.options import read_file, write_beside
from tonnage.errors import InputError


@click.command("report")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["md", "html"]), default="md", show_default=True, help="Markdown, or one HTML file.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; stdout unless given.")
def command(plan: Path, form: str, out: Path | None) -> int:
    """The page for the budget review of a plan: answer, options, ledger, how sure, what would change it.

    \b
    tonnage plan qwen3-32b --users 64 --context 8k --out plan.json
    tonnage report plan.json --to html --out report.html
    """
    from tonnage.render.plan_file import read_plan
    from tonnage.report.budget import html, markdown, page

    data = read_file(plan)
    read_plan(data, str(plan))
    try:
        title, blocks = page(msgspec.json.decode(data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "write it again: tonnage plan ... --out plan.json"
        raise InputError(f"lacks what a report needs ({error})", where=str(plan), hint=hint) from None
    text = html(title, blocks) if form == "html" else markdown(title, blocks)
    if out is None:
        click.echo(text, nl=False)
        return 0
    write_beside(out, text.encode())
    click.echo(f"wrote {out}")
    return 0
