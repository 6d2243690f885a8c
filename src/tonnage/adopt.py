"""What runs -> a plan: a log, a server's own pages, a command or a manifest, put together; what none of them says is named.

A log tells most (settings, weights, pool), a server its cache and release, a command its flags. What is told twice is taken from
the one that measured it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tonnage.diagnose.start import Start
from tonnage.diagnose.told import release_of, server_of
from tonnage.errors import InputError
from tonnage.facts.flags import release_tuple
from tonnage.facts.gpu import Card, custom_card
from tonnage.facts.overheads import overhead_constants
from tonnage.facts.site import Correction
from tonnage.lint.case import Case
from tonnage.lint.context import Context
from tonnage.lint.place import Place, Word
from tonnage.lint.server import Bundle, Flag, Server
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.measured import MeasuredPool, as_measured, too_large
from tonnage.memory.plan import MemoryPlan, Request, plan
from tonnage.memory.remarks import LOW_END
from tonnage.monitor.page import Page
from tonnage.settings import EngineSettings
from tonnage.units import GIB
from tonnage.workload.spec import Workload, workload


class Told(msgspec.Struct, frozen=True):
    """What one source tells: its name, the server as it describes it, what it measured, and whether it runs on the CPU."""

    source: str
    server: Server | None = None
    pool: MeasuredPool = MeasuredPool()
    model: str = ""
    alias: str = ""
    release: tuple[int, int] | None = None
    on_cpu: bool = False
    card_bytes: int = 0
    cache_config: dict[str, str] = {}
    max_model_len: int = 0


class Adopted(msgspec.Struct, frozen=True):
    """A plan of what runs, the sources it rests on, and what none of them says."""

    plan: MemoryPlan
    sources: tuple[str, ...]
    unknown: tuple[str, ...]
    measured: MeasuredPool


def told_by_log(start: Start, name: str) -> Told:
    """Return what a start in a log tells."""
    figures = start.figures
    cpu = start.device == "CPU" or start.config.get("device_config") == "cpu"
    pool = MeasuredPool(
        int(figures.get("pool_bytes", 0)),
        int(figures.get("blocks", 0)),
        int(figures.get("pool_tokens", 0)),
        int(figures.get("weights_bytes", 0)),
    )
    return Told(name, server_of(start), pool, release=release_of(start), on_cpu=cpu, max_model_len=int(figures.get("max_model_len", 0)))


def told_by_command(server: Server, name: str) -> Told:
    """Return what a command or a manifest tells."""
    return Told(name, server, release=server.release)


def told_by_server(page: Page, models: Any, version: Any, name: str) -> Told:
    """Return what a server's own pages tell: /metrics, /v1/models, /version."""
    engine = page.engines[0] if page.engines else None
    config = engine.cache_config if engine is not None else {}
    blocks = config.get("num_gpu_blocks", "")
    tokens = engine.pool_tokens if engine is not None else None
    pool = MeasuredPool(0, int(blocks) if blocks.isdigit() else 0, tokens or 0)
    listed = models.get("data") if isinstance(models, dict) else None
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    text = str(version.get("version", "")) if isinstance(version, dict) else ""
    release = (
        release_tuple(text) if text[:1].isdigit() and text.count(".") >= 1 and text.split(".")[1][:2].strip("abcdrv").isdigit() else None
    )
    longest = first.get("max_model_len")
    return Told(
        name,
        None,
        pool,
        str(first.get("root") or ""),
        str(first.get("id") or (engine.model if engine is not None else "")),
        release,
        cache_config=config,
        max_model_len=longest if isinstance(longest, int) and longest > 0 else 0,
    )


def adopted(told: list[Told], context: Context, site: tuple[Correction, ...] = ()) -> Adopted:
    """Return the plan of what the sources tell together.

    Raises InputError: the model or the card is not known from any of them, or the settings cannot be.
    """
    if not context.model:
        _agree(told)
    server, pool = _server(told), _pool(told)
    case = Case(server, Bundle(), context)
    if case.model is None:
        raise InputError(
            f"no source names a model that we know{f' ({case.model_text})' if case.model_text else ''}", where="adopt",
            hint="name it: --model NAME, or a folder with its config.json",
        )  # fmt: skip
    on_cpu = any(one.on_cpu for one in told)
    card = case.card or (_machine(told, pool) if on_cpu else None)
    if card is None:
        raise InputError("no source names the card it runs on", where="adopt", hint="name it: --gpu CARD")
    if case.asked is None:
        raise InputError("the settings cannot be read", where="adopt", hint="tonnage lint says which flag is wrong")
    if not on_cpu and pool.weights_bytes + pool.bytes > card.memory.best:
        raise InputError(too_large(pool.weights_bytes, pool.bytes, card), where="adopt", hint="is --gpu right?")
    asked = _asked(case.asked, told, on_cpu=on_cpu)
    host = Host(card.memory.best, card.compute_capability, f"{card.name} {card.slug}")
    settings = resolved(asked, case.model.shape, host, case.rules)
    load = _load(context, settings, pool)
    made = as_measured(plan(Request(case.model, card, settings, load, case.rules, overhead_constants(), None, site)), pool)
    if pool.bytes or pool.blocks or pool.tokens:
        made = msgspec.structs.replace(made, warnings=tuple(text for text in made.warnings if not text.startswith(LOW_END)))
    return Adopted(made, tuple(one.source for one in told), tuple(_unknown(told, context, pool)), pool)


def _agree(told: list[Told]) -> None:
    """Raise InputError where two sources name different models."""
    seen: dict[str, str] = {}
    for one in told:
        server = one.server or _server([one])
        model = Case(server, Bundle(), Context()).model
        if model is not None:
            seen.setdefault(model.name, one.source)
    if len(seen) > 1:
        (first, here), (second, there) = list(seen.items())[:2]
        raise InputError(
            f"{here} runs {first}, {there} runs {second}", where="adopt", hint="give the sources of one server; or say which: --model NAME"
        )


def _server(told: list[Told]) -> Server:
    """Return one server: flags of a command first, then of a log, which tells what the engine understood."""
    servers = sorted((one.server for one in told if one.server is not None), key=lambda server: server.name == "log")
    place = Place("adopt", 1, 1)
    flags: list[Flag] = [flag for server in servers for flag in server.flags]
    named = next((one.model for one in told if one.model), "")
    model = next((server.model for server in reversed(servers) if server.model is not None), Word(named, place) if named else None)
    engine = servers[-1].engine if servers else "vllm"
    release = next((one.release for one in told if one.release is not None), None)
    release = release or next((server.release for server in servers if server.release is not None), None)
    environment = {name: word for server in servers for name, word in server.environment.items()}
    box = next((server.box for server in servers if server.box is not None), None)
    return Server("command", "adopted", place, engine, model, tuple(flags), environment, release, box=box)


def _pool(told: list[Told]) -> MeasuredPool:
    """Return what is measured of the cache, each figure from the source that has it."""

    def first(name: str) -> int:
        return next((value for one in told if (value := getattr(one.pool, name))), 0)

    return MeasuredPool(first("bytes"), first("blocks"), first("tokens"), first("weights_bytes"))


def _asked(asked: EngineSettings, told: list[Told], *, on_cpu: bool) -> EngineSettings:
    """Return the settings with what only the running engine's own pages tell."""
    fields: dict[str, Any] = {"device": "cpu"} if on_cpu else {}
    config = next((one.cache_config for one in told if one.cache_config), {})
    size, caching, share = (config.get(name, "") for name in ("block_size", "enable_prefix_caching", "gpu_memory_utilization"))
    if asked.block_size is None and size.isdigit() and on_cpu:
        fields["block_size"] = int(size)
    if asked.enable_prefix_caching is None and caching in ("True", "False"):
        fields["enable_prefix_caching"] = caching == "True"
    if asked.gpu_memory_utilization is None and share.replace(".", "", 1).isdigit() and 0 < float(share) <= 1:
        fields["gpu_memory_utilization"] = float(share)
    longest = next((one.max_model_len for one in told if one.max_model_len), 0)
    if asked.max_model_len is None and longest:
        fields["max_model_len"] = longest
    return msgspec.structs.replace(asked, **fields)


def _machine(told: list[Told], pool: MeasuredPool) -> Card:
    """Return the machine of a CPU engine as a card: as large as what it was seen to hold, for nothing else is known of it."""
    held = max([one.card_bytes for one in told] + [pool.bytes + pool.weights_bytes, GIB])
    card = custom_card(f'"{held // 2**20 + 1} MiB",50GB/s')
    return msgspec.structs.replace(card, slug="cpu", name="CPU", vendor="CPU")


def _load(context: Context, settings: EngineSettings, pool: MeasuredPool) -> Workload:
    """Return the workload: what was said, else as many sequences of the longest length as the pool holds."""
    longest = settings.max_model_len or 1
    tokens = min(context.context_tokens or longest, longest)
    users = context.users or max(1, min(pool.tokens // tokens if pool.tokens else 1, settings.max_num_seqs or 1))
    return workload(users, tokens, p99=min(context.p99_tokens, longest), shared=min(context.shared_prefix_tokens or 0, max(0, tokens - 1)))


def _unknown(told: list[Told], context: Context, pool: MeasuredPool) -> Iterator[str]:
    if not pool.bytes and not pool.blocks and not pool.tokens:
        yield "the pool: no log, no metrics page (planned instead)"
    elif not pool.weights_bytes:
        yield "the weights on a card: only a start-up log says (planned instead)"
    if not context.users or not context.context_tokens:
        yield "users and context: give --users and --context (taken: as many as the pool holds at the length limit)"
    if all(one.release is None for one in told) and context.release is None:
        yield "the engine's release (taken: the newest known)"
    if all(one.server is None for one in told):
        yield "the command: flags beside the cache's are taken for defaults; give its log or manifest too"
