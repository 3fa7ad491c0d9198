"""Kubernetes objects and who made them: what a caller's right to report goes by."""

from typing import Any
from urllib.parse import quote

from learnloop_dataplane.errors import ApiServerRefused
from learnloop_dataplane.kubernetes.api_client import KubeApi

Object = dict[str, Any]


async def find(kube: KubeApi, version: str, resource: str, namespace: str, name: str) -> Object | None:
    """An object, or None where there is none of this name.

    Raises:
        ApiServerRefused: the API server says no.
        Unavailable: it does not answer.
    """
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    path = f"{root}/namespaces/{quote(namespace, safe='')}/{resource}/{quote(name, safe='')}"
    try:
        found: Object = await kube.request("GET", path)
    except ApiServerRefused as refusal:
        if refusal.status == 404:
            return None
        raise
    return found


def controller_of(manifest: Object) -> Object:
    """The reference to the object's controller; empty where it has none."""
    owners: list[Object] = manifest["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def group_of(reference: Object) -> str:
    """The API group that a reference names."""
    return str(reference.get("apiVersion")).partition("/")[0]
