"""From one plan to the next behind one name: both run, the gateway switches, and the way back stays open.

Clients ask for a stable name (the alias without its version); each engine serves its own versioned alias. The switch is a
line in the gateway, so that it is as quick back as forth.
"""

from __future__ import annotations

import re

from tonnage.render.choices import Site
from tonnage.render.plan_file import PlanFile
from tonnage.render.startup import startup_s


def next_alias(old: str) -> str:
    """Return the alias of the next version.

    >>> next_alias("qwen3-32b-v1"), next_alias("qwen3-32b-2026-11")
    ('qwen3-32b-v2', 'qwen3-32b-2026-11-v2')
    """
    found = re.fullmatch(r"(.*-v)(\d+)", old)
    return f"{found[1]}{int(found[2]) + 1}" if found else f"{old}-v2"


def stable_name(alias: str) -> str:
    """Return the name that clients ask for: the alias without its version.

    >>> stable_name("qwen3-32b-v2")
    'qwen3-32b'
    """
    return re.sub(r"-v\d+$", "", alias)


def cards_needed(old: PlanFile, new: PlanFile) -> int:
    """Return the cards while both versions run."""
    return old.settings.parallel.cards * old.replicas + new.settings.parallel.cards * new.replicas


def rollout_text(old: PlanFile, new: PlanFile, before: Site, after: Site, files: tuple[str, str]) -> str:
    """Return the steps: start, prove, switch, wait, stop; and the way back from each."""
    name, wait = stable_name(after.alias), startup_s(new)
    held, served = new.users.safe * new.replicas, old.workload.users * old.replicas
    longest = (old.settings.max_model_len or 0, new.settings.max_model_len or 0)
    mind = [f"- the new version safely holds {held:,} users; {served:,} are served now"] if held < served else []
    if old.model.name != new.model.name:
        mind.append(f"- the model changes, from {old.model.name} to {new.model.name}: clients that ask for {name} get another one")
    mind += [f"- requests above {longest[1]:,} tokens were served and will be refused"] if longest[0] > longest[1] else []
    lines = [
        f"# {before.alias} -> {after.alias}, behind the name {name}",
        "",
        f"Old: {_told(old, before)}",
        f"New: {_told(new, after)}",
        f"Both run at once for a while: {cards_needed(old, new)} cards.",
        *(["", "Mind:", "", *mind] if mind else []),
        "",
        f"1. **Start the new one beside the old one**: `{files[1]}`. It serves `{after.alias}` on port {after.port};",
        f"   nobody asks it yet. Allow {wait} s. Way back: stop it. Nothing else has changed.",
        f"2. **Prove it**: `curl -s http://127.0.0.1:{after.port}/v1/models` names `{after.alias}`; its log prints a pool",
        "   within the plan's band; your evaluations pass on it (a changed precision is a changed model).",
        f"3. **Send a part**: in the gateway give `{name}` two backends, `{before.alias}` at 95 and `{after.alias}` at 5 of 100;",
        f"   look at errors, TTFT and TPOT for an hour at peak. Way back: weight 100 on `{before.alias}`.",
        f"4. **Switch**: weight 100 on `{after.alias}`. Running streams of `{before.alias}` end by themselves; do not stop it yet.",
        f"   Way back: weight 100 on `{before.alias}`, at once, since it still runs.",
        f"5. **Keep the old one for a day**, then stop it: `{files[0]}`. Its plan and its weights stay until the next rollout.",
        "   Way back: start it again from its plan, then step 4 the other way round.",
        "",
        "```yaml",
        "# the gateway's route, as values: one stable name, two versioned backends",
        f"route: {name}",
        "backends:",
        f"  - {{alias: {before.alias}, address: '{before.host}:{before.port}', weight: 100}}",
        f"  - {{alias: {after.alias}, address: '{after.host}:{after.port}', weight: 0}}",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _told(made: PlanFile, site: Site) -> str:
    cards = f"{made.replicas} x {made.settings.parallel.cards} {made.card.name}"
    return f"{made.model.name} on {cards}, {made.settings.release_name}, port {site.port}."
