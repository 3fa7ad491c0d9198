"""Parts of manifests: owners and labels, notes in annotations, digests of content, quantities."""

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import BaseModel

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
    references = manifest["metadata"].get("ownerReferences") or ()
    return next((str(item["uid"]) for item in references if item.get("controller")), None)


M = TypeVar("M", bound=BaseModel)


def noted(metadata: object, annotation: str, model: type[M]) -> M | None:
    """The note as a `model`; one that is none counts as none, for anybody may have written there."""
    notes = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = notes.get(annotation) if isinstance(notes, Mapping) else None
    try:
        return model.model_validate_json(text) if isinstance(text, str) else None
    except ValueError:
        return None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks; NaN and infinities are refused (ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def revision(value: Any, length: int = 8) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


_QUANTITY = re.compile(
    r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,2}))?$"
)
_SUFFIX = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("0.001"), "k": Decimal(10) ** 3}
_SUFFIX |= {suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("MGTPE", start=2)}
_SUFFIX |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}


def quantity(value: Any) -> Decimal | None:
    """The number; None for an invalid quantity."""
    match = _QUANTITY.match(str(value)) if isinstance(value, str | int | float) else None
    if not match:
        return None
    return Decimal(match[1]) * (Decimal(10) ** int(match[3]) if match[3] else _SUFFIX[match[2] or ""])
