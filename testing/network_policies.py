"""NetworkPolicies (networking.k8s.io/v1) decided as a CNI that enforces them does, on paper.

Covered: podSelector and namespaceSelector by matchLabels, ipBlock, named and numbered ports, rules without peers or
ports. Not: matchExpressions, port ranges; a policy that has them is refused, so that nothing is decided wrongly.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Party:
    """A pod; without a namespace, an address outside of the cluster's pods."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    ports: Mapping[str, int] | None = None
    """Named ports of its containers."""
    address: str = ""
    """Of one outside of the cluster's pods."""


class Network:
    """All policies of the cluster."""

    def __init__(self, policies: Sequence[Object]) -> None:
        self._policies = policies

    def allows(self, source: Party, target: Party, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection gets out of the source and into the target."""
        return self._side("Egress", source, target, target, port, protocol) and self._side(
            "Ingress", target, source, target, port, protocol
        )

    def _side(self, kind: str, subject: Party, peer: Party, target: Party, port: int, protocol: str) -> bool:
        applying = [
            policy for policy in self._policies if kind in policy["spec"]["policyTypes"] and _chosen(policy, subject)
        ]
        if not applying:
            return True
        key, where = ("egress", "to") if kind == "Egress" else ("ingress", "from")
        rules = [(rule, policy) for policy in applying for rule in policy["spec"].get(key) or ()]
        return any(
            _port(rule.get("ports"), target, port, protocol)
            and _peer(rule.get(where), peer, policy["metadata"]["namespace"])
            for rule, policy in rules
        )


def _chosen(policy: Object, party: Party) -> bool:
    return party.namespace == policy["metadata"]["namespace"] and _labels(policy["spec"]["podSelector"], party.labels)


def _labels(selector: Object, labels: Mapping[str, str] | None) -> bool:
    assert set(selector) <= {"matchLabels"}, f"not understood: {selector}"
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= (labels or {}).items()


def _peer(peers: Sequence[Object] | None, party: Party, home: str) -> bool:
    if not peers:
        return True
    return any(
        _block(peer["ipBlock"], party.address) if "ipBlock" in peer else party.namespace and _one(peer, party, home)
        for peer in peers
    )


def _block(block: Object, address: str) -> bool:
    """The addresses of pods are unknown here, so that blocks are for parties with one of their own."""
    if not address:
        return False
    parsed = ipaddress.ip_address(address)
    return parsed in ipaddress.ip_network(block["cidr"]) and not any(
        parsed in ipaddress.ip_network(one) for one in block.get("except", ())
    )


def _one(peer: Object, party: Party, home: str) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}, f"not understood: {peer}"
    if "namespaceSelector" in peer:
        inside = _labels(peer["namespaceSelector"], {"kubernetes.io/metadata.name": party.namespace})
    else:
        inside = party.namespace == home
    return inside and _labels(peer.get("podSelector") or {}, party.labels)


def _port(ports: Sequence[Object] | None, target: Party, port: int, protocol: str) -> bool:
    if not ports:
        return True
    assert all(set(one) <= {"port", "protocol"} for one in ports), f"not understood: {ports}"
    named = target.ports or {}
    return any(
        one.get("protocol", "TCP") == protocol
        and (named.get(one["port"]) if isinstance(one["port"], str) else one["port"]) == port
        for one in ports
    )
