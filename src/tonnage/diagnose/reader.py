"""A log, line by line -> its starts, in one pass and constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tonnage.diagnose.lines import Line, parsed
from tonnage.diagnose.measures import measure
from tonnage.diagnose.signs import NOISE, OUT_OF_MEMORY, STARTUP, out_of_memory, sign_of
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
_ENGINE = ("Initializing a V1 LLM engine (v", "Initializing an LLM engine (v")
"""What begins an engine; after a failure it begins another start."""
_HEADS = frozenset(begin[:4] for begin in (*_BEGIN, *_ENGINE))
LONG_AFTER_S = 1200
"""Seconds after a failure when another one belongs to another start, whatever stands between them."""
_BANNER = re.compile(r"\bversion 0\.\d+\.\d+\S*\s*$")
_CLOSED = re.compile(r"(?:\S+ )?exited with code (\d+)|==> .*restart|-+ ?(?:container )?restart|Back-off restarting failed container")
_OTHERS = re.compile(r"Process \d+ has ([\d.]+) ([MG])iB memory in use")
_OWN = re.compile(r"this process has ([\d.]+) ([MG])iB memory in use")
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
            if '" 200' in text and ("/v1/" in text or "/health" in text or "/generate" in text):
                self.start.at_stage("ready")
            return
        line = parsed(number, text)
        message = line.text
        if self.start.closed or ((message[:4] in _HEADS or "version 0." in message) and self._begins(message)):
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

    def _begins(self, message: str) -> bool:
        """Return whether a line is the first of another start."""
        if message.startswith(_ENGINE):
            return any(sign.cause in STARTUP or sign.cause.startswith("oom-") for sign in self.start.signs)
        return (message.startswith(_BEGIN) or _BANNER.search(message) is not None) and self._anew(message)

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
        start.prompted = start.prompted or one.prompt_per_s > 0 or one.running > 0
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
        words = {name: text for name, text in match.groupdict().items() if text}
        precise = cause != "oom"
        if not precise:
            frames = self.frames.get(line.process, "")
            cause, precise = out_of_memory(frames, start.stage), bool(frames)
        if cause == "probe-killed" and (start.stage == "ready" or any(sign.cause != cause for sign in start.signs)):
            return
        if cause in STARTUP and start.stage == "ready":
            return  # a request's trouble, not the start's: it serves
        if cause in OUT_OF_MEMORY:
            words |= memory_words(message)
            if "held" in words and cause != "oom-graph":
                cause = "memory-held-by-others"
        if not precise:
            words["guessed"] = "by the stage"
        elif cause in (*OUT_OF_MEMORY, "no-cache-blocks"):
            start.signs = [sign for sign in start.signs if "guessed" not in sign.words]
        if start.signs and _long_after(start.signs[-1].at, line.at) and cause not in [sign.cause for sign in start.signs]:
            self._next(line.number)
            start = self.start
            start.first_line = start.last_line = line.number
        start.sign(cause, line.number, message, words, line.at)


def _long_after(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now - before > LONG_AFTER_S


def memory_words(text: str) -> dict[str, str]:
    """Return what PyTorch says of a card that ran out: what was asked for, what is free, what there is."""
    match = re.search(
        r"Tried to allocate ([\d.]+ [MG]iB)\. GPU (\d+) has a total capacity of ([\d.]+) GiB of which ([\d.]+ [MG]iB) is free", text
    )
    if match is None:
        return {}
    words = {"asked": match[1], "gpu": match[2], "capacity": match[3], "free_now": match[4]}
    others = sum(float(size) / (1 if unit == "G" else 1024) for size, unit in _OTHERS.findall(text))
    own = _OWN.search(text)
    if own is not None and others > max(float(own[1]) / (1 if own[2] == "G" else 1024), 0.25 * float(match[3])):
        words |= {"held": f"{others:.2f}", "free": f"{float(match[3]) - others:.2f}", "total": match[3], "device": f"GPU {match[2]}"}
    return words
