"""A person's order to train, told to the data plane for the audit chain, and written as a line of the audit log."""

from hashlib import sha256
from typing import Any

from learnloop_api.kinds.learning_agent import LearningAgentStatus
from learnloop_api.wire.training_request import TrainingOrder
from learnloop_operator.agents.snapshot import AgentSnapshot
from learnloop_operator.core.plan import Announcement, Call, Manifest
from learnloop_operator.core.times import parse, seconds_since

NEWS_SECONDS = 3600.0
"""A new leader tells of an order that is no older. The data plane knows those that it was told before."""
BY_A_PERSON = "annotation"
"""The trigger of a run that `kubectl learnloop train` asked for."""


def announcements(world: AgentSnapshot, after: LearningAgentStatus) -> tuple[Announcement, ...]:
    """The order that the newest run obeys, under an identity that it always has."""
    order = _order(world, after)
    if order is None or seconds_since(order.at.isoformat(), world.now) > NEWS_SECONDS:
        return ()
    uid = str(world.object["metadata"].get("uid", ""))
    identity = sha256("\n".join((uid, order.job, order.value)).encode()).hexdigest()[:32]
    path = f"/api/v1/agents/{world.name}/training-orders/{identity}"
    return (Announcement(Call("PUT", path, order.model_dump(mode="json")), identity),)


def audit(world: AgentSnapshot, before: LearningAgentStatus, after: LearningAgentStatus) -> tuple[Manifest, ...]:
    """One line of the audit log, in the pass that obeys an order."""
    if after.last_training == before.last_training or (order := _order(world, after)) is None:
        return ()
    line: dict[str, Any] = {
        "kind": "LearningAgent",
        "namespace": world.namespace,
        "name": world.name,
        "verb": "train",
        "by": order.by,
        "verified": order.verified,
        "at": after.last_training.at if after.last_training else world.time,
        "outcome": "obeyed",
        "message": f"begins {order.job}",
        "value": order.value,
    }
    return (line,)


def _order(world: AgentSnapshot, after: LearningAgentStatus) -> TrainingOrder | None:
    run, value = after.last_training, after.observed_train
    if run is None or run.trigger != BY_A_PERSON or value is None or parse(run.at) is None:
        return None
    who = value.partition(" by ")[2][:256] or None
    return TrainingOrder.model_validate(
        {
            "agent": world.name,
            "job": run.name,
            "by": who,
            "verified": bool(who and world.defaults.names_are_verified),
            "at": run.at,
            "value": value[:512],
        }
    )
