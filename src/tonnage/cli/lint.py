"""`tonnage lint`: what is wrong in a command, a manifest, a compose file, values, a unit or a plan."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.around import around_options, context_of
from tonnage.cli.options import in_colour, read_file, terminal_width
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.lint.place import Source

WORDS = "tonnage.lint.words"
STARTS = (
    "known are vllm serve, sglang.launch_server, llama-server, ollama serve and trtllm-serve, bare, in containers, manifests, values, units"
)
PROGRAMS = ("vllm", "docker", "podman", "python", "python3", "sglang", "llama-server", "ollama", "trtllm-serve")
SUFFIXES = (".yaml", ".yml", ".sh", ".service", ".json")


class AfterDashes(click.Command):
    """A command whose words after `--`, or after a program that starts engines, are someone's command line, not files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after `--` aside, then parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[WORDS] = args[at + 1 :]
            args = args[:at]
        elif (start := next((at for at, word in enumerate(args) if word in PROGRAMS and not Path(word).exists()), None)) is not None:
            ctx.meta[WORDS] = args[start:]
            args = args[:start]
        return super().parse_args(ctx, args)


@click.command("lint", cls=AfterDashes)
@click.argument("files", nargs=-1, metavar="FILE... | - | -- COMMAND...")
@around_options
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "github", "sarif"]), default="text", show_default=True, help="How to print."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--select", multiple=True, metavar="RULE,...", help="Only these rules.")
@click.option("--ignore", multiple=True, metavar="RULE,...", help="All but these rules.")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules and leave.")
def command(files: tuple[str, ...], form: str, as_json: bool, select: tuple[str, ...], ignore: tuple[str, ...],
            strict: bool, list_rules: bool, **given: Any) -> int:  # fmt: skip
    """What is wrong in what people already run: where, why it matters here, and the fix with its number.

    Reads shell scripts and commands (docker run too), compose files, Kubernetes manifests, chart values, systemd units and plan.json;
    files given together are judged together. A comment `# tonnage: ignore[rule]` silences a line.

    \b
    tonnage lint deploy.yaml policies.yaml --gpu l4 --users 16 --context 8k
    tonnage lint --gpu h100 -- vllm serve /models/qwen3-32b-fp8 --max-num-seqs 64
    """
    from tonnage.lint.rules import RULES

    if list_rules:
        from tonnage.report.findings import title

        width = max(map(len, RULES))
        for name, rule in RULES.items():
            click.echo(f"{name:<{width}}  {rule.SEVERITY:<7}  {title(rule)}")
        return 0
    from tonnage.lint.run import lint
    from tonnage.lint.source import read_bundle, without_servers

    form = "json" if as_json else form
    context = context_of(given)
    sources = [*_words(click.get_current_context().meta.get(WORDS)), *_sources(files)]
    if not sources:
        raise InputError("nothing is given to read", hint="give files, - for stdin, or a command after --")
    bundle = read_bundle(sources)
    if without_servers(bundle):
        where = ", ".join(source.file for source in sources[:3])
        log = any(re.search(r"^(?:\([\w ]+=\d+\) )?(?:INFO|ERROR|WARNING) \d\d-\d\d ", source.text, re.MULTILINE) for source in sources)
        raise InputError("starts no engine that we know", where=where, hint="it reads like a log: tonnage diagnose" if log else STARTS)
    report = lint(bundle, context, select=_names(select), ignore=_names(ignore))
    _print(report, form)
    return int(report.count("error") > 0 or (strict and report.count("warning") > 0))


def _print(report: Any, form: str) -> None:
    import json

    from tonnage.report import findings

    if form == "json":
        click.echo(json.dumps(findings.findings_value(report)))
    elif form == "github":
        click.echo(findings.github_lines(report), nl=False)
    elif form == "sarif":
        from importlib.metadata import version

        from tonnage.lint.rules import RULES

        click.echo(json.dumps(findings.sarif_value(report, RULES, version("tonnage"))))
    else:
        click.echo(findings.findings_text(report, width=min(terminal_width(), 110), colour=in_colour()), nl=False)


def _names(given: tuple[str, ...]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _words(words: list[str] | None) -> list[Source]:
    if words is None:
        return []
    from shlex import join

    from tonnage.lint.place import Source

    if not words:
        raise InputError("no command follows --", hint="tonnage lint -- vllm serve /models/m ...")
    return [Source("command", words[0] if len(words) == 1 else join(words))]


def _sources(files: tuple[str, ...]) -> list[Source]:
    from tonnage.lint.source import LARGEST_BYTES, read_source

    sources = []
    for name in files:
        if name == "-":
            if sys.stdin is None:
                raise InputError("stdin is closed", hint="give a file, or pipe one in")
            sources.append(read_source(sys.stdin.buffer.read(LARGEST_BYTES + 1), "stdin"))
            continue
        path = Path(name)
        if path.is_dir():
            found = sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
            if not found:
                raise InputError(f"holds no {', '.join(SUFFIXES)}", where=name)
            sources += [read_source(_bounded(one), str(one)) for one in found]
        else:
            sources.append(read_source(_bounded(path), name))
    return sources


def _bounded(path: Path) -> bytes:
    """Return a file's bytes, no more than one beyond what is read."""
    from tonnage.lint.source import LARGEST_BYTES

    try:
        with path.open("rb") as file:
            return file.read(LARGEST_BYTES + 1)
    except OSError:
        return read_file(path)
