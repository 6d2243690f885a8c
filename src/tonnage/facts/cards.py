"""Which card does a name mean? Reads the catalogue's files, the user's own, and this host.

A name may be a slug or an alias in any spelling (`L4`, `NVIDIA A100-SXM4-80GB`), with a count (`8xH100`), a cloud
instance (`g6.12xlarge`), a slice (`h100:3g.40gb`), the user's own words (`custom:"48 GiB",864GB/s,8.9`) or `local`.

One card is one file, and `index.json` says which: a plan for an L4 reads two small files, not sixty.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tonnage.errors import EndpointError, InputError, UnknownError, closest_hint, nearest
from tonnage.facts.gpu import (
    Card,
    card_of,
    custom_card,
    memory_from_nvidia_smi,
    parse_card,
)
from tonnage.facts.slices import MIG_PROFILE, mig_slice
from tonnage.facts.tables import table
from tonnage.units import MIB

GPUS = Path(__file__).parent / "data" / "gpus"

_OTHERWISE = '`tonnage gpus` lists them; or describe yours: custom:"48 GiB",864GB/s,8.9'
_COUNT_FIRST = re.compile(r"([0-9]{1,5})\s*[x×*]\s*(.+)", re.IGNORECASE | re.DOTALL)
_COUNT_LAST = re.compile(r"(.+?)\s*(?:[x×*]|:)\s*([0-9]{1,5})", re.IGNORECASE | re.DOTALL)


class CardChoice(msgspec.Struct, frozen=True):
    """The card that a name means, how many where the name said so, and what was assumed in choosing it."""

    card: Card
    count: int | None = None
    note: str = ""


class Index(msgspec.Struct, frozen=True):
    """Where names lead: plain name -> slugs, the default where several share a name, instance -> (slug, cards)."""

    names: dict[str, tuple[str, ...]]
    defaults: dict[str, str]
    instances: dict[str, tuple[str, int]]


def plain_name(name: str) -> str:
    """Return a card's name as it is compared: case, spaces, dashes and vendor words do not count.

    >>> [plain_name(name) for name in ("NVIDIA A100-SXM4-80GB", "a100 sxm 80g", "nvidia-tesla-t4", "RTX 3090")]
    ['a100sxm80g', 'a100sxm80g', 't4', 'rtx3090']
    """
    text = re.sub(r"(?<=[0-9])\s*gi?b?(?![a-z0-9])", "g", name.lower())
    text = re.sub(r"[^a-z0-9]", "", re.sub(r"sxm[0-9]", "sxm", text))
    return re.sub(r"^(?:nvidia|amd|intel|google|geforce|tesla|instinct|radeon)+(?=.)", "", text)


def index_of(cards: Iterable[Card]) -> Index:
    """Return the index over these cards; `index.json` is this value over the catalogue's files."""
    names: dict[str, list[str]] = {}
    defaults: dict[str, str] = {}
    instances: dict[str, tuple[str, int]] = {}
    for card in sorted(cards, key=lambda card: card.slug):
        for alias in (card.slug, card.name, *card.aliases, *card.default_for):
            slugs = names.setdefault(plain_name(alias), [])
            if card.slug not in slugs:
                slugs.append(card.slug)
        defaults.update({plain_name(alias): card.slug for alias in (card.slug, *card.default_for)})
        for rows in card.cloud.values():
            instances.update({name.lower(): (card.slug, count) for name, count in rows.items()})
    shared = {name: slug for name, slug in defaults.items() if len(names[name]) > 1}
    return Index({name: tuple(slugs) for name, slugs in sorted(names.items())}, shared, instances)


def load_card(path: Path) -> Card:
    """Return the card in a TOML file; its slug is the file's name. Raises InputError naming file and field."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from None
    return parse_card(text, slug=path.stem, where=path.name)


def all_cards(extra: Path | None = None) -> list[Card]:
    """Return every card by slug; a file in `extra` takes the place of the catalogue's of the same name."""
    found = {path.stem: path for path in [*GPUS.glob("*.toml"), *_extra_files(extra)]}
    return [load_card(found[slug]) for slug in sorted(found)]


def find_card(name: str, extra: Path | None = None) -> CardChoice:
    """Return the card that `name` means; cards in the directory `extra` go first.

    >>> find_card("8xH100").card.slug, find_card("8xH100").count, find_card("g6.12xlarge").count
    ('h100-sxm', 8, 4)
    >>> find_card("a100").note
    'a100 read as A100 SXM4 80GB; others by that name: a100-40g-pcie, a100-40g-sxm, a100-80g-pcie'

    Raises UnknownError: no such card, or several and none that is meant as a rule. InputError: not a name at all.
    """
    text = name.strip()
    if not 0 < len(text) <= 200:
        raise InputError("a card needs a name", where="gpu", hint=_OTHERWISE)
    if text.lower() == "local":
        return local_card(extra)
    own = [load_card(path) for path in _extra_files(extra)]
    whole = _lookup(text, own)
    if whole is not None:
        return whole
    first, last = _COUNT_FIRST.fullmatch(text), _COUNT_LAST.fullmatch(text)
    for counted, rest in ((first and first[1], first and first[2]), (last and last[2], last and last[1])):
        choice = _lookup(rest.strip(), own) if counted and rest else None
        if counted and choice is not None:
            return _times(choice, int(counted), text)
    raise UnknownError(f"no card is named {text!r}", hint=_closest(first[2] if first else text, own))


def _closest(text: str, own: list[Card]) -> str:
    """Return a hint with the slugs whose names come closest; instances only where no card's name does."""
    index, mine = _index(), index_of(own)
    names = {**index.names, **mine.names}
    close = nearest(plain_name(text), names, 6)
    slugs = list(dict.fromkeys(mine.defaults.get(name, index.defaults.get(name, names[name][0])) for name in close))
    if not slugs:
        return closest_hint(text, index.instances, _OTHERWISE)
    return f"closest are {', '.join(slugs[:2])} and {slugs[2]}" if len(slugs) > 2 else f"closest: {', '.join(slugs)}"


def _times(choice: CardChoice, count: int, text: str) -> CardChoice:
    if count < 1:
        raise InputError(f"{text!r} asks for no card", where="gpu")
    if choice.count is None:
        return CardChoice(choice.card, count, choice.note)
    said = f"{count} machines of {choice.count} cards each"
    return CardChoice(choice.card, count * choice.count, f"{choice.note}; {said}" if choice.note else said)


def _lookup(text: str, own: list[Card]) -> CardChoice | None:
    """Return the choice for a name without a count, None where it is no name of a card."""
    if text.lower().startswith("custom:"):
        return CardChoice(custom_card(text[len("custom:") :]))
    base, colon, profile = text.rpartition(":")
    if colon and MIG_PROFILE.match(profile.lower()):
        whole = _lookup(base, own)
        return whole and CardChoice(mig_slice(whole.card, profile), whole.count, whole.note)
    mine = {card.slug: card for card in own}
    found = _in_index(text, index_of(own)) if own else None
    found = found or _in_index(text, _index())
    if found is None:
        return None
    slug, count, note = found
    card = mine.get(slug) or card_of(table(f"gpus/{slug}"), slug=slug)
    return CardChoice(card, count, f"{text} read as {card.name}; {note}" if note else "")


def _in_index(text: str, index: Index) -> tuple[str, int | None, str] | None:
    instance = text.lower().replace(" ", "")
    if (at := index.instances.get(instance) or index.instances.get(f"standard_{instance}")) is not None:
        return at[0], at[1], ""
    plain = plain_name(text)
    slugs = index.names.get(plain, ())
    if len(slugs) > 1 and plain not in index.defaults:
        raise UnknownError(f"{text!r} may be one of several cards", hint=f"say which: {', '.join(slugs)}")
    if not slugs:
        return None
    slug = index.defaults.get(plain, slugs[0])
    others = [other for other in slugs if other != slug]
    return slug, None, f"others by that name: {', '.join(others)}" if others else ""


@functools.cache
def _index() -> Index:
    return msgspec.json.decode((GPUS / "index.json").read_bytes(), type=Index)


def _extra_files(extra: Path | None) -> list[Path]:
    if extra is None:
        return []
    if not extra.is_dir():
        raise InputError("is not a directory of card files", where=str(extra))
    return sorted(extra.glob("*.toml"))


def local_card(extra: Path | None = None, *, listing: str | None = None) -> CardChoice:
    """Return the cards of this host; `listing` stands in for nvidia-smi's answer.

    >>> local_card(listing="NVIDIA L4, 23034 MiB, 8.9\\nNVIDIA L4, 23034 MiB, 8.9").count
    2

    Of several kinds the most numerous is taken, and the note says so. Where the host shows another size than the
    catalogue (error correction off, a modified card), the host's is used. Raises InputError where there is no GPU.
    """
    rows = parse_nvidia_smi(_nvidia_smi() if listing is None else listing)
    if not rows:
        raise InputError("no GPU is visible on this host", where="gpu local", hint="name the card: --gpu L4")
    names = [row[0] for row in rows]
    kind = max(dict.fromkeys(names), key=names.count)
    choice = _lookup(kind, [load_card(path) for path in _extra_files(extra)])
    if choice is None:
        hint = 'describe it: custom:"MEMORY AS CUDA SEES IT",BANDWIDTH,COMPUTE CAPABILITY'
        raise UnknownError(f"this host has {kind!r}, which the catalogue does not know", hint=hint)
    card, note = choice.card, choice.note
    if len(set(names)) > 1:
        note = f"{len(set(names))} kinds of card here; read as {names.count(kind)} x {card.name}"
    _, smi, capability = next(row for row in rows if row[0] == kind)
    if smi and capability and card.nvidia_smi_bytes and abs(smi - card.nvidia_smi_bytes) > 64 * MIB:
        card = msgspec.structs.replace(card, memory=memory_from_nvidia_smi(smi, capability), nvidia_smi_bytes=smi)
        said = f"this host's {card.name} shows {smi // MIB} MiB, not the catalogue's size; the host's is used"
        note = f"{note}; {said}" if note else said
    return CardChoice(card, names.count(kind), note)


def parse_nvidia_smi(text: str) -> list[tuple[str, int | None, tuple[int, int] | None]]:
    """Return name, bytes and compute capability of each card, from `--query-gpu=name,memory.total,compute_cap`.

    >>> parse_nvidia_smi("NVIDIA L4, 23034 MiB, 8.9")
    [('NVIDIA L4', 24152899584, (8, 9))]

    Unified-memory machines print `[N/A]` for the memory: None.
    """
    rows: list[tuple[str, int | None, tuple[int, int] | None]] = []
    for line in text.splitlines():
        parts: list[Any] = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[0]:
            size = re.fullmatch(r"([0-9]{1,9}) MiB", parts[1])
            capability = re.fullmatch(r"([0-9]{1,2})\.([0-9])", parts[2])
            rows.append((
                parts[0],
                int(size[1]) * MIB if size else None,
                (int(capability[1]), int(capability[2])) if capability else None,
            ))  # fmt: skip
    return rows


def _nvidia_smi() -> str:
    import subprocess

    command = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        hint = "name the card: --gpu L4; AMD and Intel cards are not looked for"
        raise InputError("no NVIDIA driver answers on this host", where="gpu local", hint=hint) from None
    except subprocess.TimeoutExpired:
        raise EndpointError("nvidia-smi did not answer in 20 s", where="gpu local") from None
    if answer.returncode != 0:
        said = (answer.stdout or answer.stderr).strip().partition("\n")[0]
        raise EndpointError(f"nvidia-smi failed: {said}", where="gpu local", hint="name the card: --gpu L4")
    return answer.stdout
