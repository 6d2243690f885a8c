"""Engines other than vLLM: how SGLang, TensorRT-LLM, llama.cpp and Ollama size the memory for context.

SGLang takes a fraction of what is free before the model loads and keeps the rest for activations and graphs, in pools of
their own for states and windows. TensorRT-LLM takes a fraction of what is free after loading. llama.cpp allocates the
cells of every slot up front. Read in their code and documentation; no measured row stands behind them: `assumed`.
"""

from __future__ import annotations

import msgspec

from tonnage.facts.engine import EngineRules
from tonnage.facts.provenance import Banded
from tonnage.facts.tables import table
from tonnage.memory.groups import Group
from tonnage.memory.kv import ContextCost
from tonnage.memory.ledger import Line
from tonnage.settings import EngineSettings
from tonnage.units import GIB, ceil_div, parse_bytes

CONTEXT = Banded(3 * GIB // 10, GIB // 10, GIB, "assumed", "CUDA context and libraries")


class Step(msgspec.Struct, frozen=True):
    """Defaults of SGLang for cards below a size: prefill chunk and largest CUDA-graph batch."""

    below: str
    chunk: int
    graphs: int


class OtherRules(msgspec.Struct, frozen=True):
    """The memory rules of an engine that is not vLLM; fields as in its file under data/engines."""

    title: str
    fraction: str
    tokens_per_page: int
    sequences_default: int
    kv_cache_dtypes: tuple[str, ...]
    default_fraction: float = 0.0
    state_slots_cached: int = 1
    state_slots_plain: int = 1
    state_ratio: float = 0.0
    window_ratio: float = 1.0
    margin: str = "0 B"
    compute_buffer: str = "0 B"
    reserve: dict[str, str] = {}
    prefill: tuple[Step, ...] = ()


def other_rules(engine: str) -> OtherRules:
    """Return the rules of an engine by its name.

    >>> other_rules("trtllm").tokens_per_page
    32
    """
    return msgspec.convert(table(f"engines/{engine}"), OtherRules)


class TokenPool(msgspec.Struct, frozen=True):
    """A pool that hands out pages of tokens, with states and windows in pools of their own; speaks as `Allocation` does.

    `states` bounds the sequences by state slots (0: no state). `window_ratio` is the window pool's share of the tokens of
    the full one; `state_share` is the share of the pool set apart for states, 0 where as many as `users` are.
    """

    bytes_per_block: int
    num_blocks: int
    block_size: int
    settings: EngineSettings
    rules: EngineRules
    cost: ContextCost
    window_ratio: float
    state_bytes: int
    state_share: float
    users: int
    states: int = 0
    groups: tuple[Group, ...] = ()
    prefix_mode: str = "none"
    capability: tuple[int, int] | None = None

    def sequence_blocks(self, tokens: int) -> int:
        """Return the pages one sequence of so many tokens takes; a window is as dear as its pool is small."""
        pages = ceil_div(tokens, self.block_size)
        for window, _ in self.cost.windows:
            pages = max(pages, ceil_div(int(min(tokens, window) / self.window_ratio), self.block_size))
        return pages

    def sequence_bytes(self, tokens: int) -> int:
        """Return what one sequence of so many tokens takes, its state included."""
        return self.sequence_blocks(tokens) * self.bytes_per_block + self.state_bytes

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of so many tokens the pools hold."""
        held = self.num_blocks / max(1, self.sequence_blocks(tokens))
        return min(held, float(self.states)) if self.state_bytes else held

    def sized(self, pool_bytes: int) -> TokenPool:
        """Return how the same engine hands out a pool of another size."""
        available, states = max(0, pool_bytes), 0
        if self.state_bytes:
            held = int(available * self.state_share) if self.state_share else min(available, self.users * self.state_bytes)
            states, available = held // self.state_bytes, available - held
        return msgspec.structs.replace(self, num_blocks=available // self.bytes_per_block, states=states)

    def group_blocks(self, group: Group, tokens: int) -> int:
        """Return the pages of a group; there are none."""
        return 0

    @property
    def printed_tokens(self) -> int:
        """The tokens of the pool, as the engine logs them (max_total_num_tokens)."""
        return self.num_blocks * self.block_size


def fraction_of(rules: OtherRules, card_bytes: int, settings: EngineSettings) -> float:
    """Return the fraction an engine takes: as given, or by its own rule.

    >>> from tonnage.settings import EngineSettings
    >>> round(fraction_of(other_rules("sglang"), 79 * 2**30, EngineSettings()), 3)
    0.834
    """
    if settings.gpu_memory_utilization:
        return settings.gpu_memory_utilization
    if not rules.reserve:
        return rules.default_fraction or 1.0
    step = next(step for step in rules.prefill if card_bytes < parse_bytes(step.below))
    parts = {name: parse_bytes(text) for name, text in rules.reserve.items()}
    prefill = max(settings.max_num_batched_tokens or step.chunk, 2048)
    ranks = settings.parallel.tp * settings.parallel.pp
    reserve = parts["fixed"] + parts["per_prefill_token"] * prefill + parts["per_graph_sequence"] * step.graphs + parts["per_rank"] * ranks
    if card_bytes > 60 * GIB:
        reserve = max(reserve, parts["least_large"])
    return max(0.05, (card_bytes - reserve) / card_bytes)


def budget(engine: str, card: Banded, loaded: list[Line], settings: EngineSettings) -> tuple[list[Line], Banded, str]:
    """Return (charged lines, bytes that are budgeted, why the rest is kept back) for an engine that has loaded these lines."""
    rules = other_rules(engine)
    context = Line("context, comms", CONTEXT.best, CONTEXT.low, CONTEXT.high, "assumed", "CUDA context and libraries, a rule of thumb")
    share = fraction_of(rules, card.best, settings)
    if rules.fraction == "free before load":
        free = card.best - context.bytes
        kept, why = int(free * (1 - share)), f"1 - mem-fraction-static {share:.3f} of what was free: activations and graphs live there"
        lines = [*loaded, context]
    elif rules.fraction == "free after load":
        buffers = Line("engine buffers", GIB, GIB // 2, 3 * GIB, "assumed", "activations and buffers, a rule of thumb")
        lines = [*loaded, context, buffers]
        free = card.best - sum(entry.bytes for entry in lines)
        kept, why = max(0, int(free * (1 - share))), f"1 - free_gpu_memory_fraction {share:g} of what loading left"
    else:
        compute = parse_bytes(rules.compute_buffer)
        lines = [*loaded, context, Line("compute buffer", compute, compute // 2, 4 * compute, "assumed", "grows with batch and vocabulary")]
        kept, why = parse_bytes(rules.margin), "left free by --fit"
    requested = Banded(card.best - kept, card.low - kept, card.high - kept, "assumed")
    return lines, requested, why


def token_pool(settings: EngineSettings, rules: EngineRules, cost: ContextCost, pool_bytes: int, users: int) -> TokenPool:
    """Return how an engine hands out a pool: pages of tokens, and slots for states."""
    own = other_rules(settings.engine)
    slots = own.state_slots_cached if settings.enable_prefix_caching else own.state_slots_plain
    windows = sum(each for _, each in cost.windows)
    page = max(1, own.tokens_per_page) * max(1, cost.per_token + int(own.window_ratio * windows))
    empty = TokenPool(
        bytes_per_block=page,
        num_blocks=0,
        block_size=max(1, own.tokens_per_page),
        settings=settings,
        rules=rules,
        cost=cost,
        window_ratio=own.window_ratio if windows else 1.0,
        state_bytes=slots * cost.state_bytes,
        state_share=own.state_ratio / (1 + own.state_ratio),
        users=users,
    )
    return empty.sized(pool_bytes)


def serial_note(engine: str, users: int) -> str:
    """Return what must be said of an engine that serves one at a time unless told otherwise."""
    if engine == "ollama" and users > 1:
        return f"Ollama serves OLLAMA_NUM_PARALLEL requests at once, 1 by default: of {users} users all but one queue unless it is raised"
    if engine == "llama.cpp" and users > 1:
        return f"llama.cpp serves as many as it has slots: start it with -np {users}, and each slot's context is allocated up front"
    return ""
