"""Our own plan.json: the command that it would render, its knee's measurement, its evaluation."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.lint.context import Context
from tonnage.lint.place import Place, Source, Word
from tonnage.lint.server import Flag, Measured, Server
from tonnage.render.plan_file import PlanFile, read_plan
from tonnage.settings.argv import settings_flags
from tonnage.settings.sglang import sglang_flags


def is_plan(text: str) -> bool:
    """Return whether a text is a plan or a search that was kept."""
    return text.lstrip()[:1] == "{" and '"tonnage.' in text[:400]


def read_planned(source: Source) -> list[Server]:
    """Return the server that a plan describes.

    Raises InputError: no whole plan.
    """
    data = source.text.encode()
    made = read_plan(data, source.file)
    value: Any = msgspec.json.decode(data)
    value = value.get("chosen") or value
    given = settings_flags(made.settings) if made.settings.engine == "vllm" else sglang_flags(made.settings)
    place = _place(source, "settings")
    flags = tuple(Flag(name, text, name, place) for name, text in given) if made.settings.engine in ("vllm", "sglang") else ()
    served = Word(made.model.path or f"/models/{made.model.name}", _place(source, "model"))
    extra = (Flag("--host", "127.0.0.1", "--host", place), Flag("--served-model-name", f"{made.model.name}-v1", "", place))
    return [
        Server(
            "plan", made.model.name, source.place(0), made.settings.engine, served, (*flags, *extra), {}, made.settings.release,
            measured=_measured(source, value), evaluated=_evaluated(value, made.settings.kv_cache_dtype, made.settings.release),
            around=_around(made),
        )
    ]  # fmt: skip


def _around(made: PlanFile) -> Context:
    load, slug = made.workload, made.card.slug
    return Context(
        model="" if made.model.path else made.model.name, gpu="" if slug in ("", "cpu", "custom") else slug, users=load.users,
        context_tokens=load.context_tokens, p99_tokens=load.p99_tokens, shared_prefix_tokens=load.shared_prefix_tokens or None,
    )  # fmt: skip


def _place(source: Source, key: str) -> Place:
    return source.place(max(0, source.text.find(f'"{key}"')))


def _measured(source: Source, value: Any) -> Measured | None:
    """Return what the knee in a plan was measured on."""
    knee = value.get("measured") if isinstance(value, dict) else None
    if not isinstance(knee, dict):
        return None
    release, model, precision = (str(knee.get(key, "")) for key in ("release", "model", "precision"))
    return Measured(release, model, precision, _place(source, "measured"))


def _evaluated(value: Any, cache: str, release: tuple[int, int]) -> bool:
    """Return whether the plan records an evaluation of this precision on this release that passed."""
    entries = value.get("evaluations") if isinstance(value, dict) else None
    wanted = f"{release[0]}.{release[1]}"
    return any(
        isinstance(entry, dict)
        and entry.get("kv_cache_dtype") == cache
        and str(entry.get("release", "")).startswith(wanted)
        and entry.get("passed") is True
        for entry in (entries if isinstance(entries, list) else [])
    )
