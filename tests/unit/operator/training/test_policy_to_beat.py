"""A run begins from, and is compared with, a policy that serves: never one that was rolled back."""

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from testing.training.training_builders import plan, situation, spec

from .test_reward_policy_of_a_run import order

RUN = spec(data={"environment": "CartPole-v1", "learningAgentRef": {"name": "la"}})
OLD, NEW = ({"uri": f"learnloop://ns/{digit * 64}", "sha256": digit * 64} for digit in "ab")
UNIFORM = {"uri": "uniform://discrete/2?observations=4"}


def to_beat(wanted: dict, deployment: dict | None) -> tuple[str | None, str | None]:
    """Address and digest in the order, where the agent is to be served with `wanted`."""
    answer = {"spec": {"task": {"environment": {"name": "CartPole-v1"}}}, "status": {"model": wanted}}
    status = None if deployment is None else ModelDeploymentStatus.model_validate(deployment)
    made = order(plan(situation(spec=RUN, agent=answer, agent_name="la", deployment=status)))
    return made.get("baselineUri"), made.get("baselineSha256")


def arm(model: dict[str, str]) -> dict[str, str]:
    return {"revision": "1234abcd", **model}


def block(model: dict[str, str]) -> dict[str, str]:
    return {**arm(model), "reason": "RolledBack", "message": "return is worse", "at": "2026-03-01T11:00:00Z"}


def test_the_newest_proven_model_is_to_be_beaten_while_it_is_on_its_way() -> None:
    for deployment in (None, {}, {"stable": arm(OLD), "canary": arm(NEW)}, {"stable": arm(NEW)}):
        assert to_beat(NEW, deployment) == (NEW["uri"], NEW["sha256"])


def test_after_a_rollback_it_is_the_one_that_serves_whatever_address_the_artifact_has_now() -> None:
    moved = NEW | {"uri": "https://models/new.onnx"}
    assert to_beat(NEW, {"stable": arm(OLD), "blockedRevisions": [block(NEW)]}) == (OLD["uri"], OLD["sha256"])
    assert to_beat(NEW, {"stable": arm(OLD), "blockedRevisions": [block(moved)]}) == (OLD["uri"], OLD["sha256"])


@pytest.mark.parametrize(
    ("serves", "rolled_back", "expected"),
    [(NEW, OLD, NEW), (UNIFORM, NEW, UNIFORM), (NEW, NEW, NEW)],
    ids=["an older model was rolled back", "chance serves again", "other pods of what serves were rolled back"],
)
def test_what_serves_is_to_be_beaten(serves, rolled_back, expected) -> None:
    result = to_beat(NEW, {"stable": arm(serves), "blockedRevisions": [block(rolled_back)]})
    assert result == (expected["uri"], expected.get("sha256"))
