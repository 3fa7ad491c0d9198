"""Who reaches the policy servers of a ModelDeployment: the network's half of knowing their callers."""

from typing import Any

from learnloop_api import names
from learnloop_operator.core.ownership import child
from learnloop_operator.core.workload_network import namespace
from learnloop_operator.rollout.children.manifests import COMPONENT, Manifest, labels, policy_account
from learnloop_operator.rollout.model.snapshot import Snapshot


def network_policy(snapshot: Snapshot) -> tuple[Manifest, ...]:
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
    peers += [namespace(name) for name in sorted(others - {snapshot.namespace})]
    selector = {names.LABEL_DEPLOYMENT: snapshot.name, names.LABEL_COMPONENT: COMPONENT}
    ingress = [{"from": [*peers, *callers.peers], "ports": [{"port": names.PORT_SERVING, "protocol": "TCP"}]}]
    if callers.peers:  # a rule without peers would let everybody in
        ingress.append({"from": [*callers.peers], "ports": [{"port": names.PORT_PROBES, "protocol": "TCP"}]})
    policy = child(
        snapshot.object,
        api_version="networking.k8s.io/v1",
        kind="NetworkPolicy",
        name=policy_account(snapshot.name),
        labels=labels(snapshot),
        spec={
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    )
    return (policy,)
