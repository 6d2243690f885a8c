"""A traffic log that a command is given: a file or stdin, plain or gzip, in any format that is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tonnage.cli.options import read_file, whole
from tonnage.errors import InputError


def read_traffic(file: str, form: str = "", given: Any = None, block_tokens: int = 0) -> Any:
    """Return what a file or stdin holds.

    Raises InputError: no such file, cut gzip, or nothing in it that can be read.
    """
    from tonnage.diagnose.lines import opened
    from tonnage.workload.traces.read import read_trace

    if file == "-":
        if sys.stdin is None:
            raise InputError("stdin is closed", hint="give a file, or pipe one in")
        with whole("stdin"):
            return read_trace(opened(sys.stdin.buffer), "stdin", form=form, given=given, block_tokens=block_tokens)
    path = Path(file)
    if not path.exists() or path.is_dir():
        read_file(path)
    try:
        raw = path.open("rb")
    except OSError:
        read_file(path)
        raise
    with whole(file), opened(raw) as stream:
        return read_trace(stream, file, form=form, given=given, block_tokens=block_tokens)
