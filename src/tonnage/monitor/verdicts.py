"""What a window says of an engine: verdicts with evidence, cause and remedy. What is missing is said, and never taken for well.

preempting     the preemption counter grew in the window (never its lifetime total)
cache-bound    the cache stands above 0.90 and requests wait for it, or above 0.97
queue-bound    time in the queue exceeds time in the engine, with cache to spare
compute-bound  nobody waits, cache to spare, and tokens or first tokens are slower than the target
hung           requests run and no step was made
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.lint.context import Context
from tonnage.monitor.page import Page
from tonnage.monitor.window import Window
from tonnage.units import counted

CACHE_HIGH, CACHE_FULL, FILLED = 0.90, 0.97, 0.75
LEAST_QUERIES = 2_000
"""Tokens looked up below which a hit rate says nothing."""
FAR_BELOW = 0.25
UNEVEN = 3.0


class Verdict(msgspec.Struct, frozen=True):
    """One verdict: on which engine, the figures it rests on as (name, text), why, what to do, and its numbers by name."""

    id: str
    engine: str
    evidence: tuple[tuple[str, str], ...]
    why: str
    fix: str
    numbers: dict[str, float] = {}


NEEDED = ("running", "waiting", "cache")
NEEDED_OVER_TIME = ("preemptions", "generation_tokens", "queue_s", "inference_s")
"""Figures that verdicts on a window need; engines without inference time of their own name are let off."""


def verdicts(windows: list[Window], context: Context) -> list[Verdict]:
    """Return the verdicts on all engines of a page; none where one page shows nothing wrong, which is not the same as healthy."""
    found: list[Verdict] = []
    for window in windows:
        found += _of_engine(window, context)
    if len(windows) > 1:
        hung = {verdict.engine for verdict in found if verdict.id == "hung"}
        found += _uneven([window for window in windows if window.engine.label not in hung])
    if any(verdict.id not in ("healthy", "idle") for verdict in found):
        return [verdict for verdict in found if verdict.id != "healthy"]
    return found


def gone(before: Page | None, later: Page) -> list[Verdict]:
    """Return a verdict for each engine of the first page that the second does not show."""
    labels = [engine.label for engine in before.engines if later.engine(engine.label) is None] if before is not None else []
    return [
        Verdict(
            "metric-missing", label, (("engine", f"{label} is on the first page only"),),
            f"engine {label} is gone from the page: nothing can be said of it",
            "see whether it runs (its pod, its log), and scrape every engine",
        )
        for label in labels
    ]  # fmt: skip


def nothing_of_an_engine(source: str) -> Verdict:
    """Return the verdict on a page without any series of an engine."""
    return Verdict(
        "metric-missing",
        "",
        (),
        f"the page holds no series of an engine{f' ({source})' if source else ''}: nothing can be said of its cache, queue or steps",
        "scrape the engine itself, not a front end, without --disable-log-stats (SGLang: with --enable-metrics)",
    )


def _of_engine(window: Window, context: Context) -> Iterator[Verdict]:
    label = window.engine.label
    missing = [name for name in NEEDED if window.now(name) is None]
    if window.before is not None:
        needed = ("generation_tokens",) if window.engine.source == "sglang" else NEEDED_OVER_TIME
        missing += [name for name in needed if window.delta(name) is None]
    if missing:
        yield Verdict(
            "metric-missing", label, tuple((name, "absent or NaN") for name in missing),
            f"{', '.join(SAID[name] for name in missing)} cannot be seen, so what depends on it is not judged",
            "scrape the engine itself without --disable-log-stats; check the names of its release",
        )  # fmt: skip
    if window.restarted:
        yield Verdict(
            "engine-restarted", label, (("process", "counters began again"),), "the engine started again between the pages",
            "look for why in its log: tonnage diagnose LOG",
        )  # fmt: skip
    wrong = list(_wrong(window, context))
    yield from wrong
    if missing or any(verdict.id != "prefix-cache-ineffective" for verdict in wrong):
        return
    running, waiting = window.now("running") or 0, window.now("waiting") or 0
    if not running and not waiting and not window.delta("generation_tokens"):
        yield Verdict(
            "idle", label, _gauges(window), "nothing runs and nothing waits", "nothing to do; fewer replicas would do at this load"
        )
    elif window.before is not None and not window.restarted and not wrong and not _waits(window) and not _misses(window, context):
        yield Verdict(
            "healthy",
            label,
            _gauges(window),
            "requests move, the cache has room, nobody waits for long",
            "nothing to change",
            _numbers(window),
        )


SAID = {
    "running": "running requests", "waiting": "waiting requests", "cache": "cache usage", "preemptions": "preemptions",
    "generation_tokens": "generated tokens", "queue_s": "queue time", "inference_s": "inference time",
}  # fmt: skip


def _waits(window: Window) -> bool:
    """Return whether requests wait and none of them moves: nothing finished, nothing was generated."""
    return bool(window.now("waiting")) and not window.delta("generation_tokens") and not window.delta("steps")


def _misses(window: Window, context: Context) -> bool:
    """Return whether tokens or first tokens come later than their target."""
    token, first = window.mean("itl_s", "itl_count"), window.mean("ttft_s", "ttft_count")
    return bool((context.tpot_s and token and token > context.tpot_s) or (context.ttft_s and first and first > context.ttft_s))


def _wrong(window: Window, context: Context) -> Iterator[Verdict]:
    hung = _hung(window)
    if hung is not None:
        yield hung
        return
    preempting, cache = _preempting(window), _cache_bound(window, context)
    yield from (verdict for verdict in (preempting, cache) if verdict is not None)
    queue = _queue_bound(window, context) if cache is None else None
    if queue is not None:
        yield queue
    compute = _compute_bound(window, context) if cache is None and queue is None and preempting is None else None
    if compute is not None:
        yield compute
    prefix = _prefix(window, context)
    if prefix is not None:
        yield prefix


def _hung(window: Window) -> Verdict | None:
    old = window.before
    before = ((old.get("running") or 0) + (old.get("waiting") or 0)) if old is not None else 0
    if not before or not (window.now("running") or window.now("waiting")) or window.restarted:
        return None
    moved = [window.delta(name) for name in ("steps", "generation_tokens", "prompt_tokens")]
    known = [value for value in moved if value is not None]
    if not known or any(known):
        return None
    return Verdict(
        "hung", window.engine.label, (*_gauges(window), ("steps", f"+0 in {window.seconds:g} s")),
        f"{counted(int(before), 'request')} {'run' if window.now('running') else 'wait'}, and in {window.seconds:g} s no step was made "
        "and no token came; "
        "/health may still answer 200",
        "take a stack dump (py-spy), then restart the engine; look for a collective or a lock, and do not judge by /health",
    )  # fmt: skip


def _preempting(window: Window) -> Verdict | None:
    grew = window.delta("preemptions")
    if not grew or window.before is None:
        return None
    rate = grew / window.seconds if window.seconds else 0.0
    return Verdict(
        "preempting", window.engine.label, (("preemptions", f"+{grew:,.0f} in {window.seconds:g} s"), *_gauges(window)),
        f"{grew:,.0f} requests lost their blocks in {window.seconds:g} s and are computed again: latency turns spiky for everyone",
        "lower --max-num-seqs to what the pool holds, or add cache: an FP8 cache after an evaluation, more cards or replicas",
        {"preemptions_per_s": round(rate, 4), "preemptions": grew},
    )  # fmt: skip


def _cache_bound(window: Window, context: Context) -> Verdict | None:
    cache, waiting = window.now("cache"), window.now("waiting") or 0
    if cache is None or cache < CACHE_HIGH or not (waiting or window.delta("preemptions") or cache >= CACHE_FULL):
        return None
    pool = window.engine.pool_tokens
    holds = pool // context.context_tokens if pool and context.context_tokens else 0
    size = (
        f"; the pool of {pool:,} tokens holds about {holds} at {context.context_tokens:,}"
        if holds
        else (f"; the pool has {pool:,} tokens" if pool else "")
    )
    limit = f"--max-num-seqs {holds} so that they queue and do not thrash, or more cache" if holds else "more cache"
    return Verdict(
        "cache-bound", window.engine.label, _gauges(window),
        f"the cache stands at {cache:.1%} with {waiting:,.0f} waiting{size}: what waits, waits for blocks",
        f"{limit}: an FP8 cache after an evaluation, more cards a replica, or more replicas. Faster cards would not help",
        _numbers(window),
    )  # fmt: skip


def _queue_bound(window: Window, context: Context) -> Verdict | None:
    share, waiting, cache = queue_share(window), window.now("waiting") or 0, window.now("cache")
    running = window.now("running") or 0
    if cache is None:
        return None
    if window.before is not None:
        if (share is None or share <= 0.5) and not _queue_misses(window, context):
            return None
    elif not (waiting > running and cache < 0.8):
        return None
    limit = context.max_num_seqs
    flag = f"; max-num-seqs is {limit}" if limit else ""
    room = int(running * CACHE_HIGH / cache) if cache > 0.01 and running else 0
    first = f"raise --max-num-seqs first (the cache has room for about {room:,})" if room > running * 1.2 else "add replicas"
    spent = f"{share:.0%} of the time is the queue" if share is not None else f"{waiting:,.0f} wait for {running:,.0f} that run"
    return Verdict(
        "queue-bound", window.engine.label, (*_gauges(window), ("queue_s", spent)),
        f"{running:,.0f} run and {waiting:,.0f} wait while the cache is at {cache:.0%}{flag}: {spent}",
        f"{first}; only then count replicas. A faster card would not help",
        _numbers(window),
    )  # fmt: skip


def _queue_misses(window: Window, context: Context) -> bool:
    """Return whether first tokens miss their target, and most of their time is the queue."""
    queue, first = window.mean("queue_s", "queue_count"), window.mean("ttft_s", "ttft_count")
    return bool(context.ttft_s and first and first > context.ttft_s and queue and queue > first / 2)


def _compute_bound(window: Window, context: Context) -> Verdict | None:
    cache = window.now("cache")
    if window.before is None and (window.now("waiting") or 0) > (window.now("running") or 0) * 0.1:
        return None
    token, first = window.mean("itl_s", "itl_count"), window.mean("ttft_s", "ttft_count")
    slow_token = bool(context.tpot_s and token and token > context.tpot_s)
    slow_first = bool(context.ttft_s and first and first > context.ttft_s)
    if not slow_token and not slow_first:
        return None
    what = (
        f"a token takes {(token or 0) * 1000:.0f} ms, the target is {context.tpot_s * 1000:.0f}"
        if slow_token
        else (f"the first token takes {first or 0:.2f} s, the target is {context.ttft_s:g}")
    )
    kind = "decode" if slow_token else "prefill"
    return Verdict(
        "compute-bound", window.engine.label, (*_gauges(window), ("itl_s" if slow_token else "ttft_s", what)),
        f"nobody waits and the cache is at {cache or 0:.0%}, yet {what}: {kind} is what takes the time",
        "faster cards, a quantised or smaller model, or fewer sequences a replica; more replicas only as far as they make batches smaller",
        _numbers(window),
    )  # fmt: skip


def _prefix(window: Window, context: Context) -> Verdict | None:
    shared = context.shared_prefix_tokens or 0
    rate, looked = hit_rate(window), window.delta("prefix_queries") if window.before is not None else window.now("prefix_queries")
    if not shared or rate is None or (looked or 0) < LEAST_QUERIES or window.engine.cache_config.get("enable_prefix_caching") == "False":
        return None
    expected = shared / context.context_tokens if context.context_tokens > shared else 0.2
    if rate >= FAR_BELOW * expected:
        return None
    block = window.engine.block_tokens
    long = block is not None and block > shared
    why = (
        f"the {shared:,} shared tokens do not fill a block of {block:,}, and only whole blocks are found again"
        if long
        else "what comes first differs (a date, a name, an id), or blocks are evicted before they are used again"
    )
    fix = (
        "make the shared prefix longer than a block, or use --no-enable-prefix-caching and win its state blocks"
        if long
        else ("put what changes behind what is shared, give the pool room, or route equal prefixes to the same replica")
    )
    return Verdict(
        "prefix-cache-ineffective", window.engine.label, (("prefix_hits", f"{rate:.1%} of {looked:,.0f} tokens"),),
        f"{rate:.1%} of {looked:,.0f} prompt tokens are found although {shared:,} are shared: {why}", fix, _numbers(window),
    )  # fmt: skip


def _uneven(windows: list[Window]) -> Iterator[Verdict]:
    if len(windows) < 2:
        return
    loads = [(window.now("running") or 0) + (window.now("waiting") or 0) for window in windows]
    busiest, least = max(loads), min(loads)
    at, other = windows[loads.index(busiest)], windows[loads.index(least)]
    far = busiest > UNEVEN * max(1.0, least) and (at.now("waiting") or (at.now("cache") or 0) >= FILLED)
    queues = (at.now("waiting") or 0) >= 4 and not other.now("waiting") and busiest > 1.5 * least and (other.now("cache") or 0) < CACHE_HIGH
    if busiest >= 8 and (far or queues):
        yield Verdict(
            "load-uneven", at.engine.label,
            tuple((f"engine {window.engine.label}", f"{load:,.0f} requests") for window, load in zip(windows, loads, strict=True)),
            f"engine {at.engine.label} has {busiest:,.0f} requests while another has {least:,.0f}",
            "balance by running requests (least request), not round robin; with prefix routing bound its skew",
        )  # fmt: skip


def queue_share(window: Window) -> float | None:
    """Return queue time / (queue + inference) of what finished in the window; of the lifetime where there is one page."""
    queue = window.delta("queue_s") if window.before is not None else window.now("queue_s")
    inference = window.delta("inference_s") if window.before is not None else window.now("inference_s")
    total = (queue or 0) + (inference or 0)
    return queue / total if queue is not None and inference is not None and total > 0 else None


def hit_rate(window: Window) -> float | None:
    """Return the share of looked-up prompt tokens that the cache held, in the window, else over the lifetime."""
    hits = window.delta("prefix_hits") if window.before is not None else window.now("prefix_hits")
    looked = window.delta("prefix_queries") if window.before is not None else window.now("prefix_queries")
    return hits / looked if hits is not None and looked else None


def _gauges(window: Window) -> tuple[tuple[str, str], ...]:
    texts = (("running", "{:,.0f} running"), ("waiting", "{:,.0f} waiting"), ("cache", "cache {:.1%}"))
    return tuple((name, text.format(value)) for name, text in texts if (value := window.now(name)) is not None)


def _numbers(window: Window) -> dict[str, float]:
    return figures([window])


def figures(windows: list[Window]) -> dict[str, float]:
    """Return the figures of all engines together, by the names that checks use."""
    found: dict[str, float] = {}
    if not windows:
        return found
    caches = [value for window in windows if (value := window.now("cache")) is not None]
    if caches:
        found["kv_usage"] = max(caches)
    for name in ("running", "waiting"):
        values = [value for window in windows if (value := window.now(name)) is not None]
        if values:
            found[name] = sum(values)
    pools = [pool for window in windows if (pool := window.engine.pool_tokens) is not None]
    if pools:
        found["pool_tokens"] = sum(pools)
    one = windows[0].before is None

    def total(name: str) -> float | None:
        values = [window.now(name) if one else window.delta(name) for window in windows]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    queue, inference = total("queue_s"), total("inference_s")
    if queue is not None and inference is not None and queue + inference > 0:
        found["queue_share"] = round(queue / (queue + inference), 6)
    spent, tokens = total("itl_s"), total("itl_count")
    if spent is not None and tokens:
        found["itl_ms"] = round(1000 * spent / tokens, 3)
    hits, looked = total("prefix_hits"), total("prefix_queries")
    if hits is not None and looked:
        found["prefix_hit_rate"] = round(hits / looked, 6)
    if not one:
        lost = total("preemptions")
        if lost is not None and windows[0].seconds:
            found["preemptions"] = lost
            found["preemptions_per_s"] = round(lost / windows[0].seconds, 6)
    return found
