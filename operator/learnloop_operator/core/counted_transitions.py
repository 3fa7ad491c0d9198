"""News in the status that a pass writes: things to be counted, as data; and the trace that they belong to.

A status is written once with each of these news, so each is counted once. What an operator writes just before it dies
is never counted: metrics count what one process did, the status and the audit chain are the record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api import names
from learnloop_common.telemetry import trace_id
from learnloop_operator.core.conditions import FALSE, TRUE, find
from learnloop_operator.core.plan import BaseSnapshot, KubeObject, Notice, Plan, parse_time

NOBODY = "_none"
"""The agent of an object that belongs to none."""
What = Literal["training", "validation", "rollout", "roll_back", "deployment", "anomaly", "reserved", "spent"]
_ROLLOUTS: Mapping[str, str] = {
    "Promoted": "promoted",
    "PromotedByHand": "promoted_by_hand",
    "RolledBack": "rolled_back",
    "SwappedBack": "rolled_back",
    "Superseded": "superseded",
    "Reverted": "reverted",
}
_DEPLOYMENTS = ("FirstModelServed", "Promoted", "PromotedByHand")


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing to count: `result` is how it ended, or why it was."""

    what: What
    namespace: str
    agent: str
    result: str
    seconds: float | None = None
    """Duration, where it is known."""
    amount: float = 1.0


def happenings(kind: str, snapshot: BaseSnapshot, plan: Plan) -> tuple[Happening, ...]:
    """News in the plan's status, compared with the one before the pass."""
    before, after = snapshot.status, plan.status
    whose = snapshot.namespace, agent_of(snapshot.object, after)
    result: list[Happening] = []
    if kind == "TrainingJob":
        result += _of_cost(whose, before, after) + _of_training(whose, before, after)
    elif kind == "ModelDeployment":
        result += _of_rollouts(whose, before, after, plan.events)
    result += [Happening("anomaly", *whose, anomaly) for anomaly in new_anomalies(before, after)]
    return tuple(result)


def agent_of(body: KubeObject, status: Mapping[str, Any]) -> str:
    """The LearningAgent an object belongs to; for an agent and its own ModelDeployment, the name."""
    if body.get("kind") == "LearningAgent":
        return str(body["metadata"]["name"])
    labels = body["metadata"].get("labels") or {}
    of_lineage = (status.get("lineage") or {}).get("learningAgent")
    return str(labels.get(names.LABEL_AGENT) or of_lineage or NOBODY)


def new_anomalies(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Reasons of the condition Anomalous that was not True, or for another reason."""
    was, now = find(before, "Anomalous"), find(after, "Anomalous")
    new = now.get("status") == TRUE and (was.get("status"), was.get("reason")) != (TRUE, now["reason"])
    return (str(now["reason"]),) if new else ()


def evidence_missing_since(status: Mapping[str, Any]) -> float | None:
    """Unix time since which a running rollout has had no readable evidence."""
    data = find(status, "DataAvailable")
    running = find(status, "Progressing").get("status") == TRUE and status.get("canary") is not None
    return parse_time(data["lastTransitionTime"]).timestamp() if running and data.get("status") == FALSE else None


def _of_cost(whose: tuple[str, str], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Happening]:
    """Cost of the run since the status before; a study's trials are counted themselves."""
    old, new = before.get("cost") or {}, after.get("cost") or {}
    if not new or "study" in after:
        return []
    counts: list[tuple[What, str, float, str]] = [
        ("reserved", "cpu", 3600.0, "cpuHours"),
        ("reserved", "gpu", 3600.0, "gpuHours"),
        ("spent", new.get("currency", ""), 1.0, "money"),
    ]
    grown = [(what, of, unit * (new.get(name, 0.0) - old.get(name, 0.0))) for what, of, unit, name in counts]
    return [Happening(what, *whose, of, amount=amount) for what, of, amount in grown if amount > 0]


def _of_training(whose: tuple[str, str], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Happening]:
    if before.get("finishedAt") or not after.get("finishedAt"):
        return []
    reason = find(after, "Ready").get("reason", "")
    result = {"Validated": "validated", "GatesFailed": "gates_failed"}.get(reason, "failed")
    began = after.get("startedAt") or before.get("startedAt")
    seconds = None
    if began:
        seconds = max(0.0, (parse_time(after["finishedAt"]) - parse_time(began)).total_seconds())
    matches = [Happening("training", *whose, result, seconds)]
    if result != "failed":
        matches.append(Happening("validation", *whose, "passed" if result == "validated" else "failed"))
    return matches


def _of_rollouts(
    whose: tuple[str, str], before: Mapping[str, Any], after: Mapping[str, Any], events: tuple[Notice, ...]
) -> list[Happening]:
    message = [notice.reason for notice in events]
    result = [Happening("rollout", *whose, _ROLLOUTS[reason]) for reason in message if reason in _ROLLOUTS]
    result += [Happening("deployment", *whose, reason) for reason in message if reason in _DEPLOYMENTS]
    previous = {(block["revision"], block.get("at")) for block in before.get("blockedRevisions") or ()}
    blocks = after.get("blockedRevisions") or ()
    fresh = [block for block in blocks if (block["revision"], block.get("at")) not in previous]
    return result + [Happening("roll_back", *whose, str(block.get("reason") or "Unknown")) for block in fresh]


Status = Mapping[str, Any]


def of_object(kind: str, body: Mapping[str, Any]) -> str:
    """Trace id (32 hexadecimal digits) of the current work on this object: its training, or its newest rollout."""
    uid = str(body["metadata"].get("uid", ""))
    began = (body.get("status") or {}).get("rolloutStartedAt")
    return trace_id(uid, began) if kind == "ModelDeployment" and began else trace_id(uid)


def under_way(status: Status) -> bool:
    gates, experiment = status.get("gates") or {}, status.get("experiment") or {}
    at_gates = not status.get("stable") and gates.get("phase") in ("Running", "AwaitingApproval")
    tried = experiment.get("phase") in ("Starting", "Running")
    return bool(status.get("canary") or status.get("previous") or at_gates or tried)
