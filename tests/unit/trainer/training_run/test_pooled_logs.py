"""One policy learns from the logs of several agents."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from learnloop_api.wire.trajectory import Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.errors import ConfigError
from learnloop_environments.randomness import Split
from learnloop_trainer.distributed import Alone
from learnloop_trainer.neural.networks import forward
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.logged_experience import load
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEFT, RIGHT = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]


def log(root: Path, agent: str, observation: list[float], action: int, episodes: int = 20) -> None:
    """Episodes of ten steps in which the agent saw one thing and did one thing."""
    step = Step(observation=observation, action=action)
    lines = [
        Trajectory(
            trajectory_id=f"{agent}{number}",
            agent=agent,
            episode_id=f"{agent}{number}",
            policy_revision="3f9a2c81",
            started_at=NOW,
            ended_at=NOW,
            steps=[step] * 10,
            outcome=Outcome(status="completed", episode_return=0),
        ).model_dump_json()
        for number in range(episodes)
    ]
    (root / "trajectories").mkdir(exist_ok=True)
    (root / "trajectories" / f"{agent}.jsonl").write_text("\n".join(lines))


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    log(tmp_path, "west", LEFT, 0)
    log(tmp_path, "east", RIGHT, 1)
    return DirectoryStore(tmp_path, "small-1")


def ordered(make_order: Callable[..., Order], *agents: str, **data: Any) -> Order:
    data = {"learningAgentRef": {"name": "west"}, "agents": list(agents)} | (data or {"environment": "CartPole-v1"})
    return make_order("bc", 100_000, hyperparameters={"hidden": [8], "maxRecordedSteps": 200}, data=data)


def cloned(order: Order, store: DirectoryStore) -> PolicyTraining:
    training = begin(order, Alone(), torch.device("cpu"), store)
    for _ in range(20):
        training.observation, _ = training.learner.iterate(training.observation)
    return training


def test_a_policy_does_in_each_agents_situation_what_that_agent_did(
    make_order: Callable[..., Order], store: DirectoryStore
) -> None:
    training = cloned(ordered(make_order, "idle", "east", "west"), store)
    leaves = training.learner.network.leaves
    chosen = forward(leaves, "policy", "tanh", torch.tensor([LEFT, RIGHT])).argmax(1).tolist()
    assert chosen == [0, 1], "west alone has never seen what east has"
    note = training.read.note
    assert note is not None
    assert note.agents == {"west": 7, "idle": 0, "east": 14}, "of the 200 steps, what idle lacks is for the next one"


@pytest.mark.parametrize(("others", "own"), [(["idle"], 20), (["idle", "east"], 7), (["east", "idle"], 14)])
def test_the_trained_agent_gets_what_the_last_logs_lack(
    make_order: Callable[..., Order], store: DirectoryStore, others: list[str], own: int
) -> None:
    note = cloned(ordered(make_order, *others), store).read.note
    assert note is not None
    assert note.agents["west"] == own


def test_the_episodes_that_prove_a_run_are_the_trained_agents_own_and_all_others_train(
    make_order: Callable[..., Order], store: DirectoryStore
) -> None:
    order = ordered(make_order, "east", spaces="uniform://discrete/2?observations=4")
    learned, _, proof = load(order, store, make("CartPole-v1", Split.TRAINING, 0, range(1)))
    assert learned is not None
    assert proof is not None
    assert {tuple(row) for row in proof.observation.tolist()} == {tuple(LEFT)}
    assert learned.observation.tolist().count(RIGHT) == 100, "a half of the 200 steps"


def test_an_agent_that_sees_something_else_is_named(
    make_order: Callable[..., Order], store: DirectoryStore, tmp_path: Path
) -> None:
    log(tmp_path, "north", [1.0, 2.0, 3.0], 0)
    refusal = "spec.data.agents: 'north' has logged .* episodes, .* 4 numbers as its observation, .*remove the agent"
    with pytest.raises(ConfigError, match=refusal):
        cloned(ordered(make_order, "east", "north"), store)
