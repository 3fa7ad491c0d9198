"""gateway mode: the same table as an HTTPRoute (gateway.networking.k8s.io/v1).

The last rule draws the arm of a new episode by weight; the rules before it bring a request that names its arm in
`x-learnloop-arm` to that arm. A withdrawn arm has neither.
"""

from collections.abc import Mapping
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_api.wire.routing import RoutingTable, arm_name
from learnloop_operator.core import plan, workload_network
from learnloop_operator.rollout.children import routing_table, serving_arms
from learnloop_operator.rollout.model.snapshot import LiveRoute, Snapshot

_ANY_PATH = {"path": {"type": "PathPrefix", "value": "/"}}


def http_route(snapshot: Snapshot, table: RoutingTable, block: BlockedRevision | None = None) -> dict[str, Any] | None:
    """The route and the verdict that goes with it; None while no arm serves, for without a backend it would answer 500.

    `table`: with the weights that are to be drawn by. Defaults of the Gateway API are spelt out, so that the live
    object equals the manifest.
    """
    gateway = snapshot.spec.routing.gateway
    if gateway is None or not table.arms:
        return None
    parent: dict[str, Any] = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway.name}
    if gateway.namespace:
        parent["namespace"] = gateway.namespace
    if gateway.section_name:
        parent["sectionName"] = gateway.section_name
    by_header = [
        {
            "matches": [{**_ANY_PATH, "headers": [{"type": "Exact", "name": names.HEADER_ARM, "value": arm.revision}]}],
            "backendRefs": [_backend(snapshot, arm.revision, 1)],
        }
        for arm in table.arms
    ]
    by_weight = {
        "matches": [_ANY_PATH],
        "backendRefs": [_backend(snapshot, arm.revision, arm.weight) for arm in table.arms],
    }
    spec: dict[str, Any] = {"parentRefs": [parent], "rules": [*by_header, by_weight]}
    if snapshot.spec.routing.hostnames:
        spec["hostnames"] = list(snapshot.spec.routing.hostnames)
    return plan.child(
        snapshot.object,
        api_version="gateway.networking.k8s.io/v1",
        kind="HTTPRoute",
        name=snapshot.name,
        labels=serving_arms.labels(snapshot),
        annotations=routing_table.write_blocked(block),
        spec=spec,
    )


def read_route(route: Mapping[str, Any] | None, name: str) -> LiveRoute | None:
    """Reads the live route of the ModelDeployment `name`, as far as we wrote it."""
    if route is None:
        return None
    weights: dict[str, int] = {}
    rules = (route.get("spec") or {}).get("rules") or []
    for rule in rules:  # the last one is the draw; an arm that only the others name has weight 0
        for item in rule.get("backendRefs") or ():
            weights[str(item.get("name"))] = int(item.get("weight", 1)) if rule is rules[-1] else 0
    prefix = arm_name(name, "")
    arms = {backend.removeprefix(prefix): weight for backend, weight in weights.items() if backend.startswith(prefix)}
    return LiveRoute(arms, routing_table.read_blocked(route.get("metadata")))


def _backend(snapshot: Snapshot, revision: str, weight: int) -> dict[str, Any]:
    return {
        "group": "",
        "kind": "Service",
        "name": arm_name(snapshot.name, revision),
        "port": names.PORT_SERVING,
        "weight": weight,
    }


# Who reaches the policy servers of a ModelDeployment: the network's half of knowing their callers.


def network_policy(snapshot: Snapshot) -> tuple[plan.KubeObject, ...]:
    """One NetworkPolicy for all arms; none where the installation wants none.

    The pods of the own namespace may come, those of the namespaces that are served, the gateway's, and the peers of the
    chart, among them the operator and Prometheus. The port of probes and metrics is for these peers alone: Kubernetes
    lets a node's kubelet in whatever a policy says, and arms of one namespace have no reason to ask.
    """
    callers = snapshot.defaults.callers
    if callers.peers is None:
        return ()
    gateway = snapshot.spec.routing.gateway
    others = {*callers.namespaces, *((gateway.namespace or snapshot.namespace,) if gateway else ())}
    peers: list[Any] = [{"podSelector": {}}]
    peers += [workload_network.namespace(name) for name in sorted(others - {snapshot.namespace})]
    selector = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: serving_arms.COMPONENT}
    ingress = [{"from": [*peers, *callers.peers], "ports": [{"port": names.PORT_SERVING, "protocol": "TCP"}]}]
    if callers.peers:  # a rule without peers would let everybody in
        ingress.append({"from": [*callers.peers], "ports": [{"port": names.PORT_PROBES, "protocol": "TCP"}]})
    manifest = workload_network.policy(
        snapshot.object,
        name=serving_arms.policy_account(snapshot.name),
        component=serving_arms.COMPONENT,
        selector=selector,
        ingress=ingress,
        egress=None,
    )
    return (manifest,)
