"""A decision: the whole effect of one pass over one object, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Manifest = Mapping[str, Any]


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
    whatever follows from it (a scale-down). A plan equal to the world costs no write.

    `status_first`: the status permits what `apply` does (a canary's weight rises), so it must be on record before.
    """

    status: Manifest
    apply: tuple[Manifest, ...] = ()
    delete: tuple[ObjectRef, ...] = ()
    calls: tuple["Call", ...] = ()
    announcements: tuple["Announcement", ...] = ()
    """What the data plane is to be told when it answers; no pass waits for it."""
    events: tuple[Notice, ...] = ()
    outside: tuple[Manifest, ...] = ()
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
    body: Manifest | None = None


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
    object: Manifest
    """The custom resource as the API server has it."""
    children: tuple[Manifest, ...] = ()
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


def obeyed(live: Manifest) -> dict[str, str]:
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
