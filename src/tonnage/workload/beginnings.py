"""What prompts begin with: one of some system prompts, pieces of documents, what was said before. Equal pieces are equal text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.workload.requests import Piece

if TYPE_CHECKING:
    from random import Random


def pools(prompts: Sequence[int], shared: int, many: int, draw: Random) -> list[tuple[Piece, ...]]:
    """Return pieces of prompts that begin with one of `many` system prompts of `shared` tokens, the n-th as often as 1 / n (Zipf).

    A prompt that is shorter holds as much of it as fits.
    """
    if many < 1 or shared < 0:
        raise InputError(f"{many} system prompts of {shared} tokens are none")
    if not shared:
        return []
    weights = [1 / (number + 1) for number in range(many)]
    chosen = draw.choices(range(many), weights, k=len(prompts)) if many > 1 else [0] * len(prompts)
    return [((("system", number), min(shared, tokens)),) for number, tokens in zip(chosen, prompts, strict=True)]


def chunks(prompts: Sequence[int], shared: int, documents: int, each: int, tokens: int, draw: Random) -> list[tuple[Piece, ...]]:
    """Return pieces of prompts with retrieved text: a system prompt, then `each` chunks of `tokens`, chosen out of so many by Zipf's law.

    A chunk is found again only where the same ones stand before it, as a prefix cache sees it; chunks that do not fit are left out.
    """
    if documents < each or each < 1 or tokens < 1:
        raise InputError(f"{each} chunks of {tokens} tokens out of {documents} are none")
    weights = [1 / (number + 1) for number in range(documents)]
    found = []
    for prompt in prompts:
        pieces: list[Piece] = [(("system", 0), min(shared, prompt))] if shared else []
        left = prompt - shared
        for number in dict.fromkeys(draw.choices(range(documents), weights, k=each)):
            if left >= tokens:
                pieces.append((("chunk", number), tokens))
                left -= tokens
        found.append(tuple(pieces))
    return found
