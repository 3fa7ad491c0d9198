"""Snapshot for a decision: the world as one pass read it, frozen, with the time it was read."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.core.plan import Manifest

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
        """Name of the object."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return str(self.object["metadata"]["namespace"])

    @property
    def generation(self) -> int:
        """Generation of the spec."""
        return int(self.object["metadata"].get("generation", 0))

    @property
    def status(self) -> dict[str, Any]:
        """Live status, empty when there is none yet."""
        return dict(self.object.get("status") or {})

    @property
    def deleting(self) -> bool:
        """The object is being deleted."""
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
