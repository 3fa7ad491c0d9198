"""A run by a policy's rewards waits for a revision in force, and goes on by the one it began with."""

import json

from learnloop_api.names import ANNOTATION_TRAJECTORIES
from learnloop_operator.core.plan import Plan
from learnloop_operator.training.proof_gates import flaw
from testing.training.training_builders import plan, proof, reason, situation, spec

BY_POLICY = spec(data={"environment": "CartPole-v1", "rewards": "policy", "learningAgentRef": {"name": "la"}})


def order(made: Plan) -> dict:
    (manifest,) = made.apply
    pod = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    (text,) = [item["value"] for item in pod["containers"][0]["env"] if item["name"] == "LEARNLOOP_TRAINING_SPEC"]
    return dict(json.loads(text))


def agent(revision: str | None) -> dict:
    return {"spec": {"rewardPolicyRef": {"name": "rp"}}, "status": {"rewardPolicyRevision": revision}}


def test_the_revision_in_force_goes_with_the_order_and_into_the_lineage() -> None:
    made = plan(situation(spec=BY_POLICY, agent=agent("r1"), agent_name="la"))
    assert order(made)["rewardPolicy"] == {"name": "rp", "revision": "r1"}
    assert made.status["lineage"]["rewardPolicyRevision"] == "r1"


def test_the_next_attempt_learns_by_the_revision_of_the_first() -> None:
    begun = {"learningAgent": "la", "rewardPolicy": "rp", "rewardPolicyRevision": "r1"}
    snapshot = situation({"attempts": 1, "lineage": begun}, spec=BY_POLICY, agent=agent("r2"), agent_name="la")
    assert order(plan(snapshot))["rewardPolicy"] == {"name": "rp", "revision": "r1"}


def test_without_a_revision_in_force_nothing_starts_and_the_sentence_says_what_to_look_at() -> None:
    for answer in (agent(None), None):
        made = plan(situation(spec=BY_POLICY, agent=answer, agent_name="la"))
        assert not made.apply
        assert reason(made) == "RewardPolicyUnpublished"


def test_a_proof_by_other_rewards_than_the_runs_own_proves_nothing() -> None:
    begun = {"learningAgent": "la", "rewardPolicy": "rp", "rewardPolicyRevision": "r1"}
    snapshot = situation({"attempts": 1, "lineage": begun}, spec=BY_POLICY, agent=agent("r2"), agent_name="la")
    named = {"rewards": "policy", "reward_policy": "rp"}
    assert flaw(snapshot, proof(**named, reward_policy_revision="r1")) is None
    for other in (proof(), proof(**named, reward_policy_revision="r2")):
        problem = flaw(snapshot, other)
        assert "the run began with policy, revision r1" in problem[1]
    assert flaw(situation(agent=agent("r1"), agent_name="la"), proof()) is None


def test_a_run_by_the_environments_rewards_names_no_policy() -> None:
    assert "rewardPolicy" not in order(plan(situation(agent=agent("r1"), agent_name="la")))


def test_the_lineage_counts_the_episodes_that_the_trigger_saw() -> None:
    """The agent's own status lags: in the pass that triggers a run it still has the count of the pass before."""
    stale = agent("r1") | {"status": {"rewardPolicyRevision": "r1", "trajectories": 0}}
    snapshot = situation(spec=BY_POLICY, agent=stale, agent_name="la")
    assert plan(snapshot).status["lineage"]["trajectories"] == 0
    snapshot.object["metadata"]["annotations"] = {ANNOTATION_TRAJECTORIES: "641"}
    assert plan(snapshot).status["lineage"]["trajectories"] == 641
