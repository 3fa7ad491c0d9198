"""A policy server's view of its routing table, with the rights and the API server it has in a cluster."""

import asyncio
import base64
from pathlib import Path

import pytest
import yaml

from learnloop_serving.routing_table_in_force import ConfigMapWatch, RoutingState
from learnloop_serving.server_metrics import Metrics
from testing.servers.policy_servers import CANARY, STABLE, settings, table
from testing.waiting import until_true

CORE, RBAC = "v1", "rbac.authorization.k8s.io/v1"


def config_map(namespace: str, text: str, name: str = "cart-routing") -> dict:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": CORE, "kind": "ConfigMap", "metadata": metadata, "data": {"routing.json": text}}


@pytest.fixture
def service_account(kube, kubectl, api_server: Path, namespace: str, tmp_path: Path) -> Path:
    """The directory a pod finds at the service account's path: may get and watch one ConfigMap by name."""
    metadata = {"name": "cart-policy", "namespace": namespace}
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["cart-routing"],
        "verbs": ["get", "watch"],
    }
    subject = {"kind": "ServiceAccount", "name": "cart-policy", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "cart-policy"}
    kube.create({"apiVersion": CORE, "kind": "ServiceAccount", "metadata": metadata})
    kube.create({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [rule]})
    kube.create(
        {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]}
    )
    cluster = yaml.safe_load(api_server.read_text())["clusters"][0]["cluster"]
    authority = cluster.get("certificate-authority-data")
    pem = base64.b64decode(authority) if authority else Path(cluster["certificate-authority"]).read_bytes()
    (tmp_path / "ca.crt").write_bytes(pem)
    (tmp_path / "token").write_text(kubectl("create", "token", "cart-policy", "-n", namespace))
    (tmp_path / "server").write_text(cluster["server"])
    return tmp_path


async def test_the_table_is_followed_with_the_rights_of_an_arm(kube, namespace, service_account):
    metrics = Metrics("cart", STABLE)
    state = RoutingState("cart", metrics)
    server = (service_account / "server").read_text()
    config = settings(LEARNLOOP_NAMESPACE=namespace).model_copy(
        update={"kubernetes_url": server, "service_account": service_account}
    )
    following = asyncio.create_task(ConfigMapWatch(config, state, metrics).follow())
    await asyncio.sleep(0.3)
    assert state.table is None
    kube.create(config_map(namespace, table((STABLE, "stable", 100))))
    await until_true(lambda: state.lists(STABLE))
    kube.create(config_map(namespace, "not for this arm", "other-routing"))
    with_canary = table((STABLE, "stable", 90), (CANARY, "canary", 10), generation=2)
    kube.apply(config_map(namespace, with_canary), force=True)
    await until_true(lambda: state.lists(CANARY))
    kube.apply(config_map(namespace, "{"), force=True)
    kube.delete(config_map(namespace, ""))
    await asyncio.sleep(0.3)
    assert state.lists(CANARY)
    kube.create(config_map(namespace, table((STABLE, "stable", 100), generation=3)))
    await until_true(lambda: not state.lists(CANARY))
    following.cancel()
