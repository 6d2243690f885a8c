"""A workload as a plan needs it: peak users at once and the length of a sequence, not their averages."""

from __future__ import annotations

import msgspec

from tonnage.errors import InputError


class Workload(msgspec.Struct, frozen=True):
    """Peak concurrency and lengths in tokens.

    `context_tokens` is a whole sequence, prompt and answer (its p95); `p99_tokens` sizes the length limit, 0 where it is
    not known; `output_tokens` of the context are the answer; `shared_prefix_tokens` of it are the same for all users.
    """

    users: int
    context_tokens: int
    output_tokens: int = 0
    p99_tokens: int = 0
    shared_prefix_tokens: int = 0

    @property
    def longest(self) -> int:
        """The longest sequence that must be served."""
        return max(self.context_tokens, self.p99_tokens)


def workload(users: int, context: int, *, output: int = 0, p99: int = 0, shared: int = 0, share: float = 0.0) -> Workload:
    """Return a workload, with the shared prefix given in tokens or as a share of the context.

    >>> workload(16, 24_000, share=0.5).shared_prefix_tokens
    12000

    Raises InputError: nobody, no context, a prefix or an answer longer than the context.
    """
    for name, value, least in (("users", users, 1), ("context", context, 1), ("output", output, 0), ("shared prefix", shared, 0)):
        if value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")
    if not 0 <= share <= 1:
        raise InputError(f"a shared part of {share:g} is no share of the context", hint="write it like 0.5 or 50%")
    if p99 < 0:
        raise InputError(f"the longest sequence (p99) is {p99}; it must be at least 0, which leaves it to the context")
    prefix = shared or int(context * share)
    if prefix >= context:
        raise InputError(
            f"a shared prefix of {prefix:,} tokens leaves nothing of a context of {context:,}",
            hint="context is the whole sequence: prefix, own prompt and answer",
        )
    if output >= context:
        raise InputError(
            f"an answer of {output:,} tokens leaves no prompt in a context of {context:,}",
            hint="context is the whole sequence: prompt and answer",
        )
    return Workload(users, context, output, p99, prefix)
