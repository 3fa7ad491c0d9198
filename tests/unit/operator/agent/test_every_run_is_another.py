"""No run of an agent repeats another one, and none is judged by episodes that judged another one."""

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN
from learnloop_api.kinds.training.study import InitialPolicy
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.agents.agent_children import training_job
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.agents.triggers import Trigger

from .test_learning_agent import situation

WHY = Trigger("episodes", "enough")


def run(number: int, given: AgentSnapshot | None = None) -> TrainingJobSpec:
    return TrainingJobSpec.model_validate(training_job(given or situation(), number, WHY)["spec"])


def with_template(**more) -> AgentSnapshot:
    body = situation().spec.to_kube()
    body["training"]["template"].update(more)
    return situation(spec=LearningAgentSpec.model_validate(body).to_kube())


def of_uid(uid: str) -> AgentSnapshot:
    snapshot = situation()
    snapshot.object["metadata"]["uid"] = uid
    return snapshot


@given(st.integers(1, 999_999_999), st.integers(1, 999_999_999))
def test_no_two_runs_of_an_agent_play_the_same_held_out_episodes(one: int, other: int) -> None:
    first, second = run(one).evaluation, run(other).evaluation
    assert first.seed == second.seed
    assert abs(first.first_episode - second.first_episode) >= EPISODES_PER_RUN * min(1, abs(one - other))
    assert (run(one).seed == run(other).seed) is (one == other)


def test_another_agent_of_the_same_name_begins_elsewhere() -> None:
    one, other = run(1, of_uid("a")), run(1, of_uid("b"))
    assert one.seed != other.seed
    assert one.evaluation.seed != other.evaluation.seed


def test_a_seed_that_the_user_set_wins_and_held_out_episodes_rotate_all_the_same() -> None:
    given = with_template(seed=7)
    assert (run(1, given).seed, run(2, given).seed) == (7, 7)
    assert run(1, given).evaluation.first_episode != run(2, given).evaluation.first_episode


def test_held_out_episodes_that_the_user_named_are_played_by_every_run() -> None:
    given = with_template(evaluation={"seed": 3, "firstEpisode": 0})
    assert [(run(n, given).evaluation.seed, run(n, given).evaluation.first_episode) for n in (1, 2)] == [(3, 0)] * 2


@pytest.mark.parametrize("seed", [0, 2_147_483_647])
def test_every_seed_is_one_that_a_training_job_takes(seed: int) -> None:
    assert run(999_999_999, with_template(seed=seed)).seed == seed


def test_a_run_begins_from_the_policy_that_serves_unless_it_is_told_otherwise() -> None:
    assert run(1).initial_policy == InitialPolicy(serving=True, required=False)
    own = {"uri": "https://models/one.onnx", "sha256": "0" * 64}
    policy = run(1, with_template(initialPolicy=own)).initial_policy
    assert (policy.uri, policy.required) == (own["uri"], True)
    body = situation().spec.to_kube()
    body["training"]["warmStart"] = False
    assert run(1, situation(spec=body)).initial_policy is None
