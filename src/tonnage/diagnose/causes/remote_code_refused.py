"""The checkpoint wants its own Python files run, and nothing allows it."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "remote-code-refused"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    return Told(
        "config.json names Python files of the checkpoint (auto_map), and trust_remote_code is off, as it should be",
        "serve a model that the engine supports itself, or read those files, pin the artifact by its hashes and only then allow them",
    )
