"""What stands in clear text that should not: tokens and keys in environments, flags and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tonnage.lint.place import Word
from tonnage.lint.server import Flag, Secret, hidden

NAMES = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|APIKEY|ACCESS_KEY|SECRET_KEY|CREDENTIALS)(?:_|$)", re.IGNORECASE)
LOOKS = re.compile(
    r"^(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.)"
)
PLACEHOLDER = re.compile(r"^(?-i:[A-Z_-]+)$|your[-_ ]|xxx|\*\*\*|replace|placeholder|\.\.\.", re.IGNORECASE)
HARMLESS = ("", "0", "1", "true", "false", "none", "null", "empty", "dummy", "token", "token-abc123", "/")


def is_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret in clear text, by its look or by the name it is given to.

    >>> is_secret("HF_TOKEN", "hf_000000EXAMPLEONLY000000"), is_secret("HF_TOKEN", "$HF_TOKEN"), is_secret("VLLM_PORT", "8000")
    (True, False, False)
    """
    if hidden(value) or value.strip().lower() in HARMLESS or value.startswith(("/", "<")):
        return False
    if LOOKS.match(value):
        return True
    if PLACEHOLDER.search(value):
        return False
    return (
        bool(NAMES.search(name))
        and not name.upper().endswith(("_FILE", "_PATH", "_NAME", "_URL"))
        and len(value) >= 6
        and not value.isdigit()
    )


def secrets_in(environment: Mapping[str, Word], flags: Sequence[Flag], *, shell: bool = False) -> list[Secret]:
    """Return the secrets of an environment and of flags; in a shell what a command prints is none."""
    found = [Secret(name, word.place) for name, word in environment.items() if is_secret(name, word.text)]
    for flag in flags:
        if flag.name in ("--api-key", "--hf-token", "--admin-api-key") and flag.value and is_secret("API_KEY", flag.value):
            found.append(Secret(flag.name, flag.place))
    return found
