"""HTTPRoutes on an API server of the tests: their definition, and a gateway that takes every one of them."""

import asyncio
from typing import Any

import yaml

from cluster.addons.gateway import CRD_FOLDER, CRD_MODULE
from go_programs import go_build
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import HTTP_ROUTE

ROUTING = {"mode": "gateway", "gateway": {"name": "edge"}}
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
NAME = "httproutes.gateway.networking.k8s.io"
PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
ATTEMPTS = 300
ACCEPTED = [{"type": name, "status": "True", "reason": name, "message": "yes"} for name in ("Accepted", "ResolvedRefs")]


async def install(user: KubeClient) -> None:
    """The API server knows HTTPRoutes. AssertionError when it does not in half a minute."""
    folder = go_build.module_folder(go_build.GATEWAY, CRD_MODULE) / CRD_FOLDER
    definition = yaml.safe_load((folder / "gateway.networking.k8s.io_httproutes.yaml").read_text(encoding="utf-8"))
    query = {"fieldManager": "test", "force": "true"}
    await user.http.request("PATCH", PATH, body=definition, query=query, content_type=APPLY)
    for _ in range(ATTEMPTS):
        if _established(await user.http.request("GET", PATH)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{NAME} is still not served")


def _established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


async def accept_routes(user: KubeClient, namespace: str) -> None:
    """The work of a gateway's controller: every route is accepted."""
    for route in await user.list(HTTP_ROUTE, namespace):
        if (route.get("status") or {}).get("parents"):
            continue
        at, generation = route["metadata"]["creationTimestamp"], route["metadata"]["generation"]
        conditions = [{**item, "lastTransitionTime": at, "observedGeneration": generation} for item in ACCEPTED]
        parent = {"controllerName": "tests.example/gateway", "parentRef": {"name": "edge"}, "conditions": conditions}
        path = HTTP_ROUTE.path(namespace, route["metadata"]["name"], "status")
        await user.http.request("PATCH", path, body={"status": {"parents": [parent]}}, content_type=MERGE)
