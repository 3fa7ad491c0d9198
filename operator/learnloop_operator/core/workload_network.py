"""NetworkPolicies (networking.k8s.io/v1) of the pods that the operator makes: their calls and their callers.

Policies add up: who owns a namespace lets more through by a policy of their own that selects the same pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StrictBool, StrictInt

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_operator.core.plan import KubeObject, child, standard_labels

Rule = Mapping[str, Any]
Port = Annotated[StrictInt, Field(gt=0, lt=65536)]
_NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
_S3 = "https://s3.example.com"
DNS: Rule = {"ports": [{"port": port, "protocol": kind} for port in (53, 5353) for kind in ("UDP", "TCP")]}
"""Names are looked up wherever the cluster has its DNS: on port 53, or on 5353 behind its Service."""


@dataclass(frozen=True, slots=True)
class WorkloadNetwork:
    """The installation's network of training, actors and MemoryServices."""

    __pydantic_config__ = ConfigDict(extra="forbid", populate_by_name=True)

    peers: Annotated[tuple[Mapping[str, Any], ...], Field(alias="from")] = ()
    """NetworkPolicyPeers that may reach MemoryServices and their metrics from elsewhere, among them Prometheus."""
    closed: StrictBool = True
    """Egress is closed too, except for what each of them needs."""
    to: tuple[Rule, ...] = ()
    """NetworkPolicyEgressRules of all of them besides their own."""
    api_server_ports: Annotated[tuple[Port, ...], Field(alias="apiServerPorts")] = (443, 6443)
    """The API server is not a pod: its clients may reach these ports of any address."""


def pods(labels: Mapping[str, str]) -> dict[str, Any]:
    """A NetworkPolicyPeer: pods of the policy's own namespace."""
    return {"podSelector": {"matchLabels": dict(labels)}}


def namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {_NAME_OF_NAMESPACE: name}}}


def data_plane(url: str) -> Rule:
    """The way out to the data plane. A policy sees pods, and their port need not be the Service's."""
    address = urlsplit(url)
    parts = (address.hostname or "").split(".")
    system = parts[1] if len(parts) > 1 and "svc" in parts[2:3] else None
    port = _port(url)
    if not system:
        return {"ports": _tcp(port)}
    return {"to": [namespace(system)], "ports": _tcp(*sorted({port, names.PORT_DATA}))}


def address(url: str) -> tuple[Rule, ...]:
    """The ways out to an address that an author gave: its port anywhere, and any port of the pods of the namespace that
    it names (`mlflow`, `mlflow.mlops`). Behind a Service the port of the pods is not to be seen."""
    try:
        parts = (urlsplit(url).hostname or "").split(".")
    except ValueError:  # what cannot be called needs no way out
        return ()
    anywhere: Rule = {"ports": _tcp(_port(url))}
    if len(parts) == 1:
        return (anywhere, {"to": [{"podSelector": {}}]})
    inside = len(parts) == 2 or parts[2] == "svc"
    return (anywhere, {"to": [namespace(parts[1])]}) if inside else (anywhere,)


def addresses(options: PodOptions, *urls: str | None) -> tuple[Rule, ...]:
    """The ways out to the URLs and to those in a pod's variables, each once; S3 is asked on port 443.

    An author who may not create pods chooses none of them: the chart's policy asks about each of these fields.
    """
    rules: list[Rule] = []
    for url in (*urls, *(variable.value for variable in options.env or ())):
        scheme = (url or "").partition("://")[0]
        if url and scheme in ("http", "https", "s3"):
            rules += [rule for rule in address(_S3 if scheme == "s3" else url) if rule not in rules]
    return tuple(rules)


def ports(*numbers: int, peers: Sequence[Mapping[str, Any]], key: str) -> Rule:
    """A rule for TCP ports of peers; `key`: from or to."""
    return {key: list(peers), "ports": _tcp(*numbers)}


def policy(
    owner: KubeObject,
    *,
    name: str,
    component: str,
    selector: Mapping[str, str],
    ingress: Sequence[Rule],
    egress: Sequence[Rule] | None,
) -> dict[str, Any]:
    """The policy of one kind of pods of an owner; `egress` None: what goes out is open."""
    return child(
        owner,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        standard_labels(component, {key: val for key, val in selector.items() if key.startswith(names.GROUP)}),
        spec={
            "podSelector": {"matchLabels": dict(selector)},
            "policyTypes": ["Ingress"] if egress is None else ["Ingress", "Egress"],
            "ingress": list(ingress),
            **({} if egress is None else {"egress": list(egress)}),
        },
    )


def _port(url: str) -> int:
    parts = urlsplit(url)
    try:
        given = parts.port
    except ValueError:  # what cannot be called needs no way out
        given = None
    return given or (443 if parts.scheme == "https" else 80)


def _tcp(*numbers: int) -> list[dict[str, Any]]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]
