"""A plan for people: the verdict first, the arithmetic below, the next step last. 80 columns are enough."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.memory.changes import Change
from tonnage.memory.plan import MemoryPlan
from tonnage.report.plan_value import rules_of_thumb
from tonnage.report.terminal import bar, paint, wrapped
from tonnage.units import counted, gib, size

LABEL, FIGURE = 15, 6


def plan_text(made: MemoryPlan, alternatives: tuple[Change, ...], *, width: int = 80, colour: bool = False) -> str:
    """Return the screen of a plan."""
    sections = [
        [*_verdict(made, width, colour), *_what(made, width)],
        _bar(made, width, colour),
        list(_lines(made, width, colour)),
        list(_one_user(made, width)),
        list(_why_not(made, width)),
        list(_thumb(made, width)),
        list(_better(made, alternatives, width)),
        [line for text in made.warnings for line in _flagged("warning", text, width, colour)],
        [line for text in made.notes for line in _flagged("note", text, width, colour)],
        wrapped(_next(made, alternatives), width, "", "  "),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _cards(made: MemoryPlan) -> str:
    count, name = made.settings.parallel.cards, made.request.card.name
    words = {1: "one", 2: "two", 3: "three", 4: "four"}
    return f"{words.get(count, str(count))} {name}"


def _verdict(made: MemoryPlan, width: int, colour: bool) -> list[str]:
    workload, users = made.request.workload, made.users
    asked = f"{counted(workload.users, 'user')} at {counted(workload.context_tokens, 'token')} on {_cards(made)}"
    if made.fits:
        word, style = ("Fits", "green") if users.safe >= workload.users else ("Fits by the best estimate only", "yellow")
        head = paint(word, style, colour) + f": {asked}. It admits {users.admitted:,} (safe {users.safe:,})."
        return wrapped(head, width + (9 if colour else 0))
    if made.refusals:
        first = made.refusals[0]
        text = f"{first.reason}. {first.remedy[:1].upper()}{first.remedy[1:]}." if first.remedy else f"{first.reason}."
        return wrapped(paint("Does not start", "red", colour) + f": {text}", width + (9 if colour else 0))
    lacking = (
        f"The weights and the overhead leave no pool: {size(-made.pool.bytes)} too much"
        if made.pool.bytes <= 0
        else f"{size(made.shortfall_bytes)} of cache are missing" + (" on each card" if made.settings.parallel.cards > 1 else "")
    )
    return wrapped(
        paint("Does not fit", "red", colour) + f": {asked}. {lacking}. It admits {users.admitted:,} (safe {users.safe:,}).",
        width + (9 if colour else 0),
    )


def _what(made: MemoryPlan, width: int) -> list[str]:
    request, shape = made.request, made.request.model.shape
    assumed = " (assumed)" if shape.quantisation.assumed else ""
    cache = {"bfloat16": "BF16", "float16": "FP16"}.get(
        made.cache_dtype, made.cache_dtype.upper() if made.cache_dtype.startswith("fp8") else made.cache_dtype
    )
    parallel = made.settings.parallel
    spread = "".join(
        f", {word} {count}"
        for word, count in (("TP", parallel.tp), ("PP", parallel.pp), ("DP", parallel.dp), ("DCP", parallel.dcp))
        if count > 1
    )
    spread += ", expert parallel" if parallel.expert else ""
    text = f"{request.model.name}, {made.weights_label} weights{assumed}, {cache} cache{spread}, {made.settings.release_name}"
    limits = (("max-model-len", made.settings.max_model_len), ("max-num-seqs", made.settings.max_num_seqs))
    text += "".join(f", {name} {value:,}" for name, value in limits if value and made.settings.engine == "vllm")
    return wrapped(text, width)


def _bar(made: MemoryPlan, width: int, colour: bool) -> list[str]:
    if made.pool.bytes <= 0:
        return []
    lines = {entry.label: entry.bytes for entry in made.ledger}
    overhead = sum(entry.bytes for entry in made.ledger if entry.label not in ("weights", "cache pool", "kept back"))
    users = made.request.workload.users
    used = min(made.pool.bytes, users * made.per_user.admitted_bytes)
    parts = [("w", lines["weights"]), ("o", overhead), ("c", used), (" ", made.pool.bytes - used), (".", lines["kept back"])]
    head = f"  {gib(made.card_bytes)} GiB  "
    drawn = bar(parts, min(width, 100) - len(head))
    held = (
        f"{counted(users, 'user')}, blank free" if users <= made.users.admitted else f"{made.users.admitted:,} of {counted(users, 'user')}"
    )
    legend = f"w weights, o overhead, c cache of {held}, . kept back"
    band = (made.pool.high_bytes - made.pool.low_bytes) // 2
    share = band / max(1, made.pool.bytes)
    reach = f"{gib(made.pool.low_bytes)} to {gib(made.pool.high_bytes)}"
    spread = f"pool {gib(made.pool.bytes)} GiB, {reach} ({made.pool.confidence}; +-{share:.0%})"
    told = [legend, spread] + ([f"to narrow it: {made.would_narrow}"] if made.would_narrow else [])
    return [head + drawn, *(line for text in told for line in wrapped(text, width, " " * len(head)))]


def _lines(made: MemoryPlan, width: int, colour: bool) -> Iterator[str]:
    shown = [entry for entry in made.ledger if entry.bytes or entry.label in ("cache pool", "kept back")]
    sure = max(len(word) for word in (made.request.card.memory.confidence, *(entry.confidence for entry in shown))) + 2
    for entry in shown:
        unit = "GiB" if entry is shown[0] else "   "
        head = f"  {entry.label.ljust(LABEL)}{gib(entry.bytes).rjust(FIGURE)} {unit}  {entry.confidence.ljust(sure)}"
        band = f"{gib(entry.low)} to {gib(entry.high)}; " if gib(entry.low) != gib(entry.high) else ""
        room = width - len(head)
        rest = wrapped(band + entry.why, room) if room >= 24 else wrapped(band + entry.why, width - 6)
        yield from _beside(head, rest, room)
    head = f"  {'= the card'.ljust(LABEL)}{gib(made.card_bytes).rjust(FIGURE)}      {made.request.card.memory.confidence.ljust(sure)}"
    yield head + "as CUDA reports it"


def _beside(head: str, rest: list[str], room: int) -> Iterator[str]:
    """Yield a line and its text to the right, or below it where the terminal is narrow."""
    if room >= 24:
        yield head + rest[0]
        yield from (" " * len(head) + more for more in rest[1:])
    else:
        yield head.rstrip()
        yield from ("      " + text for text in rest)


def _one_user(made: MemoryPlan, width: int) -> Iterator[str]:
    user = made.per_user
    text = f"One user at {user.context_tokens:,} tokens: {size(user.admitted_bytes)} a card in {counted(user.blocks, 'block')}"
    text += f" (by formula {size(user.ideal_bytes)}"
    if made.cost.state_bytes:
        text += f", of it state {size(made.cost.state_bytes)}"
    text += f"). Each token adds {size(made.cost.growth(user.context_tokens))}."
    shared = made.request.workload.shared_prefix_tokens
    if shared and made.settings.enable_prefix_caching:
        text += f" Of its tokens {shared:,} are shared and stored once, where every prompt begins with the same text."
    if user.shortest_bytes > 4 * made.allocation.bytes_per_block or made.request.model.shape.hybrid:
        text += f" A request of one token already takes {size(user.shortest_bytes)}."
    yield from wrapped(text, width)


def _why_not(made: MemoryPlan, width: int) -> Iterator[str]:
    users, allocation = made.users, made.allocation
    if not made.per_user.blocks:
        yield from wrapped("This model only reads: it keeps no cache, and max-num-seqs bounds the requests at once.", width)
    if users.admitted >= users.ideal or not allocation.groups:
        return
    reasons = []
    if made.request.model.shape.hybrid:
        states = [group for group in allocation.groups if group.page.kind == "state"]
        blocks = allocation.group_blocks(states[0], made.per_user.context_tokens) if states else 0
        reasons.append(
            f"vLLM enlarges the attention block to {allocation.block_size:,} tokens so that a page holds one state, "
            f"and each of {len(states)} state groups takes {blocks} blocks a user"
        )
    if any(group.page.kind in ("sliding", "ring", "chunked") for group in allocation.groups):
        reasons.append("each window also reserves the batches in flight, as if all users prefilled at once (more fit while they decode)")
    if any(group.slots > group.layers for group in allocation.groups):
        reasons.append("unequal groups leave slots empty")
    reasons = reasons or [f"blocks are whole: {counted(allocation.block_size, 'token')} each"]
    yield from wrapped(f"Why not {users.ideal}, as the formula says? {'; '.join(reasons)}.", width)


def _thumb(made: MemoryPlan, width: int) -> Iterator[str]:
    yield "Rules of thumb, and why they differ:"
    for rule in rules_of_thumb(made):
        head = f"  {rule.name.ljust(15)}{rule.users:>6,}  "
        rest = wrapped(rule.why_it_differs, width - len(head))
        yield head + rest[0]
        yield from (" " * len(head) + more for more in rest[1:])


def _better(made: MemoryPlan, alternatives: tuple[Change, ...], width: int) -> Iterator[str]:
    if not alternatives:
        return
    yield "Would help most:" if made.fits else "Nearest ways to more:"
    needed = made.request.workload.users
    pad = min(44, max(len(change.what) for change in alternatives[:5]) + 1)
    for change in alternatives[:5]:
        enough = "  fits" if not made.fits and change.users >= needed else ""
        text = f"  {change.what.ljust(pad)}{change.users:>6,} users{enough}   {change.flag}".rstrip()
        yield from [text] if len(text) <= width else [text[: -len(change.flag)].rstrip(), f"      {change.flag}"]


def _flagged(word: str, text: str, width: int, colour: bool) -> list[str]:
    lines = wrapped(f"{word}: {text}", width, "", "  ")
    if colour and lines:
        lines[0] = lines[0].replace(f"{word}:", paint(f"{word}:", "yellow" if word == "warning" else "dim", True), 1)
    return lines


def _next(made: MemoryPlan, alternatives: tuple[Change, ...]) -> str:
    if made.fits:
        return "next: --explain shows every formula with its numbers; --out plan.json keeps it"
    if made.refusals:
        return "next: change what is refused, and plan again"
    return "next: try one of the ways above" if alternatives else "next: plan a larger card, more cards, or a smaller checkpoint"
