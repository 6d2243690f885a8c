"""`tonnage oracle`: asks the installed vLLM's own code for pages, groups, blocks, weights and refusals. No GPU is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tonnage.cli.options import Count, Tokens
from tonnage.errors import InputError


class Bytes(click.ParamType[int]):
    """A size with its unit, or a plain number of bytes."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes."""
        from tonnage.units import parse_bytes

        if isinstance(value, int):
            return value
        text = str(value).strip()
        return int(text) if text.isdecimal() and len(text) < 19 else parse_bytes(text, where=param.opts[0] if param else "")


@click.command("oracle")
@click.argument("model_dir", type=click.Path(path_type=Path), required=False)
@click.option("--tp", type=Count(), default=1, help="Tensor-parallel size.")
@click.option("--pp", type=Count(), default=1, help="Pipeline-parallel size.")
@click.option("--dp", type=Count(), default=1, help="Data-parallel size.")
@click.option("--dcp", type=Count(), default=1, help="Decode-context-parallel size.")
@click.option("--ep", is_flag=True, help="Expert parallelism.")
@click.option("--kv-cache-dtype", default="auto", help="Precision of the cache, as vLLM names it.")
@click.option("--max-model-len", type=Tokens(), help="Longest request; the model's own if not given.")
@click.option("--max-num-batched-tokens", type=Tokens(), help="Tokens of one step.")
@click.option("--max-num-seqs", type=Count(), help="Most sequences at once.")
@click.option(
    "--available-kv-bytes",
    type=Bytes(),
    default="20 GiB",
    show_default=True,
    help="What a rank has for its cache; the profile run is not done.",
)
@click.option("--capability", default="9.0", show_default=True, help="Compute capability of the card.")
@click.option("--gpu-name", default="NVIDIA H100 80GB HBM3", show_default=True, help="Name of the card, as CUDA reports it.")
@click.option("--gpu-bytes", type=Bytes(), default="80 GiB", show_default=True, help="Memory of the card, as CUDA reports it.")
@click.option("--no-prefix-caching", is_flag=True, help="Switch prefix caching off.")
@click.option("--block-size", type=Count(), help="Tokens of a block; the attention backend's own if not given.")
@click.option(
    "--engine-arg", "engine_args", multiple=True, metavar="KEY=VALUE", help="Any other engine argument by vLLM's name; may be repeated."
)
@click.option("--out", type=click.Path(path_type=Path), help="Add the row to this file, whole or not at all.")
@click.option("--what-is-faked", is_flag=True, help="List what vLLM is told about a card that is not there.")
@click.option("--json", "as_json", is_flag=True, help="Errors and the list of what is faked as JSON; a row always is.")
def command(model_dir: Path | None, what_is_faked: bool, as_json: bool, out: Path | None, **given: Any) -> int:
    """What would vLLM itself decide for a model folder? Its own code is asked, on a card that is not there.

    Run it in an environment that has vLLM 0.30 to 0.33; no GPU is needed, and the CPU build will do. It prints one row:
    pages, groups, blocks, tokens, concurrency, weights of a rank, defaults, or the refusal and its reason (exit code 1).

    \b
    tonnage oracle ./Qwen3.5-4B --available-kv-bytes "13.7 GiB" --max-model-len 16k
    tonnage oracle ./Qwen3.5-4B --capability 8.9 --gpu-name "NVIDIA L4" --gpu-bytes "22.03 GiB"
    tonnage oracle --what-is-faked
    """
    if what_is_faked:
        return _list_faked(as_json)
    if model_dir is None:
        raise InputError("no model folder is given", hint="tonnage oracle MODEL_DIR; a folder with a config.json")
    if not (model_dir / "config.json").is_file():
        raise InputError("has no config.json", where=str(model_dir), hint="give the folder of a checkpoint; its weights are not needed")
    if out is not None and not out.parent.is_dir():
        raise InputError("cannot be written (there is no such folder)", where=str(out))
    import msgspec

    row = _row(model_dir, given)
    line = msgspec.json.encode(row) + b"\n"
    if out is not None:
        _append(out, line)
    click.echo(line.decode(), nl=False)
    return 1 if row["answers"]["refused"] else 0


def _append(file: Path, line: bytes) -> None:
    """Add a line to a file in one write, so that commands that run side by side do not tear or lose each other's rows."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", where=str(file)) from None


def _list_faked(as_json: bool) -> int:
    from tonnage.oracle.pretend import what_is_faked

    listed = what_is_faked()
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"schema": "tonnage.oracle-faked/1", **listed}).decode())
        return 0
    for heading, items in (("faked", listed["faked"]), ("not asked", listed["not_asked"])):
        click.echo(f"{heading}:")
        for name, said in items.items():
            click.echo(f"  {name.ljust(24)}{said}")
    return 0


def _row(model_dir: Path, given: dict[str, Any]) -> dict[str, Any]:
    from tonnage.oracle.job import Card, Job, engine_arguments, parse_capability, row_id
    from tonnage.oracle.pretend import pretend

    card = Card(parse_capability(given["capability"], where="--capability"), given["gpu_name"], given["gpu_bytes"])
    job = Job(model_dir, card, given["available_kv_bytes"], engine_arguments(given))
    with _stdout_for_the_row():
        pretend(card)
        from tonnage.oracle.ask import ask
        from tonnage.oracle.find import version

        answers = ask(job)
    inputs = job.inputs(f"vllm:{version()}")
    return {"id": row_id(inputs), "inputs": inputs, "answers": answers}


@contextmanager
def _stdout_for_the_row() -> Iterator[None]:
    """Whatever an engine prints while it is asked goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
