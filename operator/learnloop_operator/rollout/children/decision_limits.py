"""What part of the decisions that a ModelDeployment may give is each server's."""

from collections.abc import Sequence

from learnloop_api.wire.routing import Arm, Limits
from learnloop_operator.rollout.judging.arm_capacity import replicas
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot

LEAST_PERCENT = 10
"""An arm without new episodes still ends those that were opened on it."""


def limits(snapshot: Snapshot) -> Limits | None:
    """The limits as the table has them."""
    asked = snapshot.spec.decision_limits
    return Limits.model_validate(asked.model_dump()) if asked else None


def with_shares(snapshot: Snapshot, state: State, arms: Sequence[Arm]) -> list[Arm]:
    """The arms, each with the part that one of its servers may give; all parts of all servers make 1."""
    if snapshot.spec.decision_limits is None:
        return list(arms)
    parts = {arm.revision: max(LEAST_PERCENT, arm.weight) for arm in arms}
    whole = sum(parts.values())
    return [
        arm.model_copy(
            update={"share": round(parts[arm.revision] / whole / max(1, replicas(snapshot, state, arm.revision)), 6)}
        )
        for arm in arms
    ]
