"""The plan's knee was measured on something else than what it now plans.

A knee holds for the release, the model and the precision it was measured on; each of them moves it. Sweep again after every
change, before the number is relied on.

BAD (form=plan, measured=0.28):

    the plan of a model on 0.33 whose knee was measured on 0.28

GOOD (form=plan, measured=0.33):

    the plan of a model on 0.33 whose knee was measured on 0.33
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.lint.case import Case
from tonnage.lint.problem import Problem

ID = "measurement-stale"
SEVERITY = "warning"
FORMS = ("plan",)


def check(case: Case) -> Iterator[Problem]:
    measured, release = case.server.measured, case.server.release
    if measured is None or release is None:
        return
    now = {
        "release": f"{release[0]}.{release[1]}",
        "model": case.server.name,
        "precision": case.server.text("--kv-cache-dtype") or "auto",
    }
    then = {"release": ".".join(measured.release.split(".")[:2]), "model": measured.model, "precision": measured.precision}
    changed = [f"{key} {then[key]} then, {now[key]} now" for key in now if then[key] and then[key] != now[key]]
    if changed:
        yield Problem(
            measured.place,
            f"the knee was measured on something else: {'; '.join(changed)}",
            "each of them moves the knee, and with it --max-num-seqs and the replicas",
            "sweep again: tonnage bench URL --sweep",
        )
