"""What users do -> requests: a closed loop of users, an open loop at a rate, conversations that grow, or a recorded trace."""

from __future__ import annotations

from collections.abc import Hashable
from math import exp, log
from typing import TYPE_CHECKING, Literal

import msgspec

from tonnage.errors import InputError
from tonnage.workload.beginnings import pools
from tonnage.workload.draws import Z95, Z99, constant, diurnal, fixed, gamma, lognormal
from tonnage.workload.requests import Piece, Requests, checked
from tonnage.workload.trace import Trace

if TYPE_CHECKING:
    from random import Random

Spread = Literal["fixed", "lognormal"]
Arrivals = Literal["poisson", "constant", "diurnal"]
"""A diurnal run is one day long, or as long as its requests last: the day is as short as that."""


class Lengths(msgspec.Struct, frozen=True):
    """How long sequences are, in tokens: the whole at its p95, the answer on average, the part that all share, the longest allowed.

    `sigma` is the width of the lognormal law of prompts; 0 makes all of them as long as the p95. `systems` counts the texts that may
    be the shared part.
    """

    context: int
    output: int
    shared: int = 0
    longest: int = 0
    sigma: float = 0.0
    systems: int = 1


USUAL_SIGMA = 0.4
"""Width of the law of prompts where only a p95 is known; between chat (0.6 and more) and fixed forms (0). Assumed."""


def lengths(context: int, output: int, *, p99: int = 0, shared: int = 0, longest: int = 0, spread: Spread = "lognormal") -> Lengths:
    """Return the law of lengths of a workload: its width from p95 and p99 where both are known.

    Raises InputError: an answer that leaves no prompt.
    """
    if not 0 < output < context:
        raise InputError(f"an answer of {output:,} tokens leaves no prompt in a context of {context:,}", hint="--output TOKENS")
    if spread == "fixed":
        return Lengths(context, output, shared, longest or context)
    sigma = log((p99 - output) / (context - output)) / (Z99 - Z95) if p99 > context else USUAL_SIGMA
    return Lengths(context, output, shared, longest or max(p99, context), min(2.0, sigma))


def sequences(law: Lengths, count: int, draw: Random) -> tuple[list[int], list[int]]:
    """Return prompts and answers of so many requests."""
    most = max(law.longest, law.context)
    if not law.sigma:
        return fixed(law.context - law.output, count), fixed(law.output, count)
    p95 = law.context - law.output
    answers = lognormal(law.output * exp(-0.125), law.output * exp(-0.125 + 0.5 * Z95), count, draw, most=max(1, most // 2))
    prompts = lognormal(p95 * exp(-law.sigma * Z95), p95, count, draw, most=most)
    return [max(1, min(prompt, most - answer)) for prompt, answer in zip(prompts, answers, strict=True)], answers


def at_rate(law: Lengths, rate: float, count: int, draw: Random, *, arrivals: Arrivals = "poisson", burstiness: float = 1.0) -> Requests:
    """Return an open loop: requests that come whether others are done or not, by a law of arrivals."""
    prompts, answers = sequences(law, count, draw)
    if arrivals == "constant":
        times = constant(rate, count)
    elif arrivals == "diurnal":
        times = diurnal(rate, count, draw, period_s=min(86_400.0, count / rate))
    else:
        times = gamma(rate, count, draw, burstiness)
    return checked(Requests(times, prompts, answers, pieces=pools(prompts, law.shared, law.systems, draw)))


def by_users(law: Lengths, users: int, count: int, draw: Random, *, think_s: float = 0.0, ramp_s: float = 0.0) -> Requests:
    """Return a closed loop: so many users, each sends the next request when one is done, after thinking (exponential, mean `think_s`).

    They begin all at once, as load generators do, or spread over `ramp_s`.
    """
    if users < 1 or think_s < 0 or ramp_s < 0:
        raise InputError(f"{users} users, {think_s:g} s of thought and a ramp of {ramp_s:g} s are none")
    prompts, answers = sequences(law, count, draw)
    if think_s or ramp_s:
        first = [ramp_s * user / users for user in range(min(users, count))]
        later = [draw.expovariate(1 / think_s) if think_s else 0.0 for _ in range(count - len(first))]
        after = [-1] * len(first) + list(range(count - len(first)))
        return checked(Requests(first + later, prompts, answers, after, pools(prompts, law.shared, law.systems, draw)))
    return checked(Requests([0.0] * count, prompts, answers, pieces=pools(prompts, law.shared, law.systems, draw), in_flight=users))


def conversations(law: Lengths, users: int, turns: int, think_s: float, draw: Random) -> Requests:
    """Return conversations: each user's next prompt holds all that was said before, and is sent a while after the last answer.

    The time between is exponential with a mean of `think_s`; the first turns are spread over one such time.
    """
    if users < 1 or turns < 1 or think_s < 0:
        raise InputError(f"{users} users, {turns} turns and {think_s:g} s between them are none")
    whole, _ = sequences(law, users, draw)
    _, answers = sequences(law, users * turns, draw)
    most = max(law.longest, law.context)
    arrival: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    after: list[int] = []
    pieces: list[tuple[Piece, ...]] = []
    answer: list[Hashable] = []
    for user in range(users):
        said = next(iter(pools([law.shared], law.shared, law.systems, draw)), ())
        tokens, before = law.shared, -1
        for turn in range(turns):
            output = answers[user * turns + turn]
            new = max(1, (whole[user] + law.output - law.shared) // turns - output)
            if tokens + new + output > most:
                break  # the conversation is as long as the engine takes
            said = (*said, ((user, turn), new))
            tokens += new
            arrival.append(draw.expovariate(1 / think_s) if think_s else 0.0)
            prompts.append(tokens)
            outputs.append(output)
            pieces.append(said)
            answer.append((user, turn, "answer"))
            after.append(before)
            before = len(prompts) - 1
            said = (*said, ((user, turn, "answer"), output))
            tokens += output
    return checked(Requests(arrival, prompts, outputs, after, pieces, answer))


def of_trace(trace: Trace, *, faster: float = 1.0, most: int = 0) -> Requests:
    """Return the requests of a recorded trace at their own times, with the blocks that they share.

    Raises InputError: a trace without lengths, or with none that can be sent.
    """
    if not trace.prompt_tokens or not trace.output_tokens:
        lacks = "prompts" if not trace.prompt_tokens else "answers"
        raise InputError(
            f"the trace does not say how long its {lacks} are",
            hint="a log with both of each request; --map prompt=COLUMN,output=COLUMN where it names them otherwise",
        )
    kept = [
        index for index in range(len(trace.arrival_s)) if trace.prompt_tokens[index] > 0 and trace.output_tokens[index] > 0
    ][: most or None]  # fmt: skip
    if not kept:
        raise InputError("no request of the trace has both a prompt and an answer")
    first = trace.arrival_s[kept[0]]
    pieces: list[tuple[Piece, ...]] = []
    if trace.block_tokens and trace.block_ids:
        size = trace.block_tokens
        for index in kept:
            ids = trace.block_ids[trace.block_at[index] : trace.block_at[index + 1]]
            left = trace.prompt_tokens[index]
            pieces.append(tuple((block, min(size, left - at * size)) for at, block in enumerate(ids) if left > at * size))
    times = [(trace.arrival_s[index] - first) / faster for index in kept]
    return checked(
        Requests(times, [trace.prompt_tokens[index] for index in kept], [trace.output_tokens[index] for index in kept], pieces=pieces)
    )
