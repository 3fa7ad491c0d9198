"""An object this operator cannot read: said on the object itself, and nothing else about it is touched."""

from dataclasses import dataclass

from pydantic import ValidationError

from learnloop_operator.core.conditions import merge, ready_triplet
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.snapshot import Snapshot

INVALID = "InvalidObject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Snapshot):
    """`problem` names the field, the value's fault and thereby the fix."""

    problem: str


def describe(part: str, error: ValidationError) -> str:
    """The first fault as `spec.a.b: what is wrong`."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join((part, *(str(step) for step in first["loc"])))
    return f"{where}: {first['msg']}"


def decide_broken(snapshot: Broken) -> Plan:
    """Status only: children and routes stay as they are."""
    wanted = ready_triplet(
        ready=False,
        progressing=False,
        stalled=True,
        reason=INVALID,
        message=snapshot.problem,
        generation=snapshot.generation,
    )
    before = snapshot.status.get("conditions") or []
    kept = [item for item in before if item["type"] not in {new["type"] for new in wanted}]
    conditions = merge(before, [*wanted, *kept], snapshot.time)
    return Plan(status={**snapshot.status, "phase": "Degraded", "conditions": conditions})
