"""Ownership: children carry a controller reference, so that the garbage collector cleans up after us."""

from collections.abc import Iterable, Mapping
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


def cycle(owner: Manifest, children: Iterable[Manifest]) -> str:
    """The sentence about an owner that belongs to something it owns itself, or to itself; "" where all is well.

    The garbage collector can still delete such a ring, but deleting any part of it takes all of it along.
    """
    own = {str(item["metadata"].get("uid")): item for item in children if controller_uid(item) == _uid(owner)}
    own[_uid(owner)] = owner
    for index, item in enumerate(owner["metadata"].get("ownerReferences") or ()):
        if str(item.get("uid")) in own:
            named = f"{item.get('kind')} {item.get('name')}"
            return (
                f"metadata.ownerReferences[{index}]: {named} belongs to this {owner['kind']}, and this "
                f"{owner['kind']} to it: deleting one deletes both; remove the reference"
            )
    return ""


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])


def controller_uid(manifest: Manifest) -> str | None:
    """Uid of the object's controller, if it has one."""
    references = manifest["metadata"].get("ownerReferences") or ()
    return next((str(item["uid"]) for item in references if item.get("controller")), None)
