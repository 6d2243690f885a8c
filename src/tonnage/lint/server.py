"""What someone runs, whatever they wrote it in: engines, the containers and pods around them, the policies that close them.

Every form (command, compose, manifest, values, unit, plan) is read into these values; rules see nothing else. A field
that is None was not said, which is not the same as no.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tonnage.lint.context import Context
from tonnage.lint.place import Place, Word

Form = Literal["command", "docker", "compose", "pod", "values", "systemd", "plan"]


class Flag(msgspec.Struct, frozen=True):
    """A flag in its long spelling, its value (None for a switch), as it was given, and where."""

    name: str
    value: str | None
    given: str
    place: Place

    @property
    def on(self) -> bool:
        """Whether a switch is switched on."""
        return (self.value or "true").lower() != "false"


class Mount(msgspec.Struct, frozen=True):
    """A folder of a container: where, whether writing is refused, and what is behind it ("" unknown)."""

    path: str
    read_only: bool
    kind: str
    place: Place


class Port(msgspec.Struct, frozen=True):
    """A published port; address "" is every interface."""

    address: str
    inside: str
    place: Place


class SharedMemory(msgspec.Struct, frozen=True):
    """What /dev/shm is: its bytes (None: as large as the node's memory allows), and where it is said."""

    size: int | None
    place: Place


class Box(msgspec.Struct, frozen=True):
    """The container around an engine.

    `cards` counts the devices it is given, None where it is given all or nothing is said; `asks_cards` tells which.
    `user` is "root", "other" or "" where nothing is said; `user_place` is where. `card` is what a node selector names.
    """

    image: Word | None = None
    shared_memory: SharedMemory | None = None
    host_ipc: Place | None = None
    host_network: Place | None = None
    user: Literal["root", "other", ""] = ""
    user_place: Place | None = None
    ports: tuple[Port, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cards: int | None = None
    asks_cards: bool = False
    cards_place: Place | None = None
    card: str = ""


class Probe(msgspec.Struct, frozen=True):
    """A probe with the kubelet's defaults filled in; `timeout` is None where nothing is said, which means 1 s."""

    name: Literal["startup", "readiness", "liveness"]
    kind: Literal["http", "tcp", "exec", "grpc", ""]
    path: str
    port: str
    initial: int
    period: int
    failures: int
    timeout: int | None
    place: Place

    @property
    def patience_s(self) -> int:
        """Seconds from the container's start until the kubelet gives up on it."""
        return self.initial + self.period * self.failures


class Policy(msgspec.Struct, frozen=True):
    """One NetworkPolicy: whom it is for, and what it leaves open of each direction ("" it does not speak of it)."""

    namespace: str
    labels: tuple[tuple[str, str], ...]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...]
    ingress: Literal["open", "closed", ""]
    egress: Literal["open", "closed", ""]
    place: Place


class Service(msgspec.Struct, frozen=True):
    """One Service: its type, whom it leads to."""

    namespace: str
    kind: str
    labels: tuple[tuple[str, str], ...]
    place: Place


class Pod(msgspec.Struct, frozen=True):
    """What Kubernetes knows around a container: how many, how they are replaced, how they are watched, who reaches them.

    `surge` and `unavailable` are pods during an update, None where the strategy has none (Recreate, no Deployment).
    """

    kind: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    replicas: int = 1
    surge: int | None = None
    unavailable: int | None = None
    strategy_place: Place | None = None
    probes: tuple[Probe, ...] = ()
    ports: tuple[tuple[str, str], ...] = ()
    pods_a_replica: int = 1

    def probe(self, name: str) -> Probe | None:
        """Return the probe of a name."""
        return next((probe for probe in self.probes if probe.name == name), None)


class Secret(msgspec.Struct, frozen=True):
    """Something secret that stands in clear text: what it is called, and where."""

    name: str
    place: Place


class Measured(msgspec.Struct, frozen=True):
    """What a plan's knee was measured on."""

    release: str
    model: str
    precision: str
    place: Place


class Server(msgspec.Struct, frozen=True):
    """One engine as someone runs it.

    `engine` is a name of `facts/engine.py`; `release` what its image's tag says; `model` the word that names the model.
    `joined` are words that hold several. `incomplete` names what hides flags from us: a variable, a --config file; `wrapper` a
    program around the engine with flags of its own; `broken` is where a continuation ends too early; `copies` run alike; `around` is
    what a plan itself says of its card and users.
    """

    form: Form
    name: str
    place: Place
    engine: str
    model: Word | None = None
    flags: tuple[Flag, ...] = ()
    environment: dict[str, Word] = {}
    release: tuple[int, int] | None = None
    joined: tuple[Word, ...] = ()
    box: Box | None = None
    pod: Pod | None = None
    secrets: tuple[Secret, ...] = ()
    measured: Measured | None = None
    evaluated: bool = False
    incomplete: str = ""
    wrapper: str = ""
    broken: Place | None = None
    copies: int = 1
    last_line: int = 0
    around: Context | None = None

    def flag(self, *names: str) -> Flag | None:
        """Return the last flag of any of these names, as parsers that take the last do."""
        return next((flag for flag in reversed(self.flags) if flag.name in names), None)

    def on(self, name: str) -> bool:
        """Return whether a switch is given, and not taken back later."""
        denied = "--no-" + name.removeprefix("--")
        flag = self.flag(name, denied)
        return flag is not None and (flag.name == name) == flag.on

    def text(self, *names: str) -> str:
        """Return the value of a flag; empty where it is not given or hides behind a variable."""
        flag = self.flag(*names)
        return flag.value or "" if flag is not None and not hidden(flag.value) else ""

    def number(self, *names: str) -> int | None:
        """Return the value of a flag as a count; None where it is not given, hidden, or no number."""
        from tonnage.errors import InputError
        from tonnage.units import parse_tokens

        try:
            return parse_tokens(self.text(*names)) if self.text(*names) else None
        except InputError:
            return None

    @property
    def replicas(self) -> int:
        """Engines alike that share the users."""
        return self.pod.replicas if self.pod is not None else self.copies


class Gateway(msgspec.Struct, frozen=True):
    """A proxy's configuration beside the engine: whether it counts tokens from usage, and where."""

    counts_tokens: bool
    place: Place


class Alert(msgspec.Struct, frozen=True):
    """A metric that an alert or a dashboard reads, and where."""

    metric: str
    place: Place


class Bundle(msgspec.Struct, frozen=True):
    """All that was given together. `ignored` holds (file, line) -> rules that a comment silences there."""

    servers: tuple[Server, ...] = ()
    policies: tuple[Policy, ...] = ()
    services: tuple[Service, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    alerts: tuple[Alert, ...] = ()
    ignored: dict[tuple[str, int], frozenset[str]] = {}
    secrets: tuple[Secret, ...] = ()


def hidden(text: str | None) -> bool:
    """Return whether a value hides behind a variable or a template."""
    return text is not None and ("$" in text or "{{" in text or "`" in text)
