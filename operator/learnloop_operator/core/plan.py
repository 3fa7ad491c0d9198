"""A decision as data: the whole effect of one pass over one object, and the parts of its manifests."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from learnloop_api import names

KubeObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Address of a namespaced object."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One Kubernetes event: a reason constant and a sentence with numbers."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions of one pass, applied in this order: apply, delete, calls, status, events, outside.

    `apply` holds whole manifests for server-side apply, in order: whatever protects users (a route) comes before
    whatever follows from it (a scale-down). A plan equal to the cluster costs no write.

    `status_first`: the status permits what `apply` does (a canary's weight rises), so it must be on record before.
    """

    status: KubeObject
    apply: tuple[KubeObject, ...] = ()
    delete: tuple[ObjectRef, ...] = ()
    calls: tuple["Call", ...] = ()
    announcements: tuple["Announcement", ...] = ()
    """News for the data plane when it answers; no pass waits for it."""
    events: tuple[Notice, ...] = ()
    outside: tuple[KubeObject, ...] = ()
    """Registrations at other routers, written last: a failure delays nothing."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures for metrics besides the status."""
    requeue_after: float | None = field(default=None)
    status_first: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A write to the data plane, named and idempotent: `method` and `path` as in its REST contract."""

    method: Literal["PUT", "DELETE"]
    path: str
    body: KubeObject | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    """News for the data plane: told again until it is there, and once for each `identity` of a path."""

    call: Call
    identity: str


LONGEST_NOTE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSnapshot:
    """Base of every kind's snapshot. `now` is the only clock a decision knows."""

    now: datetime
    object: KubeObject
    """The custom resource as the API server has it."""
    children: tuple[KubeObject, ...] = ()
    """Live objects of the same pass; the runner compares what the plan applies with them."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def generation(self) -> int:
        return int(self.object["metadata"].get("generation", 0))

    @property
    def status(self) -> dict[str, Any]:
        """Live status, empty when there is none yet."""
        return dict(self.object.get("status") or {})

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    @property
    def time(self) -> str:
        """`now` as RFC 3339 with whole seconds, as metav1.Time has it."""
        return rfc3339(self.now)


def obeyed(live: KubeObject) -> dict[str, str]:
    """Annotations, each cut to what a field of a status may hold: what was obeyed is remembered there."""
    notes = live["metadata"].get("annotations") or {}
    return {key: str(value)[:LONGEST_NOTE] for key, value in notes.items()}


def rfc3339(moment: datetime) -> str:
    """metav1.Time: UTC, whole seconds."""
    return moment.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"


def parse_time(text: str) -> datetime:
    """A metav1.Time or MicroTime.

    Raises:
        ValueError: not RFC 3339.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def owner_reference(owner: KubeObject) -> dict[str, Any]:
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
    owner: KubeObject,
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


def controller_uid(manifest: KubeObject) -> str | None:
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
