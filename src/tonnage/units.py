"""Text with units <-> plain numbers, at the edge only.

Inside, bytes, tokens and blocks are `int`, seconds, rates and shares `float`. `k`, `GiB`, `%` exist here, in the
command line, the reports and the data files, nowhere else. GB is 10^9, GiB 2^30; `16k` tokens are 16,000, `16K` and
`16Ki` are 16,384, as vLLM's own command line reads them.
"""

from __future__ import annotations

import re

from tonnage.errors import InputError

KIB, MIB, GIB = 2**10, 2**20, 2**30

_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 2**40}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": KIB, "M": MIB, "G": GIB, "Ki": KIB, "Mi": MIB, "Gi": GIB}
_NUMBER = re.compile(r"^\s*([0-9][0-9_,]*\.?[0-9]*)\s*([A-Za-z/]*)\s*$")


def parse_bytes(text: str, *, where: str = "") -> int:
    """Return a size in bytes; the unit is required.

    >>> parse_bytes("24 GB"), parse_bytes("22.03 GiB"), parse_bytes("23034 MiB")
    (24000000000, 23654532382, 24152899584)

    Raises InputError: no number, no unit, or a unit that is none of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB.
    """
    number, unit = _split(text, "size", "'24 GiB' or '24 GB'", where)
    factor = _BYTES.get(unit.upper())
    if factor is None:
        problem = f"size {text!r} has a unit we do not know" if unit else f"size {text!r} has no unit"
        raise InputError(problem, where=where, hint="write it like '24 GiB' or '24 GB'")
    return int(number * factor)


def parse_rate(text: str, *, where: str = "") -> float:
    """Return a bandwidth in bytes per second, from text like `864GB/s` or `4.8 TB/s`.

    >>> parse_rate("864GB/s")
    864000000000.0
    """
    if not text.rstrip().lower().endswith("/s"):
        raise InputError(f"bandwidth {text!r} is not per second", where=where, hint="write it like '864GB/s'")
    return float(parse_bytes(text.rstrip()[:-2], where=where))


def parse_tokens(text: str, *, where: str = "") -> int:
    """Return a count of tokens; k, m are decimal, K, Ki, M, Mi binary.

    >>> parse_tokens("24k"), parse_tokens("16K"), parse_tokens("16Ki"), parse_tokens("1.5k"), parse_tokens("32768")
    (24000, 16384, 16384, 1500, 32768)
    """
    number, unit = _split(text, "count", "'16000', '16k' (16,000) or '16Ki' (16,384)", where)
    factor = _COUNTS.get(unit)
    if factor is None or number * factor != int(number * factor):
        problem = f"count {text!r} is not a whole number" if factor else f"count {text!r} has a unit we do not know"
        raise InputError(problem, where=where, hint="write it like '16000', '16k' (16,000) or '16Ki' (16,384)")
    return int(number * factor)


def parse_share(text: str, *, where: str = "") -> float:
    """Return a share between 0 and 1, from `0.7` or `70%`.

    >>> parse_share("0.7"), parse_share("70%")
    (0.7, 0.7)
    """
    bare = text.strip()
    try:
        share = float(bare[:-1]) / 100 if bare.endswith("%") else float(bare)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"share {text!r} is not between 0 and 1", where=where, hint="write it like '0.7' or '70%'")
    return share


def _split(text: str, what: str, example: str, where: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if match is None:
        raise InputError(f"{what} {text!r} is not a number", where=where, hint=f"write it like {example}")
    digits = match[1].replace(",", "").replace("_", "")
    if len(digits) > 30:
        raise InputError(f"{what} {digits[:12]}... is out of range", where=where, hint=f"write it like {example}")
    return float(digits), match[2]


def gib(count: int | float, digits: int = 2) -> str:
    """Return bytes as GiB without the unit.

    >>> gib(23_654_532_383)
    '22.03'
    """
    return f"{count / GIB:,.{digits}f}"


def size(count: int) -> str:
    """Return bytes with the unit a person would choose.

    >>> size(16_384), size(313_000_000), size(9_319_730_176), size(800)
    ('16 KiB', '298.5 MiB', '8.68 GiB', '800 B')
    """
    for unit, factor, digits in (("GiB", GIB, 2), ("MiB", MIB, 1), ("KiB", KIB, 1)):
        if abs(count) >= factor:
            text = f"{count / factor:,.{digits}f}"
            return f"{text.removesuffix('.0').removesuffix('.00')} {unit}"
    return f"{count} B"


def counted(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "user"), counted(24_000, "token")
    ('1 user', '24,000 tokens')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient rounded up; memory needed rounds up, capacity rounds down."""
    return -(-numerator // denominator)
