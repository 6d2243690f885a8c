"""`tonnage plan`: will it fit, how many users, and every line of the arithmetic."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click
import msgspec

from tonnage.cli.options import Count, Share, Tokens, in_colour, number_table, read_file, terminal_width, write_beside
from tonnage.cli.site import calibration_options, corrections
from tonnage.errors import InputError


def _example(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from tonnage.workload.file import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        context.exit(0)


@click.command("plan")
@click.argument("model")
@click.option("--workload", type=click.Path(path_type=Path), help="workload.toml in place of --users, --context and the like.")
@click.option("--example-workload", is_flag=True, is_eager=True, expose_value=False, callback=_example, help="Print a commented one.")
@click.option(
    "--gpu",
    default="",
    metavar="CARD",
    help='Card: l4, a100-80g, 8xH100, g6.xlarge, h100:3g.40gb, local, or custom:"48 GiB",864GB/s,8.9. '
    "A list (l4,l40s), all, or nothing: which cards, how many.",
)
@click.option("--users", type=Count(), help="Users at once, at peak.")
@click.option("--context", type=Tokens(), help="Tokens of one sequence, prompt and answer, at its p95: 24k is 24,000, 24Ki 24,576.")
@click.option("--count", type=Count(1, 4096), help="Cards of one replica; --tp follows it unless given.")
@click.option("--tp", type=Count(1, 1024), help="Tensor-parallel size.")
@click.option("--pp", type=Count(1, 1024), default=1, show_default=True, help="Pipeline-parallel size.")
@click.option("--dp", type=Count(1, 1024), default=1, show_default=True, help="Data-parallel ranks of one engine.")
@click.option("--ep", is_flag=True, help="Expert parallelism: whole experts on each rank.")
@click.option("--dcp", type=Count(1, 1024), default=1, show_default=True, help="Decode-context-parallel size.")
@click.option(
    "--weights",
    default="checkpoint",
    show_default=True,
    help="Weights: as published, or bf16, fp8, int8, int4, nvfp4, mxfp4; without --gpu also any.",
)
@click.option("--kv", default="auto", show_default=True, help="Cache: auto, bf16, fp8, nvfp4, int8, int4; any to search.")
@click.option("--shared-prefix", type=Tokens(), default=0, help="Tokens at the start that all users share (system prompt).")
@click.option("--prefix-share", type=Share(), default=0.0, help="The same as a share of the context: 0.5 or 50%.")
@click.option("--output", type=Tokens(), default=0, help="Tokens of the answer, within the context.")
@click.option("--p99", type=Tokens(), default=0, help="The longest sequence that must be served, for max-model-len.")
@click.option("--max-model-len", type=Tokens(), help="Length limit; the longest sequence of the workload unless given.")
@click.option("--max-num-seqs", type=Count(), help="Sequences at once; the engine's default for the card unless given.")
@click.option("--max-num-batched-tokens", type=Tokens(), help="Tokens of one step; the engine's default for the card unless given.")
@click.option("--utilization", type=Share(), help="gpu-memory-utilization; the release's default unless given.")
@click.option("--engine", default="vllm", show_default=True, help="Engine and release: vllm:0.33.")
@click.option("--no-prefix-caching", is_flag=True, help="Turn prefix caching off.")
@click.option("--prefix-caching", is_flag=True, help="Turn prefix caching on where the release's default is off.")
@click.option("--no-async-scheduling", is_flag=True, help="Turn asynchronous scheduling off.")
@click.option("--block-size", type=Count(1, 65536), help="Tokens of a block, where the engine lets one choose.")
@click.option("--mtp", type=Count(0, 64), default=0, help="Multi-token prediction: draft tokens a step.")
@click.option("--lora", default="", metavar="N:RANK", help="LoRA adapters loaded at once, and their largest rank: 4:16.")
@click.option("--state-dtype", default="auto", show_default=True, help="Dtype of recurrent states: float32, bfloat16.")
@click.option("--enforce-eager", is_flag=True, help="No CUDA graphs.")
@click.option("--like", default="", metavar="MODEL", help="Use this model's shape for a fine-tune that is not listed.")
@click.option("--assume", type=click.Choice(["full-attention"]), help="Count an unknown architecture as full attention: an upper bound.")
@click.option("--facts", type=click.Path(path_type=Path), help="Folder with your own records of models and cards.")
@click.option("--offline", is_flag=True, help="Never ask a hub, whatever is installed.")
@click.option("--hub", is_flag=True, help="Fetch an unknown ORG/NAME's config.json from the hub (extra `hub`).")
@click.option("--max-gpus", type=Count(), help="Without --gpu: at most so many cards.")
@click.option("--budget", type=float, metavar="USD", help="Without --gpu: at most so many USD an hour, where prices are known.")
@click.option("--spare", type=Count(0, 1000), default=0, help="Without --gpu: replicas beyond those that hold the users.")
@click.option("--growth", type=Share(), default=0.0, help="Without --gpu: growth of the users a month: 10%.")
@click.option("--prices", type=click.Path(path_type=Path), help="TOML with [usd_per_hour]: your prices of a card.")
@click.option("--in-stock", type=click.Path(path_type=Path), help="TOML with [in_stock]: the cards you have, and how many.")
@click.option("--oracle", type=click.Path(path_type=Path), metavar="ROW", help="What `tonnage oracle` printed: the engine's own blocks.")
@calibration_options
@click.option("--explain", "explained", is_flag=True, help="Show every formula with its numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plan as JSON to this file.")
def command(**given: Any) -> int:
    """Will MODEL fit on a card for so many users, and why?

    MODEL is a name of the catalogue, a folder, or a config.json. Exit code 1 when it does not fit.

    \b
    tonnage plan qwen3.5-4b --gpu l4 --users 16 --context 24k
    tonnage plan ./my-model --gpu 2xH100 --users 64 --context 8k --kv fp8 --json
    """
    given = _with_workload(given)
    if _searches(given["gpu"]) or "any" in (given["weights"], given["kv"]):
        return _search(given)
    _one_card(given)
    from tonnage.memory.changes import changes
    from tonnage.memory.plan import plan
    from tonnage.report.plan_value import plan_value

    made = plan(request_of(given))
    alternatives = changes(made)
    if given["out"] is not None:
        write_beside(given["out"], msgspec.json.format(msgspec.json.encode(plan_value(made, alternatives)), indent=2) + b"\n")
    if given["as_json"]:
        click.echo(msgspec.json.encode(plan_value(made, alternatives)).decode())
        return 0 if made.fits else 1
    from tonnage.report.plan_text import plan_text

    click.echo(plan_text(made, alternatives, width=min(terminal_width(), 110), colour=in_colour()), nl=False)
    if given["explained"]:
        _explain(made)
    return 0 if made.fits else 1


def _explain(made: Any) -> None:
    from tonnage.memory.explain import explain
    from tonnage.report.terminal import wrapped

    click.echo("\nEvery formula:")
    for formula in explain(made):
        click.echo("\n".join(wrapped(formula, min(terminal_width(), 110), "  ", "      ")))


def _with_workload(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what they leave out taken from the workload file.

    Raises InputError: neither says how many users, or how long their sequences are.
    """
    filled = dict(given)
    if given["workload"] is not None:
        from tonnage.workload.file import read_workload

        said = read_workload(read_file(given["workload"]).decode("utf-8", "replace"), str(given["workload"]))
        for option in ("users", "context", "p99", "output", "shared_prefix", "prefix_share"):
            if not given[option] and getattr(said, option) is not None:
                filled[option] = getattr(said, option)
    for option, what in (("users", "how many users at once"), ("context", "tokens of one sequence, prompt and answer")):
        if filled[option] is None:
            raise InputError(f"--{option} is missing: {what}", hint="give it, or --workload FILE (--example-workload prints one)")
    return filled


PASSED_ON = (
    "output", "p99", "shared_prefix", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "utilization", "block_size", "mtp", "lora",
    "no_prefix_caching", "prefix_caching", "no_async_scheduling", "enforce_eager", "facts", "like",
)  # fmt: skip


def _also(given: dict[str, Any]) -> str:
    """Return the options of a search that the plan of one replica needs too."""
    from shlex import quote

    words = []
    for option in PASSED_ON:
        value = given[option]
        if value:
            words.append(f"--{option.replace('_', '-')}" + ("" if value is True else f" {quote(str(value))}"))
    words += [f"--prefix-share {given['prefix_share']:g}"] if given["prefix_share"] else []
    words += [f"--engine {given['engine']}"] if given["engine"] != "vllm" else []
    words += [f"--state-dtype {given['state_dtype']}"] if given["state_dtype"] != "auto" else []
    return "".join(f" {word}" for word in words)


SEARCH_ONLY = ("max_gpus", "budget", "spare", "growth", "prices", "in_stock")


def _one_card(given: dict[str, Any]) -> None:
    """Raise InputError where a plan of one card is given what only a search uses."""
    for option in SEARCH_ONLY:
        if given[option]:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} is for choosing cards, and --gpu names one", hint="leave --gpu out, or list several: --gpu l4,l40s")


def _searches(gpu: str) -> bool:
    """Return whether cards are to be chosen: none is named, or several are."""
    return gpu in ("", "all") or ("," in gpu and not gpu.lower().startswith("custom"))


def _search(given: dict[str, Any]) -> int:
    from shlex import quote

    from tonnage.capacity.choose import engine_advice, ranked, what_if
    from tonnage.capacity.inventory import inventory
    from tonnage.capacity.search import Limits, precisions, search
    from tonnage.memory.plan import plan
    from tonnage.report.options import options_text, options_value

    for name in ("tp", "count", "oracle", "pp", "dp", "dcp"):
        if given[name] not in (None, 1):
            raise InputError(f"--{name} belongs to one card", hint="name it with --gpu, or leave it out: the search tries every size")
    prices = number_table(given["prices"], "usd_per_hour") if given["prices"] else None
    stock = number_table(given["in_stock"], "in_stock") if given["in_stock"] else None
    shelf = inventory(given["gpu"], facts=given["facts"], prices=prices, source=str(given["prices"] or ""), stock=stock)
    if not shelf.cards:
        raise InputError("no card is left to choose from", hint="tonnage gpus lists them")
    anything = {option: "checkpoint" if option == "weights" else "auto" for option in ("weights", "kv") if given[option] == "any"}
    request = request_of({**given, **anything, "gpu": shelf.cards[0].slug})
    if given["budget"] is not None and not 0 < given["budget"] < 10**9:
        raise InputError(f"{given['budget']:g} is no sum of USD an hour", where="--budget")
    limits = Limits(given["max_gpus"], given["budget"], given["spare"])
    first = plan(request)
    order = ranked(option for one in precisions(request, given["weights"], given["kv"]) for option in search(one, shelf, limits))
    users = request.workload.users
    advice = engine_advice(users, request.settings.engine, bool(request.workload.shared_prefix_tokens))
    answers = what_if(order[0].option, shelf, limits, growth=given["growth"], today=date.today()) if order else []
    if given["out"] is not None or given["as_json"]:
        value = options_value(order, answers, advice)
        if given["out"] is not None:
            write_beside(given["out"], msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        if given["as_json"]:
            click.echo(msgspec.json.encode(value).decode())
            return 0 if order else 1
    if not order:
        if first.refusals and all(refusal.id in ("longer-than-the-model", "no-experts") for refusal in first.refusals):
            click.echo(f"Does not start: {first.refusals[0].reason}. {first.refusals[0].remedy[:1].upper()}{first.refusals[0].remedy[1:]}.")
            return 1
        unpriced = sum(shelf.cost(card) is None for card in shelf.cards) if limits.usd_per_hour is not None else 0
        if unpriced:
            click.echo(f"{unpriced} of {len(shelf.cards)} cards have no known price and are within no budget; --prices FILE names yours.")
        click.echo(f"Nothing holds {users:,} users within the limits: tried {len(shelf.cards)} cards. Raise --max-gpus or --budget, or "
                   "plan a smaller checkpoint, a shorter context, or an FP8 cache.")  # fmt: skip
        return 1
    best = order[0].option.plan.request.model
    asked = given["model"] if best.name == request.model.name else best.name
    click.echo(
        options_text(order, answers, advice, users, quote(asked), _also(given), width=min(terminal_width(), 110), colour=in_colour()),
        nl=False,
    )
    if given["explained"]:
        _explain(order[0].option.plan)
    return 0


def request_of(given: dict[str, Any]) -> Any:
    """Return the request that the options describe.

    Raises InputError: options that contradict each other.
    """
    from tonnage.facts.cards import find_card
    from tonnage.facts.catalog import find_model
    from tonnage.facts.engine import parse_engine, rules_for
    from tonnage.facts.overheads import overhead_constants
    from tonnage.memory.plan import Request
    from tonnage.settings import EngineSettings
    from tonnage.workload.spec import workload

    engine, release = parse_engine(given["engine"])
    choice = find_card(given["gpu"], given["facts"])
    hub = given["hub"] and not given["offline"]
    model = find_model(given["model"], facts_dir=given["facts"], like=given["like"], assume_full=bool(given["assume"]), hub=hub)
    if choice.note:
        model = msgspec.structs.replace(model, notes=(*model.notes, choice.note))
    settings = EngineSettings(
        engine=engine,
        release=release,
        parallel=_parallel(given, choice.count),
        weights=given["weights"],
        kv_cache_dtype=given["kv"],
        max_model_len=given["max_model_len"],
        max_num_seqs=given["max_num_seqs"],
        max_num_batched_tokens=given["max_num_batched_tokens"],
        gpu_memory_utilization=_utilization(given["utilization"]),
        enable_prefix_caching=_caching(given),
        block_size=given["block_size"],
        mamba_ssm_cache_dtype=_state_dtype(given["state_dtype"]),
        num_speculative_tokens=given["mtp"],
        async_scheduling=not given["no_async_scheduling"],
        enforce_eager=given["enforce_eager"],
        lora=_lora(given["lora"]),
    )
    load = workload(
        given["users"],
        given["context"],
        output=given["output"],
        p99=given["p99"],
        shared=given["shared_prefix"],
        share=given["prefix_share"],
    )
    if given["mtp"] and not model.shape.draft:
        raise InputError(f"{model.name} has no draft layers", where="--mtp", hint="leave --mtp out")
    row = None
    if given["oracle"] is not None:
        from tonnage.memory.oracle_row import read_row

        row = read_row(read_file(given["oracle"]), str(given["oracle"]))
    site = corrections(given["calibration"], none=given["no_calibration"])
    return Request(model, choice.card, settings, load, rules_for(engine, release), overhead_constants(), row, site)


def _parallel(given: dict[str, Any], named: int | None) -> Any:
    from tonnage.settings import Parallelism

    count, tp, pp, dp = given["count"] or named, given["tp"], given["pp"], given["dp"]
    if tp is None:
        tp = max(1, (count or 1) // (pp * dp))
    cards = tp * pp * dp
    if given["count"] and cards != given["count"]:
        raise InputError(f"--count {given['count']} is not --tp {tp} x --pp {pp} x --dp {dp} = {cards} cards", hint="give only one of them")
    return Parallelism(tp=tp, pp=pp, dp=dp, dcp=given["dcp"], expert=given["ep"])


def _utilization(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise InputError(f"{value:g} is not above 0 and at most 1", where="--utilization")
    return value


def _caching(given: dict[str, Any]) -> bool | None:
    if given["no_prefix_caching"] and given["prefix_caching"]:
        raise InputError("--prefix-caching and --no-prefix-caching contradict each other")
    return False if given["no_prefix_caching"] else (True if given["prefix_caching"] else None)


def _state_dtype(text: str) -> str:
    from tonnage.facts.dtype import torch_bits

    words = {"auto": "auto", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    name = words.get(text.lower(), text.lower())
    if name != "auto":
        torch_bits(name, where="--state-dtype")
    return name


def _lora(text: str) -> Any:
    from tonnage.settings import LoRA

    if not text:
        return LoRA()
    count, _, rank = text.partition(":")
    if not (count.isdigit() and rank.isdigit() and 0 < int(count) < 10_000 and 0 < int(rank) < 10_000):
        raise InputError(f"{text!r} is not N:RANK", where="--lora", hint="write it like 4:16")
    return LoRA(int(count), int(rank))
