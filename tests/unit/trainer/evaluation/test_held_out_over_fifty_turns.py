"""From the agent's YAML to the seeds that environments get: over fifty turns no held-out episode comes twice."""

import numpy as np
from hypothesis import given, settings, strategies as st

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.training.evaluation import DIMENSIONS, EPISODES_PER_RUN
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_environments.interfaces.foreign_spaces import foreign_seeds
from learnloop_environments.randomness import Split, Words, episode_seeds
from learnloop_operator.agents.agent_children import training_job
from learnloop_operator.agents.triggers import Trigger
from learnloop_trainer.evaluation.held_out_episodes import episodes
from learnloop_trainer.evaluation.suite.disturbances import FIRST as SUITE, PER_CONDITION, ROOM
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.policy_proof import VALIDATION
from learnloop_trainer.training_run.validation import FIRST as WHILE_TRAINING

from ...operator.agent.test_learning_agent import situation, spec

TURNS = 50
MOST = 10_000
"""Episodes of one evaluation."""


def orders(uid: str, template: dict) -> list[Order]:
    body = spec()
    body["training"]["template"] |= template
    agent = situation(spec=LearningAgentSpec.model_validate(body).to_kube())
    agent.object["metadata"]["uid"] = uid
    made = []
    for number in range(1, TURNS + 1):
        job = TrainingJobSpec.model_validate(training_job(agent, number, Trigger("episodes", "enough"))["spec"])
        made.append(Order.model_validate({"job": f"la-{number}", "spec": job.to_kube()}))
    return made


def played(order: Order) -> Words:
    """Seeds of the proof, of a study's choice, of validation, and of the first and last condition of the suite."""
    return episode_seeds(Split.HELD_OUT, episodes(order).seed, numbers(order), 0)


def numbers(order: Order) -> Words:
    proof = episodes(order)
    last = SUITE + (len(DIMENSIONS) * ROOM - 1) * PER_CONDITION
    parts = [
        np.arange(start, start + proof.episodes)
        for start in (0, MOST - proof.episodes, VALIDATION, WHILE_TRAINING, SUITE, last)
    ]
    return np.asarray(proof.first + np.concatenate(parts), dtype=np.uint64)


@settings(max_examples=10, deadline=None)
@given(st.uuids(), st.one_of(st.none(), st.integers(0, 2**31 - 1)), st.booleans())
def test_no_held_out_episode_comes_twice_nor_is_trained_on_whatever_seed_the_user_set(uid, seed, proves_by_it):
    template = {} if seed is None else {"seed": seed}
    if proves_by_it and seed is not None:
        template["evaluation"] = {"seed": seed}
    runs = orders(str(uid), template)
    proved = np.concatenate([played(order) for order in runs])
    assert len(np.unique(proved)) == len(proved)
    trained = np.concatenate(
        [episode_seeds(Split.TRAINING, one.spec.seed, np.arange(32)[:, None], np.arange(20)).ravel() for one in runs]
    )
    assert not np.intersect1d(proved, trained).size
    foreign = np.concatenate([foreign_seeds(Split.HELD_OUT, episodes(order).seed, numbers(order)) for order in runs])
    assert len(np.unique(foreign)) == len(foreign), "nor of Gymnasium's 31 bits"
    assert not np.intersect1d(foreign, trained >> np.uint64(33)).size


def test_all_that_one_run_plays_fits_between_its_first_episode_and_the_next_runs() -> None:
    assert MOST <= VALIDATION
    assert VALIDATION + MOST <= WHILE_TRAINING
    assert WHILE_TRAINING + MOST <= SUITE
    assert SUITE + len(DIMENSIONS) * ROOM * PER_CONDITION <= EPISODES_PER_RUN
