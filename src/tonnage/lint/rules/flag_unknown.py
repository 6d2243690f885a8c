"""A flag that this release does not know: the engine exits with "unrecognized arguments".

Flags come and go: --disable-log-requests went after 0.16, --swap-space after 0.17. Underscores, unique abbreviations and
--a=b are read as the engine's own parser reads them.

BAD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max-num-seqs 16 --swap-space 8

GOOD (engine=vllm 0.24):

    vllm serve /models/m --served-model-name m-8b-v1 --host 127.0.0.1 --max_num_seqs 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts.flags import SHORT, every_flag, flag_releases, flags_of
from tonnage.lint.case import Case
from tonnage.lint.problem import Problem
from tonnage.settings.argv import abbreviated, positive, unknown_flag

ID = "flag-unknown"
SEVERITY = "error"
ENGINES = ("vllm",)
OUTSIDE = {
    "--help",
    "--version",
    "--disable-frontend-multiprocessing",
    "--enable-ssl-refresh",
    "-O",
    "-h",
    "-v",
    "--h11-max-incomplete-event-size",
}
"""Flags that are read elsewhere than in the parsers our table was read from."""


def check(case: Case) -> Iterator[Problem]:
    if case.server.wrapper:
        return  # flags of the program around the engine are its own
    oldest = flag_releases()[0]
    release = case.release
    for flag in case.server.flags:
        name = flag.name
        if name in OUTSIDE or name in SHORT or not name.startswith("--") or flag.given == "" or "$" in name or name.startswith("-O"):
            if not name.startswith("--") and name.lstrip("-") and name not in OUTSIDE and name not in SHORT and not name.startswith("-O"):
                yield _problem(case, flag.place, f"{name}: no vLLM release has such a flag; {_meant(name)}", "")
            continue
        if positive(name) not in every_flag():
            several = abbreviated(name, release or flag_releases()[-1])
            if len(several) > 1:
                yield _problem(case, flag.place, f"{name} may mean {', '.join(several[:4])}", "write it in full")
            else:
                yield _problem(case, flag.place, unknown_flag(name, release or flag_releases()[-1]), "")
        elif release is not None and release >= oldest and positive(name) not in flags_of(release):
            yield _problem(case, flag.place, unknown_flag(name, release), _instead(name))


def _problem(case: Case, place: object, said: str, fix: str) -> Problem:
    message, _, hint = said.partition("; ")
    return Problem(place, message, "the engine exits with 'unrecognized arguments' before it loads anything", fix or hint or "leave it out")  # type: ignore[arg-type]


def _meant(name: str) -> str:
    return f"did you mean -{name}?" if "-" + name in every_flag() else "leave it out"


GONE = {
    "--disable-log-requests": "leave it out: requests are not logged by default since 0.10",
    "--swap-space": "leave it out: preempted requests are computed again, not swapped",
    "--use-v2-block-manager": "leave it out: there is only one block manager",
    "--num-scheduler-steps": "leave it out: steps overlap by themselves",
    "--preemption-mode": "leave it out: recomputing is the only mode",
    "--max-seq-len-to-capture": "use --max-cudagraph-capture-size for graphs, or leave it out",
    "--guided-decoding-backend": "use --structured-outputs-config",
    "--task": "use --runner, or leave it out",
}


def _instead(name: str) -> str:
    return GONE.get(name, "leave it out, or run a release that has it")
