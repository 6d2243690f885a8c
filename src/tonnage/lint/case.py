"""A server and what is known around it, as rules see it: release, model, card, settings, plan; None where it is not known.

Nothing is computed before a rule asks, and a thing that cannot be computed (a value that is none, a model nobody knows)
is None, not an error: the rule that is about it says so.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from tonnage.errors import TonnageError
from tonnage.facts.cards import find_card
from tonnage.facts.catalog import Model, find_model, index
from tonnage.facts.engine import EngineRules, newest, rules_for
from tonnage.facts.gpu import Card
from tonnage.facts.overheads import overhead_constants
from tonnage.facts.shape import KVCache, LatentCache, StateCache
from tonnage.lint.context import Context, beside
from tonnage.lint.place import Place
from tonnage.lint.server import Bundle, Policy, Server, Service
from tonnage.memory.defaults import Host, resolved
from tonnage.memory.kv import ContextCost, context_cost
from tonnage.memory.pages import cache_dtype
from tonnage.memory.plan import MemoryPlan, Request, plan
from tonnage.memory.weights import checkpoint_bytes, served_dtype, with_precision
from tonnage.settings import EngineSettings
from tonnage.settings.argv import settings_of
from tonnage.settings.sglang import settings_of as sglang_settings_of
from tonnage.workload.spec import Workload

LOCAL = ("/", "./", "../", "~", "s3://", "gs://", "file:", "runai", "pvc://", "oci://", "dbfs:")
"""How a model begins that is no name on the hub."""


class Case:
    """One server among all that was given, in a context."""

    def __init__(self, server: Server, bundle: Bundle, context: Context) -> None:
        self.server = server
        self.bundle = bundle
        self.context = context if server.around is None else beside(context, server.around)

    # -- what is run ----------------------------------------------------------------------------------------------

    @property
    def engine(self) -> str:
        """The engine, by our name of it."""
        return self.server.engine

    @cached_property
    def release(self) -> tuple[int, int] | None:
        """The release: what the context says, else the image's tag."""
        if self.context.engine == self.engine and self.context.release is not None:
            return self.context.release
        return self.server.release

    @cached_property
    def rules(self) -> EngineRules:
        """The memory rules of the release; of the newest where none is known."""
        return rules_for(self.engine, self.release or newest(self.engine))

    @property
    def model_text(self) -> str:
        """The model as it is named; empty where nothing names it, or a variable hides it."""
        word = self.server.model
        return "" if word is None or word.unresolved else word.text

    @property
    def from_hub(self) -> bool:
        """Whether the model is named so that the engine looks for it on the hub."""
        text = self.model_text
        if text.startswith("hf://"):
            return True
        return bool(text) and not text.startswith(LOCAL) and text.count("/") == 1 and "://" not in text

    @cached_property
    def model(self) -> Model | None:
        """The model: what the command names where that is known, else the context's, else the one its folder is named after."""
        text = self.model_text
        names = [text] if self.from_hub and text.lower() in index() else []
        names += [self.context.model] if self.context.model else []
        folder = text.rstrip("/").rsplit("/", 1)[-1].lower()
        names += [folder] if folder in index() else []
        for name in names:
            try:
                return find_model(name)
            except TonnageError:
                continue
        return None

    @cached_property
    def card(self) -> Card | None:
        """The card: the context's, else what a node selector names."""
        name = self.context.gpu or (self.server.box.card if self.server.box is not None else "")
        if not name:
            return None
        try:
            return find_card(name).card
        except TonnageError:
            if self.context.gpu:
                raise
            return None

    @cached_property
    def asked(self) -> EngineSettings | None:
        """The settings as the flags ask for them; None where a value is none, or for engines that are not planned."""
        pairs = [(flag.name, flag.value) for flag in self.server.flags if "$" not in (flag.value or "")]
        pairs = [(name, value) for name, value in pairs if not (name == "--max-model-len" and value in ("auto", "-1"))]
        try:
            if self.engine == "vllm":
                return settings_of(pairs, self.release or newest("vllm"))[0]
            return sglang_settings_of(pairs)[0] if self.engine == "sglang" else None
        except (TonnageError, TypeError):
            return None

    @cached_property
    def settings(self) -> EngineSettings | None:
        """The settings with every default of the release and card filled in, the model's own length limit too."""
        if self.asked is None or self.model is None or self.card is None:
            return None
        host = Host(self.card.memory.best, self.card.compute_capability, f"{self.card.name} {self.card.slug}")
        try:
            return resolved(self.asked, self.model.shape, host, self.rules)
        except TonnageError:
            return None

    @cached_property
    def ranks(self) -> int:
        """Cards that one replica's processes use: TP x PP x DP as far as this command starts them."""
        numbers = [self.server.number(*names) or 1 for names in PARALLEL_FLAGS.get(self.engine, ())]
        total = 1
        for number in numbers:
            total *= number
        if self.engine == "sglang" and self.server.flag("--enable-dp-attention") is None:
            total *= self.server.number("--dp-size") or 1
        return total

    @cached_property
    def nodes(self) -> int:
        """Machines of one replica."""
        pod = self.server.pod
        return max(self.server.number("--nnodes") or 1, pod.pods_a_replica if pod is not None else 1)

    # -- memory ---------------------------------------------------------------------------------------------------

    @cached_property
    def load(self) -> Workload | None:
        """The workload of one replica: its share of the users, sequences no longer than the limit lets through."""
        load = self.context.load
        if load is None:
            return None
        users = -(-load.users // self.server.replicas)
        return msgspec.structs.replace(load, users=users)

    @cached_property
    def plan(self) -> MemoryPlan | None:
        """The plan of one replica as it is run, for its share of the users, or for one short sequence where none are known."""
        if self.settings is None:
            return None
        return self.planned(self.settings)

    def planned(self, settings: EngineSettings) -> MemoryPlan | None:
        """Return the plan with other settings; None where it cannot be made."""
        if self.model is None or self.card is None:
            return None
        limit = settings.max_model_len or 1
        load = self.load or Workload(1, min(limit, 1024))
        context = min(load.context_tokens, limit)
        load = Workload(load.users, context, 0, 0, min(load.shared_prefix_tokens, context - 1))
        try:
            return plan(Request(self.model, self.card, settings, load, self.rules, overhead_constants()))
        except TonnageError:
            return None

    @cached_property
    def weights_bytes(self) -> int | None:
        """Weights of the whole model, in the precision that is served."""
        if self.model is None:
            return None
        try:
            shape = with_precision(self.model.shape, self.asked.weights if self.asked is not None else "checkpoint")
        except TonnageError:
            shape = self.model.shape
        return sum(self.model.measured_bytes.values()) or checkpoint_bytes(shape)

    @property
    def weights_on_card(self) -> int | None:
        """Weights on one card, in bytes."""
        if self.plan is None:
            return None
        return next((line.bytes for line in self.plan.ledger if line.label == "weights"), None)

    @cached_property
    def cost(self) -> ContextCost | None:
        """The ideal cost of context on one card."""
        return self._cost(self.asked.parallel.tp) if self.asked is not None else None

    @cached_property
    def whole_cost(self) -> ContextCost | None:
        """The ideal cost of context over all cards of a replica that holds it once (TP 1)."""
        return self._cost(1)

    def _cost(self, tp: int) -> ContextCost | None:
        if self.model is None or self.asked is None:
            return None
        try:
            dtype = served_dtype(self.model.shape, bf16=True)
            cache = cache_dtype(self.asked, self.model.shape, dtype)
            return context_cost(self.model.shape, tp=tp, cache=cache, dtype=dtype, state_dtype=self.asked.mamba_ssm_cache_dtype)
        except TonnageError:
            return None

    @cached_property
    def block_tokens(self) -> int | None:
        """Tokens of one block of full attention: what a shared prefix has to fill to be found again."""
        allocation = self.plan.allocation if self.plan is not None else None
        groups = getattr(allocation, "groups", ())
        blocks = [group.page.block for group in groups if group.page.kind in ("full", "latent", "index", "entries")]
        return max(blocks) if blocks else None

    @property
    def has_kv_heads(self) -> int:
        """Heads of keys and values that ranks can share out; 0 where the cache is a latent, whole on every rank."""
        shape = self.model.shape if self.model is not None else None
        if shape is None or any(isinstance(cache, LatentCache) for cache in shape.caches):
            return 0
        return max((cache.kv_heads for cache in shape.caches if isinstance(cache, KVCache)), default=0)

    @property
    def stateful(self) -> bool:
        """Whether the model is a hybrid that keeps a state for each sequence."""
        return self.model is not None and any(isinstance(cache, StateCache) for cache in self.model.shape.caches)

    @cached_property
    def prefix_caching(self) -> bool | None:
        """Whether prefix caching is on, by flag or by default; None where that depends on what is not known."""
        if self.engine == "sglang":
            return self.server.flag("--disable-radix-cache") is None
        if self.engine != "vllm":
            return None
        flag = self.server.flag("--enable-prefix-caching", "--no-enable-prefix-caching")
        if flag is not None:
            return (flag.name == "--enable-prefix-caching") == flag.on
        if self.release is None or self.model is None:
            return None
        if self.release < (0, 8):
            return False
        return self.rules.hybrid_prefix_caching if self.model.shape.hybrid else not self.model.shape.embeds_only

    # -- who reaches it -------------------------------------------------------------------------------------------

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """The network policies that select this server's pod."""
        pod = self.server.pod
        if pod is None or self.server.form != "pod":
            return ()
        return tuple(
            policy for policy in self.bundle.policies if policy.namespace in ("*", pod.namespace) and _selects(policy, dict(pod.labels))
        )

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """The services that lead to this server's pod."""
        pod = self.server.pod
        if pod is None:
            return ()
        labels = dict(pod.labels)
        return tuple(
            service
            for service in self.bundle.services
            if service.namespace == pod.namespace and service.labels and all(labels.get(key) == value for key, value in service.labels)
        )

    def closed(self, direction: str) -> bool:
        """Return whether policies close a direction: one at least speaks of it, and none that does leaves it open."""
        said = [getattr(policy, direction) for policy in self.policies if getattr(policy, direction)]
        return bool(said) and "open" not in said

    @cached_property
    def host(self) -> str:
        """The address the engine listens on: by flag, by the environment, or its default."""
        boxed = self.server.box is not None and self.server.box.image is not None
        word = self.server.environment.get({"ollama": "OLLAMA_HOST", "llama.cpp": "LLAMA_ARG_HOST"}.get(self.engine, ""))
        if self.engine == "ollama":
            return _address(word.text) if word is not None else ("0.0.0.0" if boxed else "127.0.0.1")
        given = self.server.text("--host") or (word.text if word is not None else "")
        if self.engine == "llama.cpp" and not given and boxed:
            return "0.0.0.0"
        if given or self.server.flag("--uds") is not None:
            return given or "127.0.0.1"
        return "127.0.0.1" if self.engine in ("sglang", "trtllm", "llama.cpp") else "0.0.0.0"

    @property
    def loopback(self) -> bool:
        """Whether only its own machine, or its own pod, reaches the engine."""
        return self.host.startswith("127.") or self.host in ("localhost", "::1", "[::1]")

    @cached_property
    def exposed(self) -> Place | None:
        """Where it is said that others reach the engine; None where nobody does, or a pod's policies have to say."""
        if self.server.pod is not None:
            network = self.server.box.host_network if self.server.box is not None else None
            return network if not self.loopback else None
        box = self.server.box
        if box is not None and box.host_network is None:
            return next((port.place for port in box.ports if _open(port.address)), None)
        if self.loopback or self.server.form == "plan" or self.server.flag("--headless") is not None:
            return None
        if self.server.incomplete and self.server.flag("--host") is None:
            return None  # what hides the other flags may hold the address
        flag = self.server.flag("--host")
        word = self.server.environment.get("OLLAMA_HOST") if self.engine == "ollama" else None
        return flag.place if flag is not None else (word.place if word is not None else self.server.place)

    @cached_property
    def ingress_open(self) -> bool:
        """Whether a pod is reached by whoever wants: no policy closes it."""
        return self.server.form == "pod" and not self.loopback and not self.closed("ingress")

    # -- figures --------------------------------------------------------------------------------------------------

    @cached_property
    def load_s(self) -> float | None:
        """Seconds that reading the weights takes at the storage's rate."""
        rate = self.context.read_bytes_per_s
        return self.weights_bytes / rate if rate and self.weights_bytes is not None else None


PARALLEL_FLAGS = {
    "vllm": (("--tensor-parallel-size",), ("--pipeline-parallel-size",), ("--data-parallel-size",)),
    "sglang": (("--tp-size",), ("--pp-size",)),
    "trtllm": (("--tp-size", "--tp_size"), ("--pp-size", "--pp_size")),
}


def _selects(policy: Policy, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in policy.labels):
        return False
    for key, operator, values in policy.expressions:
        held = labels.get(key)
        holds = {"In": held in values, "NotIn": held not in values, "Exists": held is not None, "DoesNotExist": held is None}
        if not holds.get(operator, False):
            return False
    return True


def _address(text: str) -> str:
    """Return the address of `[scheme://]address[:port]`.

    >>> _address("http://127.0.0.1:11434"), _address("0.0.0.0:11434"), _address(":11434")
    ('127.0.0.1', '0.0.0.0', '0.0.0.0')
    """
    bare = text.partition("://")[2] or text
    host = bare.split("/")[0]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return (host.rsplit(":", 1)[0] if ":" in host else host) or "0.0.0.0"


def _open(address: str) -> bool:
    return not (address.startswith("127.") or address in ("localhost", "::1") or "$" in address)
