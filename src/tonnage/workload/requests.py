"""A list of requests as columns: what a simulator and a load generator are both fed, the same list for the same seed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from tonnage.errors import InputError

Piece = tuple[Hashable, int]
"""(what a piece of a prompt is, its tokens): equal pieces behind equal pieces are the same text."""


class Requests(msgspec.Struct, frozen=True):
    """Requests in the order they are sent; all columns are of one length.

    `arrival_s` is when a request is sent, or, where `after` names another (its index, -1 for none), how long after that one has
    finished. `in_flight` above 0 is a closed loop: so many at once, the next is sent when one finishes, whatever `arrival_s` says.
    `pieces` are the parts of a prompt that others may share, from its start; `answer` names the piece that an answer becomes
    for the next turn of its conversation ("" for none).
    """

    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    after: Sequence[int] = ()
    pieces: Sequence[tuple[Piece, ...]] = ()
    answer: Sequence[Hashable] = ()
    priority: Sequence[int] = ()
    in_flight: int = 0

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self.prompt_tokens)


def checked(requests: Requests) -> Requests:
    """Return the requests as they are.

    Raises InputError: none at all, columns of other lengths, empty prompts or answers, times that run back or are none.
    """
    count = len(requests.prompt_tokens)
    if not count:
        raise InputError("there are no requests")
    for name in ("arrival_s", "output_tokens", "after", "pieces", "answer", "priority"):
        column = getattr(requests, name)
        if len(column) not in ((count,) if name in ("arrival_s", "output_tokens") else (0, count)):
            raise InputError(f"{len(column)} values of {name} for {count} requests")
    for index in range(count):
        if requests.prompt_tokens[index] < 1 or requests.output_tokens[index] < 1:
            raise InputError(f"request {index + 1} has {requests.prompt_tokens[index]} tokens in and {requests.output_tokens[index]} out")
        if not 0 <= requests.arrival_s[index] < 1e9:
            raise InputError(f"request {index + 1} is sent at {requests.arrival_s[index]!r}")
        if requests.after and not -1 <= requests.after[index] < index:
            raise InputError(f"request {index + 1} follows one that does not come before it")
    return requests
