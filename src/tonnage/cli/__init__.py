"""The command line: one file a command, imported when it is called. Errors are one line and a hint, never a traceback."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from tonnage.errors import TonnageError, closest_hint

COMMANDS = {
    "plan": "tonnage.cli.plan",
    "render": "tonnage.cli.render",
    "report": "tonnage.cli.report",
    "lint": "tonnage.cli.lint",
    "diagnose": "tonnage.cli.diagnose",
    "profile": "tonnage.cli.profile",
    "simulate": "tonnage.cli.simulate",
    "models": "tonnage.cli.models",
    "gpus": "tonnage.cli.gpus",
    "engines": "tonnage.cli.engines",
    "adopt": "tonnage.cli.adopt",
    "fit": "tonnage.cli.fit",
    "backtest": "tonnage.cli.backtest",
    "oracle": "tonnage.cli.oracle",
}


class Commands(click.Group):
    """A group whose commands are imported when they are called, and whose errors are sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or fail with the closest name."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            raise click.UsageError(
                f"no command is named {cmd_name!r}\n  hint: {closest_hint(cmd_name, COMMANDS, 'tonnage --help lists them')}"
            )
        command: click.Command = importlib.import_module(module).command
        return command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and turn what a user can get wrong into a line, a hint and an exit code."""
        given = kwargs.get("args") or (args[0] if args else None)
        words = list(given) if given is not None else sys.argv[1:]
        standalone = kwargs.pop("standalone_mode", True)
        if sys.stdout is None:  # closed by the caller: the exit code is still an answer
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
        try:
            code: Any = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.stdout.flush()
        except TonnageError as error:
            code = _fail(error.problem, error.hint, error.where, error.exit_code, as_json="--json" in words)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = 0
        except click.UsageError as error:
            problem, _, hint = error.format_message().partition("\n  hint: ")
            help_line = f"{error.ctx.command_path} --help shows the options" if error.ctx else "tonnage --help lists the commands"
            code = _fail(problem.rstrip("."), hint or help_line, "", 2, as_json="--json" in words)
        except click.ClickException as error:
            code = _fail(error.format_message(), "", "", 2, as_json="--json" in words)
        except (click.Abort, KeyboardInterrupt):
            click.echo("stopped", err=True)
            code = 130
        except (BrokenPipeError, SystemExit):  # click ends itself where the reader of a pipe has gone
            _silence()
            code = 0
        except OSError as error:
            _silence()
            code = _fail(f"the result cannot be written ({error.strerror or error})", "", "stdout", 3, as_json=False)
        if standalone:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def _silence() -> None:
    """Send what is still buffered nowhere, so that leaving does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(problem: str, hint: str, where: str, code: int, *, as_json: bool) -> int:
    if as_json:
        import json

        click.echo(json.dumps({"error": {"message": problem, "hint": hint, "where": where}}))
        return code
    click.echo(f"error: {where}: {problem}" if where else f"error: {problem}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)
    return code


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tonnage", message="%(prog)s %(version)s")
def main() -> None:
    """Capacity planning for language models on your own GPUs.

    How many users fit, on which cards, with which settings: offline, as the engine really allocates, every line shown.

    \b
    tonnage plan qwen3.5-4b --gpu l4 --users 16 --context 24k
    """
