"""`tonnage engines`: the releases whose memory rules are known, and what one of them does."""

from __future__ import annotations

import click
import msgspec


@click.command("engines")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(name: str | None, as_json: bool) -> int:
    """The engine releases we know, or the memory rules of one.

    \b
    tonnage engines
    tonnage engines vllm:0.33
    """
    from tonnage.facts.engine import newest, parse_engine, rules_for

    engine, release = parse_engine(name or "vllm")
    rules = rules_for(engine, release)
    if as_json:
        click.echo(msgspec.json.encode({"schema": "tonnage.engine/1", "engine": engine, **msgspec.to_builtins(rules)}).decode())
        return 0
    if name is None:
        latest = newest(engine)
        click.echo(f"{engine}  memory rules checked for 0.19 to {latest[0]}.{latest[1]}; older ones are assumed, newer ones extrapolated")
        click.echo("next: tonnage engines vllm:0.33")
        return 0
    click.echo(f"{engine} {release[0]}.{release[1]}, rules {rules.confidence}")
    for field in rules.__struct_fields__[2:]:
        click.echo(f"  {field.ljust(24)}{getattr(rules, field)}")
    return 0
