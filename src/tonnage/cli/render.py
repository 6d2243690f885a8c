"""`tonnage render`: from plan.json to what you would run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.options import Count, read_file, write_beside
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.render.plan_file import PlanFile

FILES = {"vllm": "serve.sh", "sglang": "serve.sh", "compose": "compose.yaml", "systemd": "vllm.service"}


@click.command("render")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(list(FILES)), required=True, help="What to write.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write into; stdout unless given.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--image", default="", metavar="REF@sha256:...", help="Image of the engine, pinned by its digest.")
@click.option("--alias", default="", help="Versioned name the model is served by; NAME-v1 unless given.")
@click.option("--host", default="", help="Address to listen on; 127.0.0.1, or all of a closed network in compose.")
@click.option("--port", type=Count(1, 65535), default=8000, show_default=True, help="Port to listen on.")
@click.option("--replaces", type=click.Path(path_type=Path), metavar="OLD_PLAN", help="Also the steps from that plan to this one.")
def command(
    plan: Path, target: str, out: Path | None, force: bool, image: str, alias: str, host: str, port: int, replaces: Path | None
) -> int:
    """The command, compose file or unit of a plan; every flag says why.

    \b
    tonnage plan qwen3-32b --gpu 2xh100 --users 64 --context 8k --out plan.json
    tonnage render plan.json --to vllm
    """
    from tonnage.render.choices import site_of
    from tonnage.render.plan_file import read_plan

    made = read_plan(read_file(plan), str(plan))
    host = host or ("0.0.0.0" if target == "compose" else "127.0.0.1")
    site = site_of(made, alias=alias, host=host, port=port)
    _one_machine(made, target)
    steps = ""
    if replaces is not None:
        from tonnage.render.rollout import next_alias, rollout_text

        old = read_plan(read_file(replaces), str(replaces))
        before = site_of(old, host=host, port=port)
        site = site_of(made, alias=alias or next_alias(before.alias), host=host, port=port + 1)
        steps = rollout_text(old, made, before, site, (f"stop {before.alias}", FILES[target]))
    if made.settings.engine != ("sglang" if target == "sglang" else "vllm"):
        wanted = "sglang" if target == "sglang" else "vllm"
        raise InputError(f"is a plan for {made.settings.release_name}", where=str(plan), hint=f"plan it with --engine {wanted}")
    if target == "compose":
        from tonnage.render.compose import compose_text

        text = compose_text(made, site, image)
    elif target == "systemd":
        from tonnage.render.systemd import unit_text

        text = unit_text(made, site)
    else:
        from tonnage.render.command import command_text

        text = command_text(made, site, target)
    if out is None:
        click.echo(text + (f"\n{steps}" if steps else ""), nl=False)
        return 0
    files = {out / FILES[target]: text, **({out / "rollout.md": steps} if steps else {})}
    for path in files:
        if path.exists() and not force:
            raise InputError("is there already", where=str(path), hint="--force writes over it")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made ({error.strerror})", where=str(out)) from None
    for path, content in files.items():
        write_beside(path, content.encode())
        click.echo(f"wrote {path}")
    return 0


def _one_machine(made: PlanFile, target: str) -> None:
    """Raise InputError where a replica spans machines, which one command, file or unit does not start."""
    from tonnage.capacity.inventory import node_cards
    from tonnage.errors import UnknownError
    from tonnage.facts.cards import find_card

    try:
        node = node_cards(find_card(made.card.slug or made.card.name).card)
    except (UnknownError, InputError):
        return
    cards = made.settings.parallel.cards
    if cards > node:
        raise InputError(
            f"a replica of {cards} {made.card.name} spans machines of {node}: one --to {target} does not start it",
            where="plan.json",
            hint="start Ray or --nnodes on each machine by hand with the settings of the plan, or plan larger cards",
        )
