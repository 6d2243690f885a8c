"""The options that say what is known around a command, a manifest or a log: engine, model, card, users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import Count, Tokens, read_file

if TYPE_CHECKING:
    from tonnage.lint.context import Context

OPTIONS = (
    click.option("--engine", default="", metavar="NAME:RELEASE", help="Engine and release, like vllm:0.33."),
    click.option("--model", default="", help="The model, where the input names a folder or hides it."),
    click.option("--gpu", default="", metavar="CARD", help="The card it runs on."),
    click.option("--count", type=Count(), help="Cards available to all of it."),
    click.option("--users", type=Count(), help="Users at once, at peak."),
    click.option("--context", "context_tokens", type=Tokens(), help="Tokens of a whole sequence (p95)."),
    click.option("--workload", type=click.Path(path_type=Path), help="workload.toml: users, context, p99, shared prefix, targets."),
    click.option(
        "--context-file", type=click.Path(path_type=Path), help="All of it at once, as JSON: {engine, model, gpu, workload {...}}."
    ),
)


def around_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a context."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def context_of(given: dict[str, Any], *, lenient: bool = False) -> Context:
    """Return the context that options and files describe; an option wins over a file.

    `lenient` lets a file name a model or a release that no law is known of: what a log says can be read without.

    Raises InputError or UnknownError: a file that is none, an engine, a card or a model that nobody knows.
    """
    import msgspec

    from tonnage.facts.cards import find_card
    from tonnage.facts.catalog import find_model
    from tonnage.lint.context import Context, engine_word, read_context
    from tonnage.workload.file import read_workload

    path, load = given["context_file"], given["workload"]
    context = read_context(read_file(path), str(path), lenient=lenient) if path is not None else Context()
    fields: dict[str, Any] = {}
    if load is not None:
        file = read_workload(read_file(load).decode("utf-8", "replace"), str(load))
        names = {"users": "users", "context": "context_tokens", "p99": "p99_tokens", "output": "output_tokens"}
        fields |= {ours: value for name, ours in names.items() if (value := getattr(file, name)) is not None}
        if file.shared_prefix is not None or file.prefix_share is not None:
            context_tokens = given["context_tokens"] or file.context or context.context_tokens
            fields["shared_prefix_tokens"] = (
                file.shared_prefix if file.shared_prefix is not None else int((file.prefix_share or 0) * context_tokens)
            )
        for key, value in file.targets.items():
            fields |= {"ttft_s": value} if key.startswith("ttft") else ({"tpot_s": value} if key.startswith("tpot") else {})
    if given["engine"]:
        fields["engine"], fields["release"] = engine_word(given["engine"])
    fields |= {ours: given[name] for name, ours in (("model", "model"), ("gpu", "gpu"), ("count", "gpu_count"), ("users", "users"),
               ("context_tokens", "context_tokens")) if given[name]}  # fmt: skip
    context = msgspec.structs.replace(context, **fields)
    if context.gpu:
        choice = find_card(context.gpu)
        context = msgspec.structs.replace(context, gpu=choice.card.slug, gpu_count=context.gpu_count or choice.count or 0)
    if context.model and (given["model"] or not lenient):
        find_model(context.model)
    return context
