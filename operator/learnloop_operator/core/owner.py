"""Ownership: children carry a controller reference, so that the garbage collector cleans up after us."""

from collections.abc import Mapping
from typing import Any

from learnloop_api import names
from learnloop_operator.core.plan import Manifest


def owner_reference(owner: Manifest) -> dict[str, Any]:
    """metav1.OwnerReference of a live custom resource."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def standard_labels(component: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Labels of everything the operator creates; `extra` (e.g. LABEL_AGENT) wins."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_PART_OF: "learnloop",
        names.LABEL_COMPONENT: component,
        **(extra or {}),
    }


def child(
    owner: Manifest,
    *,
    api_version: str,
    kind: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    **body: Any,
) -> dict[str, Any]:
    """A complete apply manifest in the owner's namespace, controlled by it; `body` holds spec, data, rules…"""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": dict(labels),
        "ownerReferences": [owner_reference(owner)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def controller_uid(manifest: Manifest) -> str | None:
    """Uid of the object's controller, if it has one."""
    references = manifest["metadata"].get("ownerReferences") or ()
    return next((str(item["uid"]) for item in references if item.get("controller")), None)
