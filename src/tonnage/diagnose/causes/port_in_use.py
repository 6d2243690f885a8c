"""Another program listens on the port."""

from __future__ import annotations

from tonnage.diagnose.cause import Told
from tonnage.diagnose.start import Sign, Start
from tonnage.lint.case import Case

ID = "port-in-use"


def explain(start: Start, sign: Sign, case: Case) -> Told:
    port = case.server.text("--port") or "8000"
    return Told(
        f"another program listens on port {port}, perhaps the engine's own last start", f"end it, or use another --port than {port}"
    )
