"""A plan as a shell command, wrapped, with a comment for every flag."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tonnage.render.choices import Choice, Site, choices, sglang_choices
from tonnage.render.plan_file import PlanFile
from tonnage.units import counted

PROGRAMS = {"vllm": ("vllm", "serve"), "sglang": ("python3", "-m", "sglang.launch_server", "--model-path")}


def words(made: PlanFile, site: Site, engine: str = "vllm") -> list[str]:
    """Return the words of the command."""
    return [*PROGRAMS[engine], site.model, *(word for choice in chosen(made, site, engine) for word in pair(choice))]


def chosen(made: PlanFile, site: Site, engine: str = "vllm") -> list[Choice]:
    """Return the flags of an engine, with their reasons."""
    return list(sglang_choices(made, site)) if engine == "sglang" else choices(made, site)


def pair(choice: Choice) -> list[str]:
    """Return a flag and its value as words."""
    return [choice.flag] if choice.value is None else [choice.flag, choice.value]


def command_text(made: PlanFile, site: Site, engine: str = "vllm") -> str:
    """Return the command with its reasons above it, as a shell script without a first line."""
    flags = chosen(made, site, engine)
    offline = ["export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1"] if engine == "vllm" else []
    start = " ".join([*PROGRAMS[engine], shlex.quote(site.model)])
    body = [start, *("  " + " ".join(shlex.quote(word) for word in pair(choice)) for choice in flags)]
    return "\n".join([*heading(made, engine), *comments(flags), *offline, " \\\n".join(body), ""])


def heading(made: PlanFile, engine: str) -> list[str]:
    """Return the first lines of any rendering, as comments."""
    name = made.settings.release_name if engine == "vllm" else "SGLang 0.5"
    cards = made.settings.parallel.cards
    users, tokens = counted(made.workload.users, "user"), counted(made.workload.context_tokens, "token")
    replicas = f", one of {made.replicas} replicas" if made.replicas > 1 else ""
    return [
        f"# {made.model.name} on {cards} x {made.card.name}, {name}{replicas}: {users} at {tokens} (safe {made.users.safe:,})",
        *(f"# warning: {text}" for text in made.warnings),
        *(["# does not fit as planned: it queues or preempts"] if not made.fits else []),
    ]


def comments(flags: Iterable[Choice]) -> list[str]:
    """Return a comment for each flag: why, and how sure where that is not plain."""
    rows = list(flags)
    wide = max(len(choice.flag) for choice in rows)
    sure = {"exact": "", "read": ""}
    return [f"#   {choice.flag.ljust(wide)}  {choice.why}{sure.get(choice.confidence, f' ({choice.confidence})')}" for choice in rows]
