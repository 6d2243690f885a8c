"""What people write ends up in the log.

Up to 0.9 vLLM logged every prompt unless --disable-log-requests said no; since 0.10 --enable-log-requests asks for it. Logs
travel to aggregators that were never meant to hold personal data.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --enable-log-requests

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.place import Place
from tonnage.lint.problem import Problem

ID = "request-logging"
SEVERITY = "warning"
OPT_IN = (0, 10)


def check(case: Case) -> Iterator[Problem]:
    server = case.server
    limit = server.number("--max-log-len")
    if limit == 0:
        return
    for name in ("--enable-log-requests", "--enable-log-outputs", "--log-requests"):
        flag = server.flag(name)
        if flag is not None and flag.on:
            yield _problem(flag.place, f"{name} writes what people send into the log", f"drop {name}")
    old = case.engine == "vllm" and case.release is not None and case.release < OPT_IN
    if old and server.flag("--disable-log-requests") is None and not server.incomplete and case.release is not None:
        release = f"{case.release[0]}.{case.release[1]}"
        yield _problem(server.place, f"vLLM {release} logs every prompt unless told not to", "add --disable-log-requests")
    for name in ("OLLAMA_DEBUG_LOG_REQUESTS", "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"):
        word = server.environment.get(name)
        if word is not None and word.text.lower() in ("1", "true", "yes", "on"):
            yield _problem(word.place, f"{name} writes what people send into the log", f"drop {name}")


def _problem(place: Place, message: str, fix: str) -> Problem:
    return Problem(
        place, message, "prompts reach log aggregators that were never meant to hold them", f"{fix}; log metadata at the gateway"
    )
