"""One engine: vLLM's V1 scheduler over a paged pool, many decode steps at once where nothing happens between them.

An event is an admission, a step of a prompt, a finish, or a pool that runs out; between events every running sequence decodes, its
context grows by one a step, and a step costs `base + per_token x context`. So k steps cost

    k (a + b S) + b B k (k - 1) / 2          S tokens of context, B sequences

and the sequences that need a block in a step are those whose context is a multiple of the block: one counter for each residue
tells how many. A request is touched when it is admitted and when it leaves. `one_by_one` takes every step by itself; both give the
same times (a test holds them together).

The scheduler (reference: vLLM V1, simulation physics section 3): running first, one token budget, prompts in chunks; then the
queue, head first, while fewer than `max_num_seqs` run and nothing was preempted in this step, and only where the whole prompt fits;
the last running one is preempted to the front of the queue and computes prompt and answer again.

Its many lines are one class, whose counts (context, private tokens, residues, blocks, queue) change together in every event: a split
would hand them around. What does not touch them is elsewhere: the cache in `blocks`, step times in `steptime`, the fast loop in `serve`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from math import inf, log, sqrt
from operator import mul

import msgspec

from tonnage.sim.blocks import Held, Piece, PrefixCache
from tonnage.sim.steptime import StepTime

NEVER = 1 << 60
COLUMNS = (
    "prompt", "output", "pieces", "answer", "priority", "submitted_s", "admitted_s", "first_s", "finish_s", "lost", "produced", "base",
    "ends", "shared", "own_blocks",
)  # fmt: skip
BINS_PER_E = 50
"""Bins of the histogram of gaps between tokens: 2 % wide."""
LEAST_GAP_S = 1e-5
MOST_COUNTERS = 64
"""Blocks of more tokens have their counters in a dictionary: few of them are in use."""


class EngineLimits(msgspec.Struct, frozen=True):
    """What bounds an engine. `blocks` are those that requests may hold; a sequence takes `groups` blocks each `block_tokens`, and
    `fixed_blocks` for its state or windows; `reserve_whole_prompt` as releases from 0.19 admit."""

    blocks: int
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    groups: int = 1
    fixed_blocks: int = 0
    prefix_caching: bool = False
    watermark_blocks: int = 0
    by_priority: bool = False


class Engine:
    """State of one engine. Times in seconds; requests by their index in the columns that `load` was given."""

    def __init__(self, limits: EngineLimits, step_time: StepTime, *, one_by_one: bool = False, timeline_s: float = 0.0) -> None:
        self.limits = limits
        self.times = step_time
        self.one_by_one = one_by_one
        self.state_blocks = -(-limits.fixed_blocks // limits.groups)
        self.now = 0.0
        self.step = 0
        self.cache = PrefixCache(limits.blocks // limits.groups, limits.block_tokens) if limits.prefix_caching else None
        self.waiting: deque[int] = deque()
        self.order: list[int] = []
        self.filling: tuple[int, int, int] | None = None
        self.finishes: list[tuple[int, int]] = []
        self.decoding = 0
        self.context = 0
        self.private = 0
        self.residues: list[int] | dict[int, int] = [0] * limits.block_tokens if limits.block_tokens <= MOST_COUNTERS else defaultdict(int)
        self._missing: dict[int, tuple[int, ...]] = {}
        self.fixed = 0
        self.node_blocks = 0
        self.running = 0
        self.gaps: dict[int, int] = {}
        self.busy_s = 0.0
        self.steps = 0
        self.decode_tokens = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.looked_tokens = 0
        self.preemptions = 0
        self.most_tokens = 0
        self.most_decoding = 0
        self.stopped_s: dict[int, float] = {}
        self.timeline_s = timeline_s
        self.timeline: list[tuple[float, int, int, int, int]] = []
        self.next_sample = 0.0 if timeline_s else inf
        self.rejected: list[int] = []
        self.finished: list[int] = []

    def load(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        pieces: Sequence[tuple[Piece, ...]] = (),
        answer: Sequence[Hashable] = (),
        priority: Sequence[int] = (),
    ) -> None:
        """Give the engine the columns of the requests that it may be sent."""
        count = len(prompt)
        self.prompt, self.output, self.pieces, self.answer, self.priority = prompt, output, pieces, answer, priority
        self.submitted_s = [0.0] * count
        self.admitted_s = [-1.0] * count
        self.first_s = [-1.0] * count
        self.finish_s = [-1.0] * count
        self.lost = [0] * count
        self.produced = [0] * count
        self.base = [0] * count
        self.ends = [NEVER] * count
        self.shared = [0] * count
        self.own_blocks = [0] * count
        self.held: dict[int, Held] = {}

    def share(self, other: Engine) -> None:
        """Write what happens to requests into another engine's columns: every request is one engine's alone."""
        for name in COLUMNS:
            setattr(self, name, getattr(other, name))
        self.held = {}

    def submit(self, index: int, at: float) -> bool:
        """Send a request; return whether the engine takes it: one that is longer than the limit, or than the pool, is rejected."""
        limits = self.limits
        tokens = self.prompt[index] + self.output[index]
        need = limits.groups * -(-(tokens - 1) // limits.block_tokens) + limits.fixed_blocks
        if tokens > limits.max_model_len or need > limits.blocks:
            self.rejected.append(index)
            return False
        self.submitted_s[index] = at
        if at > self.now and not self.running and not self.waiting:
            self.now = at
        if limits.by_priority and self.priority:
            self.enqueue(index)
        else:
            self.waiting.append(index)
        return True

    def enqueue(self, index: int) -> None:
        """Put a request behind those that go first: by priority, then by arrival."""
        rank = (self.priority[index], self.submitted_s[index], index)
        place = len(self.waiting)
        while place and (self.priority[self.waiting[place - 1]], self.submitted_s[self.waiting[place - 1]], self.waiting[place - 1]) > rank:
            place -= 1
        self.waiting.insert(place, index)

    def used_blocks(self, ahead: int = 0) -> int:
        """Return the blocks that requests hold, or will after so many decode steps: by residues, and what is kept for the others."""
        return self.limits.groups * (self._decode_blocks(ahead) + self.node_blocks) + self.fixed

    def _decode_blocks(self, ahead: int) -> int:
        """Return the private blocks that decoding sequences hold after so many more steps, one group's."""
        size = self.limits.block_tokens
        step = self.step + ahead
        residues = self.residues
        if isinstance(residues, list):
            at = step % size
            missing = self._missing.get(at)
            if missing is None:
                missing = self._missing[at] = tuple(-(residue + at) % size for residue in range(size))
            pads: int = sum(map(mul, residues, missing))
        else:
            pads = sum(count * (-(residue + step) % size) for residue, count in residues.items() if count)
        return (self.private + ahead * self.decoding + pads) // size

    def advance(self, until: float) -> None:
        """Take steps while one begins before `until` and there is work; every request that arrives by then must have been sent.

        With `until` infinite it ends when nothing is left to do.
        """
        limits, times = self.limits, self.times
        base, per_token, host, hosted = times.base, times.per_token, times.host, times.hosted
        size, groups, most_seqs = limits.block_tokens, limits.groups, limits.max_num_seqs
        finishes = self.finishes
        while self.now < until:
            if self.filling is not None or (self.waiting and self.running < most_seqs and self.admissible()):
                self.scheduled_step()
                continue
            count = self.decoding
            if not count:
                return
            first = finishes[0]
            while self.ends[first[1]] != first[0]:
                heappop(finishes)
                first = finishes[0]
            steps = first[0] - self.step
            # how far the pool goes: a bound that needs no count, and the count where the bound does not do
            if (
                groups * ((self.private + steps * count + count * (size - 1)) // size) + self.fixed + groups * self.node_blocks
                > limits.blocks
            ):
                steps = self.steps_that_fit(steps)
                if not steps:
                    self.scheduled_step()
                    continue
            fixed_time = base[count]
            slope = per_token * count
            start = fixed_time + per_token * self.context
            if self.one_by_one:
                steps = 1
            if hosted and start < (least := host[count]):  # the host is slower than the card: constant until contexts have grown
                if slope > 0.0:
                    steps = min(steps, int((least - start) / slope) + 1)
                start, slope = least, 0.0
            if until < inf:
                left = until - self.now
                if start * steps + slope * (steps * (steps - 1) / 2) > left:
                    steps = min(steps, steps_until(start, slope, left))
            if self.now >= self.next_sample:
                self.sample()
            spent = start * steps + slope * (steps * (steps - 1) / 2)
            self.now += spent
            self.busy_s += spent
            self.step += steps
            self.steps += steps
            grown = steps * count
            self.context += grown
            self.private += grown
            self.decode_tokens += grown
            self.note_gaps(start, slope, steps, count)
            self.note_level()
            step = self.step
            while finishes and finishes[0][0] <= step:
                end, index = heappop(finishes)
                if self.ends[index] == end:
                    self._finish(index)
        return

    def finishes_after(self) -> float:
        """Return a time before which no request finishes: now, where a prompt may be computed; else as if contexts did not grow."""
        finishes, ends = self.finishes, self.ends
        while finishes and ends[finishes[0][1]] != finishes[0][0]:
            heappop(finishes)
        if self.filling is not None or self.waiting or not finishes:
            return self.now
        step = self.times.base[self.decoding] + self.times.per_token * self.context
        return self.now + (finishes[0][0] - self.step) * step

    def steps_that_fit(self, most: int) -> int:
        """Return how many decode steps the pool holds, at most so many."""
        limits = self.limits
        room = (limits.blocks - self.fixed) // limits.groups - self.node_blocks
        if self._decode_blocks(most) <= room:
            return most
        # every sequence's last block is at best full and at worst just begun
        left, count = room * limits.block_tokens - self.private, max(1, self.decoding)
        low = min(most - 1, max(0, (left - count * (limits.block_tokens - 1)) // count))
        high = min(most - 1, max(0, left // count))
        while low < high:
            middle = (low + high + 1) // 2
            if self._decode_blocks(middle) <= room:
                low = middle
            else:
                high = middle - 1
        return low

    def admissible(self) -> bool:
        """Return whether the head of the queue fits: its whole prompt, and what it has produced before."""
        index = self.waiting[0]
        limits = self.limits
        tokens = self.prompt[index] + self.produced[index]
        free = limits.blocks - self.used_blocks(1)  # what runs goes first, and takes its blocks of this step
        if self.running:
            free -= limits.watermark_blocks
        need = limits.groups * -(-tokens // limits.block_tokens) + limits.fixed_blocks
        if need <= free:
            return True
        if self.cache is None or not self.pieces or not self.pieces[index]:
            return False
        self.cache.settle(self._in_use())
        found, unused, _ = self.cache.look_up(self.pieces[index], tokens - 1)
        return need - limits.groups * (found - min(unused, found)) <= free

    def _in_use(self) -> int:
        """Return blocks in use as the prefix cache counts them: one group's, state and windows shared out, with this step's."""
        limits = self.limits
        own = (self.fixed - self.running * limits.fixed_blocks) // limits.groups
        return self._decode_blocks(1) + self.node_blocks + own + self.running * self.state_blocks

    def scheduled_step(self) -> None:
        """Take one step as the scheduler does: running sequences, then the queue; then its time."""
        limits = self.limits
        preempted = self._make_room()
        decoding, context = self.decoding, self.context
        budget = limits.max_num_batched_tokens - decoding
        chunks: list[tuple[int, int]] = []
        done: list[int] = []
        if self.filling is not None:
            budget = self._fill(budget, chunks, done)
        if not preempted:
            self.admit_waiting(budget, chunks, done)
        if not decoding and not chunks:
            return
        if self.now >= self.next_sample:
            self.sample()
        spent = self.times.mixed(decoding, context, chunks)
        self.now += spent
        self.busy_s += spent
        self.step += 1
        self.steps += 1
        if decoding:
            self.context += decoding
            self.private += decoding
            self.decode_tokens += decoding
            key = int(log(spent if spent > LEAST_GAP_S else LEAST_GAP_S) * BINS_PER_E)
            self.gaps[key] = self.gaps.get(key, 0) + decoding
        for index in done:
            self._first_token(index)
        finishes = self.finishes
        while finishes and finishes[0][0] <= self.step:
            end, index = heappop(finishes)
            if self.ends[index] == end:
                self._finish(index)

    def admit_waiting(self, budget: int, chunks: list[tuple[int, int]], done: list[int]) -> None:
        """Admit from the head of the queue while there is room and budget; `chunks` and `done` take what is computed and who is through."""
        most = self.limits.max_num_seqs
        while self.waiting and self.running < most and budget > 0 and self.filling is None and self.admissible():
            budget = self._admit(budget, chunks, done)

    def is_filling(self, index: int) -> bool:
        """Return whether a request's prompt is in hand."""
        return self.filling is not None and self.filling[0] == index

    def hold(self, index: int, tokens: int) -> Held:
        """Give a request what is cached of its prompt, and the rest of its content to compute."""
        assert self.cache is not None
        self.cache.settle(self._in_use())
        held = self.cache.hold(self.pieces[index], tokens - 1)
        self.held[index] = held
        self.node_blocks += held.used
        return held

    def _make_room(self) -> bool:
        """Preempt the last running ones until the next step's blocks fit; return whether any was."""
        limits = self.limits
        preempted = False
        while limits.groups * (self._decode_blocks(1) + self.node_blocks) + self.fixed > limits.blocks and self.running:
            self._preempt(self._last_running())
            preempted = True
        return preempted

    def _last_running(self) -> int:
        """Return who is preempted: the last admitted, or by priority the least."""
        order = self.order
        while order and not self._runs(order[-1]):
            order.pop()
        if not self.limits.by_priority or not self.priority:
            return order[-1]
        alive = [index for index in order if self._runs(index)]
        return max(alive, key=lambda index: (self.priority[index], self.submitted_s[index], index))

    def _runs(self, index: int) -> bool:
        return self.ends[index] != NEVER or (self.filling is not None and self.filling[0] == index)

    def _preempt(self, index: int) -> None:
        """Take everything from a running request and put it at the front of the queue, to be computed again."""
        if self.filling is not None and self.filling[0] == index:
            self.filling = None
            self.fixed -= self.own_blocks[index] + self.limits.fixed_blocks
            blocks = self.own_blocks[index] // self.limits.groups
        else:
            self.produced[index] = self.output[index] - (self.ends[index] - self.step)
            self.stopped_s[index] = self.now
            blocks = self._leave(index)
        self.ends[index] = NEVER
        self.running -= 1
        self.give_back(index, blocks, finished=False)
        self.lost[index] += 1
        self.preemptions += 1
        self.order = [one for one in self.order if one != index] if self.order and self.order[-1] != index else self.order[:-1]
        if self.limits.by_priority and self.priority:
            self.enqueue(index)
        else:
            self.waiting.appendleft(index)

    def _leave(self, index: int) -> int:
        """Take a decoding request out of the counts; return its private blocks of one group."""
        size = self.limits.block_tokens
        stored = self.base[index] + self.step
        own = stored - self.shared[index]
        self.decoding -= 1
        self.context -= stored
        self.private -= own
        self.residues[(self.base[index] - self.shared[index]) % size] -= 1
        self.fixed -= self.limits.fixed_blocks
        return -(-own // size)

    def give_back(self, index: int, blocks: int, *, finished: bool) -> None:
        """Return a request's blocks to the pool: private ones, then the nodes that nobody else uses."""
        held = self.held.pop(index, None)
        cache = self.cache
        if cache is None:
            return
        if held is None:
            cache.free_private(blocks + self.state_blocks)
            return
        answer = self.answer[index] if self.answer and finished else ""
        if answer:
            cache.free_private(self.state_blocks)
            cache.keep(held, (answer, self.output[index]), self.prompt[index] + self.output[index] - 1, blocks)
        else:
            cache.free_private(blocks + self.state_blocks)
        self.node_blocks -= cache.release(held)

    def _admit(self, budget: int, chunks: list[tuple[int, int]], done: list[int]) -> int:
        """Let the head of the queue run; return what is left of the step's budget."""
        index = self.waiting.popleft()
        limits = self.limits
        tokens = self.prompt[index] + self.produced[index]
        hits = covered = 0
        if self.cache is not None and self.pieces and self.pieces[index]:
            held = self.hold(index, tokens)
            hits, covered = held.hit_blocks * limits.block_tokens, held.covered
        if self.cache is not None and not self.lost[index]:
            self.looked_tokens += tokens
            self.hit_tokens += hits
        own = limits.groups * max(0, -(-tokens // limits.block_tokens) - covered)
        self.own_blocks[index] = own
        self.shared[index] = covered * limits.block_tokens
        self.fixed += own + limits.fixed_blocks
        self.running += 1
        self.order.append(index)
        if self.admitted_s[index] < 0:
            self.admitted_s[index] = self.now
        self.filling = (index, hits, tokens)
        return self._fill(budget, chunks, done)

    def _fill(self, budget: int, chunks: list[tuple[int, int]], done: list[int]) -> int:
        """Compute as much of the prompt in hand as the budget lets; return what is left of it."""
        assert self.filling is not None
        index, computed, tokens = self.filling
        count = min(budget, tokens - computed)
        if count <= 0:
            return budget
        chunks.append((count, computed))
        self.prompt_tokens += count
        computed += count
        held = self.held.get(index)
        if held is not None and self.cache is not None:
            self.cache.computed(held, computed // self.limits.block_tokens)
        if computed == tokens:
            self.filling = None
            done.append(index)
            self.ends[index] = self.step + 1 + self.output[index] - self.produced[index] - 1  # runs, from the step after this one
        else:
            self.filling = (index, computed, tokens)
        return budget - count

    def _first_token(self, index: int) -> None:
        """A prompt is done: its token leaves with this step, and the request decodes."""
        limits = self.limits
        tokens = self.prompt[index] + self.produced[index]
        self.fixed -= self.own_blocks[index]
        if self.first_s[index] < 0:
            self.first_s[index] = self.now
        else:
            self.note_resumed(index)
        self.produced[index] += 1
        self.base[index] = tokens - self.step
        own = tokens - self.shared[index]
        self.decoding += 1
        self.context += tokens
        self.private += own
        self.residues[(self.base[index] - self.shared[index]) % limits.block_tokens] += 1
        heappush(self.finishes, (self.ends[index], index))

    def _finish(self, index: int) -> None:
        """A request has all its tokens: it leaves, and its blocks go back."""
        blocks = self._leave(index)
        self.ends[index] = NEVER
        self.running -= 1
        self.finish_s[index] = self.now
        self.finished.append(index)
        if self.cache is not None:
            self.give_back(index, blocks, finished=True)
        if len(self.order) > 4 * self.running + 64:
            self.order = [one for one in self.order if self._runs(one)]

    def sample(self) -> None:
        """Note the time, the blocks in use, who runs and who waits, and the preemptions so far."""
        used = self.used_blocks()
        self.timeline.append((self.now, used, self.running, len(self.waiting), self.preemptions))
        self.next_sample = self.now + self.timeline_s

    def note_gaps(self, start: float, slope: float, steps: int, count: int) -> None:
        """Count the gaps between tokens of steps that grow from one length by equal amounts: in pieces of 4 %, each by its mean."""
        done = 0
        while done < steps:
            first = start + slope * done
            piece = max(1, min(steps - done, int(0.04 * first / slope))) if slope > 0.0 else steps - done
            mean = first + slope * (piece - 1) / 2
            key = int(log(mean if mean > LEAST_GAP_S else LEAST_GAP_S) * BINS_PER_E)
            self.gaps[key] = self.gaps.get(key, 0) + piece * count
            done += piece

    def note_level(self) -> None:
        """Keep the most tokens that were held, and the most sequences."""
        level = self.limits.groups * (self.private + self.node_blocks * self.limits.block_tokens) + self.fixed * self.limits.block_tokens
        if level > self.most_tokens:
            self.most_tokens, self.most_decoding = level, self.decoding

    def note_resumed(self, index: int) -> None:
        """Count the gap of a request that was preempted: from its last token before to its next one now."""
        since = self.stopped_s.pop(index, None)
        if since is not None and self.now > since:
            key = int(log(self.now - since) * BINS_PER_E)
            self.gaps[key] = self.gaps.get(key, 0) + 1

    def check(self) -> None:
        """Raise AssertionError where the counts do not add up: what runs, its context, and every block."""
        running = [index for index in range(len(self.ends)) if self._runs(index)]
        assert len(running) == self.running
        decoding = [index for index in running if self.ends[index] != NEVER and (self.filling is None or self.filling[0] != index)]
        assert len(decoding) == self.decoding
        assert sum(self.base[index] + self.step for index in decoding) == self.context
        own = sum(-(-(self.base[index] + self.step - self.shared[index]) // self.limits.block_tokens) for index in decoding)
        assert own == self._decode_blocks(0)
        assert 0 <= self.used_blocks() <= self.limits.blocks
        if self.cache is not None and self.limits.groups == 1 and not self.limits.fixed_blocks:
            self.cache.check(self.used_blocks(), self.limits.blocks)


def steps_until(start: float, slope: float, left: float) -> int:
    """Return the steps that begin before `left` seconds have passed: the last of them may end after."""
    if slope <= 0.0:
        guess = int(left / start)
    else:
        half = slope / 2
        linear = start - half
        guess = int((sqrt(linear * linear + 4 * half * left) - linear) / slope)
    guess = max(0, guess)
    while guess and start * guess + slope * (guess * (guess - 1) / 2) >= left:
        guess -= 1
    while start * guess + slope * (guess * (guess - 1) / 2) < left:
        guess += 1
    return max(1, guess)
