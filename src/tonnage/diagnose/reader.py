"""A log, line by line -> its starts, in one pass and constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from tonnage.diagnose.lines import Line, parsed
from tonnage.diagnose.measures import measure
from tonnage.diagnose.signs import NOISE, out_of_memory, sign_of
from tonnage.diagnose.start import MOST_EVIDENCE, MOST_TEXT, Evidence, Interval, Start

MOST_STARTS = 200
QUIET = ("INFO", "DEBUG")
"""Levels of remarks: a cause is graver, but for the end by a signal."""
MOST_FRAMES = 4000
_PERIODIC = re.compile(
    r"(?:Engine (\d+): )?Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs, "
    r"(?:Swapped: \d+ reqs, )?(?:Waiting|Pending): (\d+) reqs,(?: Preemptions: (\d+),)?(?: \w+ KV cache usage: ([\d.]+)%)?"
    r"(?:.*?[Pp]refix cache hit rate: (?:GPU: )?([\d.]+)%)?"
)
_SGLANG = re.compile(
    r"Decode batch.*?#running-req: (\d+).*?token usage: ([\d.]+).*?gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)"
)
_BEGIN = (
    "non-default args: ",
    "vLLM API server version ",
    "args: Namespace(",
    "server_args=",
    "usage: vllm",
    "usage: api_server",
    "build: ",
)
_BANNER = re.compile(r"\bversion 0\.\d+\.\d+\S*\s*$")
_CLOSED = re.compile(r"(?:\S+ )?exited with code (\d+)|-+ ?(?:container )?restart|Back-off restarting failed container")
_FRAME = re.compile(r'\s*File "([^"]{1,300})", line \d+, in (\S+)')
_EXCEPTION = re.compile(r"^(?:[a-z_0-9.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)|^terminate called|^\S+: error: ")


def read_starts(lines: Iterable[tuple[int, str]]) -> list[Start]:
    """Return the starts in a log; what stands before the first sign of one belongs to it."""
    reader = _Reader()
    for number, text in lines:
        reader.take(number, text)
    return reader.finished()


class _Reader:
    """The start that is being read, the tracebacks of its processes, and the starts before it."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.start = Start()
        self.frames: dict[str, str] = {}
        self.told = False
        self.left_out = 0

    def finished(self) -> list[Start]:
        if not self.start.empty:
            self.starts.append(self.start)
        return self.starts

    def take(self, number: int, text: str) -> None:
        if ' HTTP/1.1"' in text or not text or text.isspace():
            return
        line = parsed(number, text)
        message = line.text
        begins = message.startswith(_BEGIN) or ("version 0." in message and _BANNER.search(message) is not None)
        if self.start.closed or (begins and self._anew(message)):
            self._next(number)
        start = self.start
        start.first_line = start.first_line or number
        start.last_line = number
        if line.at is not None:
            start.began_at = line.at if start.began_at is None else start.began_at
            start.ended_at = line.at
        if "throughput" in message and self._interval(line):
            return
        closed = _CLOSED.match(text) if "exited with" in text or "estart" in text else None
        if closed is not None:
            start.closed = not start.empty
            return
        frame = _FRAME.match(message) if 'File "' in message else None
        if frame is not None:
            known = self.frames.get(line.process, "")
            self.frames[line.process] = f"{known[-MOST_FRAMES:]} {frame[1].rsplit('/', 1)[-1]} {frame[2]}"
            return
        if message.startswith("Traceback (most recent call last)"):
            self.frames[line.process] = ""
            return
        if measure(start, message) or (line.level in QUIET and "received signal" not in message):
            return
        self._sign(line)

    def _anew(self, message: str) -> bool:
        """Return whether a line that begins a start begins another one: the present one is past that point."""
        start = self.start
        if start.stage != "start" or start.signs:
            return True
        told = "non-default args" in message or "Namespace(" in message or "server_args=" in message
        return bool(start.arguments) and (told or "version 0." in message)

    def _next(self, number: int) -> None:
        if not self.start.empty:
            if len(self.starts) >= MOST_STARTS:
                del self.starts[MOST_STARTS // 2]
            self.starts.append(self.start)
        self.start = Start(first_line=number)
        self.frames = {}

    def _interval(self, line: Line) -> bool:
        match = _PERIODIC.match(line.text)
        if match is not None:
            prompt, generation, running, waiting = float(match[2]), float(match[3]), int(match[4]), int(match[5])
            hits = float(match[8]) / 100 if match[8] else None
            one = Interval(line.number, running, waiting, float(match[7] or 0) / 100, hits, int(match[6] or 0), prompt, generation)
        else:
            other = _SGLANG.search(line.text)
            if other is None:
                return False
            self.start.engine = "sglang"
            one = Interval(line.number, int(other[1]), int(other[4]), float(other[2]), None, 0, 0.0, float(other[3]))
        start = self.start
        start.at_stage("ready")
        start.count += 1
        start.running = one
        if start.worst is None or one.cache_share >= start.worst.cache_share:
            start.worst = one
        start.last_interval = Evidence(line.number, line.text[:MOST_TEXT])
        if one.preemptions:
            start.preemptions += one.preemptions
            start.first_preemption = start.first_preemption or start.last_interval
        return True

    def _sign(self, line: Line) -> None:
        start, message = self.start, line.text
        found = sign_of(message)
        if found is None:
            if _EXCEPTION.match(message) is not None and NOISE.search(message) is None and len(start.unread) < MOST_EVIDENCE:
                start.unread.append(Evidence(line.number, message.strip()[:MOST_TEXT]))
            return
        cause, match = found
        if cause == "oom":
            cause = out_of_memory(self.frames.get(line.process, ""), start.stage)
        if cause == "probe-killed" and (start.stage == "ready" or start.signs):
            return
        words = {name: text for name, text in match.groupdict().items() if text}
        if cause in ("oom-weights", "oom-activation", "oom-graph", "oom-sampler", "memory-held-by-others"):
            words |= memory_words(message)
        start.sign(cause, line.number, message, words, line.at)


def memory_words(text: str) -> dict[str, str]:
    """Return what PyTorch says of a card that ran out: what was asked for, what is free, what there is."""
    match = re.search(
        r"Tried to allocate ([\d.]+ [MG]iB)\. GPU (\d+) has a total capacity of ([\d.]+) GiB of which ([\d.]+ [MG]iB) is free", text
    )
    if match is None:
        return {}
    return {"asked": match[1], "gpu": match[2], "capacity": match[3], "free_now": match[4]}


def first_lines(lines: Iterable[tuple[int, str]], count: int) -> list[tuple[int, str]]:
    """Return the first lines, to see what a file is."""
    return list(islice(lines, count))
