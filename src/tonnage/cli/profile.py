"""`tonnage profile`: a traffic log becomes a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tonnage.cli.options import in_colour, terminal_width, write_beside
from tonnage.cli.traffic import read_traffic
from tonnage.errors import InputError
from tonnage.units import parse_tokens
from tonnage.workload.trace import FORMATS


class Seconds(click.ParamType[float]):
    """A time: 0.02, 0.02s or 20ms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        text = str(value).strip().lower()
        number, unit = (text[:-2], 0.001) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
        try:
            seconds = float(number) * unit
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 86_400:
            raise InputError(f"{value!r} is no time", where=param.opts[0] if param else "", hint="write it like 0.02 or 20ms")
        return seconds


class Sizes(click.ParamType[tuple[int, ...]]):
    """Counts of tokens with commas between them."""

    name = "tokens,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the counts."""
        if isinstance(value, tuple):
            return value
        where = param.opts[0] if param else ""
        sizes = tuple(parse_tokens(part, where=where) for part in str(value).split(",") if part.strip())
        if not sizes or len(sizes) > 40:
            raise InputError(f"{len(sizes)} sizes are given; it takes 1 to 40", where=where, hint="write it like 100k,1m,10m")
        return sizes


@click.command("profile")
@click.argument("file", metavar="FILE | -")
@click.option("--format", "form", type=click.Choice(FORMATS), help="The format; by default told by what the file holds.")
@click.option(
    "--map", "mapping", default="", metavar="NAME=COLUMN,...",
    help="Where a log keeps arrival, prompt, output, end, duration, cached, hashes: arrival=ts:ms,prompt=usage.in,duration=took_s.",
)  # fmt: skip
@click.option("--tpot", type=Seconds(), default=0.02, show_default=True, help="Seconds a token, assumed where the log tells no ends.")
@click.option("--ttft", type=Seconds(), default=0.5, show_default=True, help="Seconds to the first token, assumed where it tells no ends.")
@click.option("--cache-tokens", type=Sizes(), help="Sizes of a prefix cache to try: 100k,1m,10m.")
@click.option("--block-tokens", default="", help="Tokens of a block of the hashes; by default told from the lengths (Mooncake: 512).")
@click.option("--out", type=click.Path(path_type=Path), help="Write workload.toml to this file.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Draw it: one HTML file that needs nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as JSON.")
def command(file: str, form: str | None, mapping: str, tpot: float, ttft: float, cache_tokens: tuple[int, ...] | None,
            block_tokens: str, out: Path | None, page: Path | None, as_json: bool) -> int:  # fmt: skip
    """A traffic log becomes a workload: peak of requests at once, lengths, bursts, time of day, what prompts share.

    Reads CSV (Azure's traces and others), Mooncake's traces, usage logs of the OpenAI API and access logs of gateways as JSON
    lines, and vLLM's own log; plain or gzip. It says what a log is too short or too coarse to tell. No text of a prompt is
    kept or printed.

    \b
    tonnage profile access.jsonl --map prompt=in,output=out,duration=took_ms
    tonnage profile trace.csv --out workload.toml --html traffic.html
    """
    import msgspec

    from tonnage.report.profile_text import profile_text, profile_value
    from tonnage.workload.concurrency import Speed
    from tonnage.workload.prefixes import LADDER
    from tonnage.workload.profile import profile
    from tonnage.workload.profile_file import workload_text
    from tonnage.workload.traces.fields import read_map

    size = parse_tokens(block_tokens, where="--block-tokens") if block_tokens else 0
    if block_tokens and not 1 <= size <= 65_536:
        raise InputError(f"{size} is not between 1 and 65,536", where="--block-tokens")
    trace = read_traffic(file, form or "", read_map(mapping), size)
    speed = Speed(ttft, tpot)
    found = profile(trace, speed=speed, cache_tokens=cache_tokens or LADDER)
    name = "stdin" if file == "-" else Path(file).name
    toml = workload_text(found, name)
    if out is not None:
        write_beside(out, toml.encode())
    if page is not None:
        from tonnage.report.profile_page import profile_page

        write_beside(page, profile_page(found, trace, name, speed).encode())
    if as_json:
        click.echo(msgspec.json.encode(profile_value(found, name, toml)).decode())
    else:
        kept = str(out) if out is not None else ""
        click.echo(profile_text(found, name, toml, kept=kept, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
    for path in filter(None, (out, page)):
        click.echo(f"wrote {path}", err=True)
    return 0
