"""Requests in the order they are sent -> an engine that has served them, in one loop.

The same steps as `Engine.submit` and `Engine.advance` take, with what they count in local variables: for a request costs ten
microseconds, and a dozen calls would cost as much again. What is rare (a pool that runs out, a prompt in chunks, priorities) is
left to the engine's own methods, with the counts handed over and taken back. A test holds both to the same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf, log, sqrt

from tonnage.sim.engine import BINS_PER_E, LEAST_GAP_S, NEVER, Engine, steps_until


def serve(engine: Engine, order: Sequence[int], arrival_s: Sequence[float], in_flight: int = 0) -> None:
    """Let an engine serve the requests of `order` (indices into its columns, sorted by arrival) to the end.

    `in_flight` above 0 is a closed loop: so many at once from the beginning, each next one when one finishes.
    """
    limits, times, cache = engine.limits, engine.times, engine.cache
    base_s, per_token, host, hosted, pair_s = times.base, times.per_token, times.host, times.hosted, times.attention_per_pair
    each_s = times.per_sequence
    known_work, work = times.known_work, times.work
    size, groups, most_seqs = limits.block_tokens, limits.groups, limits.max_num_seqs
    total, fixed_blocks, watermark = limits.blocks, limits.fixed_blocks, limits.watermark_blocks
    states = engine.state_blocks
    budget_tokens, longest = limits.max_num_batched_tokens, limits.max_model_len
    prompt, output, pieces = engine.prompt, engine.output, engine.pieces
    submitted, admitted, first_s, finish_s = engine.submitted_s, engine.admitted_s, engine.first_s, engine.finish_s
    base, ends, shared, produced = engine.base, engine.ends, engine.shared, engine.produced
    waiting, finishes, residues, gaps, finished = engine.waiting, engine.finishes, engine.residues, engine.gaps, engine.finished
    queue_in_order = not (limits.by_priority and engine.priority)
    now, step, count, context, private, fixed, running = (
        engine.now, engine.step, engine.decoding, engine.context, engine.private, engine.fixed, engine.running,
    )  # fmt: skip
    steps_done = decode_tokens = prompt_tokens = 0
    busy = 0.0
    most_tokens = most_decoding = 0
    sample_at = engine.next_sample
    running_order = engine.order
    sent, last = 0, len(order)
    next_at = inf
    if not in_flight and last:
        next_at = arrival_s[order[0]]
    closed = min(in_flight, last)
    while True:
        # -- who arrives ------------------------------------------------------------------------------------------
        while closed or next_at <= now or (not count and not waiting and engine.filling is None and next_at < inf):
            index = order[sent]
            sent += 1
            if closed:
                closed -= 1
                at = now
            else:
                at = next_at
                next_at = arrival_s[order[sent]] if sent < last else inf
                if at > now:
                    now = at  # nothing runs: the engine waits for it
            tokens = prompt[index] + output[index]
            if tokens > longest or groups * -(-(tokens - 1) // size) + fixed_blocks > total:
                engine.rejected.append(index)
                if in_flight and sent + closed < last:
                    closed += 1
            else:
                submitted[index] = at
                if queue_in_order:
                    waiting.append(index)
                else:
                    engine.enqueue(index)
        # -- a step with a prompt in it ---------------------------------------------------------------------------
        if (waiting and running < most_seqs) or engine.filling is not None:
            filling = engine.filling
            budget = budget_tokens - count
            # blocks that running sequences hold after this step, bounded from above
            used = (private + (1 + size) * count) // size + engine.node_blocks
            free = total - fixed - groups * used - (watermark if running else 0)
            if filling is not None:
                index, had, tokens = filling
                plain = tokens - had <= budget and free >= 0
            else:
                index, had = waiting[0], 0
                tokens = prompt[index] + produced[index]
                plain = tokens <= budget and groups * -(-tokens // size) + fixed_blocks <= free
            if plain:
                before = 0
                pairs = 0.0
                spent_tokens = count
                done = []
                more_room = True
                if filling is not None:  # what is left of the prompt in hand goes first
                    engine.filling = None
                    if cache is not None and (begun := engine.held.get(index)) is not None:
                        cache.computed(begun, tokens // size)
                    computed = tokens - had
                    spent_tokens += computed
                    prompt_tokens += computed
                    pairs = computed * (had + computed / 2)
                    before = 1
                    done.append((index, tokens))
                    more_room = False
                    if waiting and running < most_seqs:
                        index = waiting[0]
                        tokens = prompt[index] + produced[index]
                        more_room = spent_tokens + tokens <= budget_tokens and groups * -(-tokens // size) + fixed_blocks <= free
                while more_room:
                    waiting.popleft()
                    hits = covered = 0
                    if cache is not None:
                        if pieces and pieces[index]:
                            if cache.unchanged(
                                (private + (1 + size) * count) // size + fixed // groups + engine.node_blocks + running * states
                            ):
                                held = engine.held[index] = cache.hold(pieces[index], tokens - 1)
                                engine.node_blocks += held.used
                            else:
                                engine.step, engine.private, engine.decoding = step, private, count
                                engine.fixed, engine.running = fixed, running
                                held = engine.hold(index, tokens)
                            hits, covered = held.hit_blocks * size, held.covered
                            if held.owned:
                                cache.computed(held, tokens // size)
                        if not engine.lost[index]:
                            engine.looked_tokens += tokens
                            engine.hit_tokens += hits
                        shared[index] = covered * size
                    running += 1
                    fixed += groups * max(0, -(-tokens // size) - covered) + fixed_blocks
                    running_order.append(index)
                    if admitted[index] < 0:
                        admitted[index] = now
                    computed = tokens - hits
                    spent_tokens += computed
                    prompt_tokens += computed
                    pairs += computed * (hits + computed / 2)
                    before += 1
                    done.append((index, tokens))
                    if not waiting or running >= most_seqs:
                        break
                    index = waiting[0]
                    tokens = prompt[index] + produced[index]
                    used = (private + (1 + size) * count) // size + engine.node_blocks
                    if (
                        spent_tokens + tokens > budget_tokens
                        or groups * -(-tokens // size) + fixed_blocks > total - fixed - groups * used - watermark
                    ):
                        break
                if waiting and running < most_seqs and spent_tokens < budget_tokens:  # perhaps a part of the next one, or one by its hits
                    engine.now, engine.step, engine.decoding, engine.context = now, step, count, context
                    engine.private, engine.fixed, engine.running = private, fixed, running
                    chunks: list[tuple[int, int]] = []
                    more: list[int] = []
                    engine.admit_waiting(budget_tokens - spent_tokens, chunks, more)
                    fixed, running = engine.fixed, engine.running
                    for tokens_now, had in chunks:
                        spent_tokens += tokens_now
                        pairs += tokens_now * (had + tokens_now / 2)
                    before += len(chunks)
                    done += [(one, prompt[one] + produced[one]) for one in more]
                if now >= sample_at:
                    engine.now, engine.step, engine.decoding, engine.context = now, step, count, context
                    engine.private, engine.fixed, engine.running = private, fixed, running
                    engine.sample()
                    sample_at = engine.next_sample
                spent = known_work.get(spent_tokens)
                spent = (work(spent_tokens) if spent is None else spent) + count * each_s + context * per_token + pairs * pair_s
                if hosted:
                    least = times.host_of(count + before)
                    if spent < least:
                        spent = least
                else:
                    spent += times.host_of(count + before)
                now += spent
                busy += spent
                step += 1
                steps_done += 1
                if count:
                    context += count
                    private += count
                    decode_tokens += count
                    key = int(log(spent if spent > LEAST_GAP_S else LEAST_GAP_S) * BINS_PER_E)
                    gaps[key] = gaps.get(key, 0) + count
                ended = bool(finishes) and finishes[0][0] <= step
                for index, tokens in done:
                    own_tokens = tokens - shared[index]
                    fixed -= groups * -(-own_tokens // size) if own_tokens > 0 else 0
                    if first_s[index] < 0:
                        first_s[index] = now
                    else:
                        engine.now = now
                        engine.note_resumed(index)
                    left = output[index] - produced[index] - 1
                    produced[index] += 1
                    base[index] = tokens - step
                    count += 1
                    context += tokens
                    private += own_tokens
                    residues[(base[index] - shared[index]) % size] += 1
                    ends[index] = step + left
                    heappush(finishes, (step + left, index))
                    if not left:
                        ended = True
                if not ended:
                    continue
            else:
                engine.now, engine.step, engine.decoding, engine.context = now, step, count, context
                engine.private, engine.fixed, engine.running = private, fixed, running
                if engine.filling is not None or engine.admissible():
                    was = len(finished)
                    engine.scheduled_step()
                    now, step, count, context = engine.now, engine.step, engine.decoding, engine.context
                    private, fixed, running, running_order = engine.private, engine.fixed, engine.running, engine.order
                    if in_flight and len(finished) > was and sent < last:
                        closed = min(len(finished) - was, last - sent)
                    continue
                if not count:
                    break
        elif not count:
            break
        # -- decode steps until something happens -----------------------------------------------------------------
        if not (finishes and finishes[0][0] <= step):
            end, index = finishes[0]
            while ends[index] != end:
                heappop(finishes)
                end, index = finishes[0]
            steps = end - step
            if groups * (private + (steps + size) * count + engine.node_blocks * size) > (total - fixed) * size:
                engine.step, engine.private, engine.decoding, engine.fixed, engine.running = step, private, count, fixed, running
                steps = engine.steps_that_fit(steps)
                if not steps:
                    engine.now, engine.context = now, context
                    was = len(finished)
                    engine.scheduled_step()
                    now, step, count, context = engine.now, engine.step, engine.decoding, engine.context
                    private, fixed, running, running_order = engine.private, engine.fixed, engine.running, engine.order
                    if in_flight and len(finished) > was and sent < last:
                        closed = min(len(finished) - was, last - sent)
                    continue
            start = base_s[count] + per_token * context
            slope = per_token * count
            if hosted and start < (least := host[count]):
                if slope > 0.0:
                    until_slower = int((least - start) / slope) + 1
                    if until_slower < steps:
                        steps = until_slower
                start, slope = least, 0.0
            spent = start * steps + slope * (steps * (steps - 1) / 2)
            if next_at < inf and spent > (room := next_at - now):
                # as `steps_until`: the step in which the next request comes is the last one
                if slope > 0.0:
                    half = slope / 2
                    linear = start - half
                    root = (sqrt(linear * linear + 4 * half * room) - linear) / slope
                else:
                    root = room / start
                fits = int(root)
                over = root - fits
                fits = fits + 1 if 1e-9 < over < 1 - 1e-9 else steps_until(start, slope, room)
                if fits < steps:
                    steps = fits
                    spent = start * steps + slope * (steps * (steps - 1) / 2)
            if now >= sample_at:
                engine.now, engine.step, engine.decoding, engine.context = now, step, count, context
                engine.private, engine.fixed, engine.running = private, fixed, running
                engine.sample()
                sample_at = engine.next_sample
            now += spent
            busy += spent
            step += steps
            steps_done += steps
            grown = steps * count
            context += grown
            private += grown
            decode_tokens += grown
            if slope * steps > 0.04 * start:
                engine.note_gaps(start, slope, steps, count)
            else:
                mean = spent / steps
                key = int(log(mean if mean > LEAST_GAP_S else LEAST_GAP_S) * BINS_PER_E)
                gaps[key] = gaps.get(key, 0) + grown
            level = groups * (private + engine.node_blocks * size) + fixed * size
            if level > most_tokens:
                most_tokens, most_decoding = level, count
        # -- who is done ------------------------------------------------------------------------------------------
        while finishes and finishes[0][0] <= step:
            end, index = heappop(finishes)
            if ends[index] != end:
                continue
            stored = base[index] + step
            own_tokens = stored - shared[index]
            count -= 1
            context -= stored
            private -= own_tokens
            residues[(base[index] - shared[index]) % size] -= 1
            fixed -= fixed_blocks
            ends[index] = NEVER
            running -= 1
            finish_s[index] = now
            finished.append(index)
            if cache is not None:
                engine.give_back(index, -(-own_tokens // size), finished=True)
            if in_flight and sent + closed < last:
                closed += 1
        if len(running_order) > 4 * running + 256:
            engine.order = running_order = [one for one in running_order if ends[one] != NEVER or engine.is_filling(one)]
    engine.now, engine.step, engine.decoding, engine.context = now, step, count, context
    engine.private, engine.fixed, engine.running = private, fixed, running
    if most_tokens > engine.most_tokens:
        engine.most_tokens, engine.most_decoding = most_tokens, most_decoding
    engine.steps += steps_done
    engine.busy_s += busy
    engine.decode_tokens += decode_tokens
    engine.prompt_tokens += prompt_tokens
