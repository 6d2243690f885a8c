"""Network policies, Kubernetes' own and Cilium's -> what they leave open of each direction."""

from __future__ import annotations

from typing import Literal

from tonnage.lint.server import Policy
from tonnage.lint.yaml_text import Yaml

DNS = "53"
EVERYWHERE = ("0.0.0.0/0", "::/0")


def namespace_of(document: Yaml) -> str:
    """Return the namespace of an object."""
    return document.get("metadata", "namespace").text or "default"


def policy_of(document: Yaml) -> Policy:
    """Return a NetworkPolicy: whom it selects, and whether it leaves a direction open; it speaks of Ingress where it names no types."""
    spec = document.get("spec")
    selector = spec.get("podSelector")
    types = [item.text for item in spec.get("policyTypes").items()]
    types = types or ["Ingress", *(["Egress"] if spec.get("egress").node is not None else [])]
    expressions = tuple(
        (one.get("key").text, one.get("operator").text, tuple(value.text for value in one.get("values").items()))
        for one in selector.get("matchExpressions").items()
    )
    return Policy(
        namespace_of(document),
        selector.get("matchLabels").labels(),
        expressions,
        _direction(spec.get("ingress"), "from") if "Ingress" in types else "",
        _direction(spec.get("egress"), "to") if "Egress" in types else "",
        document.place,
    )


def _direction(rules: Yaml, peers: str) -> Literal["open", "closed"]:
    """Return whether the rules of a direction let everyone through."""
    for rule in rules.items():
        named = rule.get(peers).items()
        ports = [port.get("port").text for port in rule.get("ports").items()]
        if not named and not (ports and all(port == DNS for port in ports)):
            return "open"
        if any(_everyone(peer) for peer in named) and not (ports and all(port == DNS for port in ports)):
            return "open"
    return "closed"


def _everyone(peer: Yaml) -> bool:
    if peer.get("ipBlock", "cidr").text in EVERYWHERE:
        return True  # all but a few ranges is still everyone
    selector = peer.get("namespaceSelector")
    return selector.kind == "mapping" and not list(selector.pairs()) and not list(peer.get("podSelector").pairs())


def cilium_policy_of(document: Yaml) -> Policy:
    """Return a CiliumNetworkPolicy: a direction that it names is closed but for what its rules let through."""
    spec = document.get("spec")
    labels = tuple((key.removeprefix("k8s:"), value) for key, value in spec.get("endpointSelector", "matchLabels").labels())
    everywhere = document.get("kind").text == "CiliumClusterwideNetworkPolicy"
    return Policy(
        "*" if everywhere else namespace_of(document),
        labels,
        (),
        _cilium_direction(spec, "ingress", "from"),
        _cilium_direction(spec, "egress", "to"),
        document.place,
    )


def _cilium_direction(spec: Yaml, name: str, side: str) -> Literal["open", "closed", ""]:
    rules = spec.get(name)
    if rules.kind != "sequence":
        return ""
    for rule in rules.items():
        entities = {item.text for item in rule.get(f"{side}Entities").items()}
        ranges = {item.text for item in rule.get(f"{side}CIDR").items()} | {
            item.get("cidr").text for item in rule.get(f"{side}CIDRSet").items()
        }
        if entities & {"all", "world"} or ranges & set(EVERYWHERE):
            return "open"
    return "closed"
