"""From recorded experience alone, without a step in the environment."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from learnloop_api.wire.trajectory import Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

WHEN = "2026-01-01T00:00:00Z"


def line(number: int, steps: list[Step]) -> str:
    """One recorded episode."""
    return Trajectory(
        trajectory_id=f"t{number}",
        agent="logged",
        episode_id=f"e{number}",
        policy_revision="00000000",
        started_at=WHEN,
        ended_at=WHEN,
        steps=steps,
        outcome=Outcome(status="completed", episode_return=sum(step.reward for step in steps)),
    ).model_dump_json()


def record(file: Path, episodes: int, controller: Callable[[NDArray[np.float32]], int] | None = None) -> float:
    """Episodes of CartPole, played at random or by a controller, as an agent logs them; returns their mean return."""
    environment, random = make("CartPole-v1", Split.TRAINING, 0, range(1)), np.random.default_rng(0)
    state, lines, steps = environment.reset(), list[str](), list[Step]()
    while len(lines) < episodes:
        action = int(random.integers(0, 2)) if controller is None else controller(state[0])
        step = environment.step(np.array([action]))
        terminated, over = bool(step.terminated[0]), bool(step.terminated[0] | step.truncated[0])
        log_prob = math.log(0.5) if controller is None else 0.0
        steps.append(
            Step(observation=state[0].tolist(), action=action, log_prob=log_prob, reward=1.0, terminated=terminated)
        )
        state = step.observation
        if over:
            lines.append(line(len(lines), steps))
            steps = []
    file.write_text("\n".join(lines))
    return sum(line.count('"reward"') for line in lines) / episodes


def test_from_twenty_episodes_of_a_controller_bc_learns_to_balance_nine_tenths_as_long(tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    behaviour = record(tmp_path / "log.jsonl", 20, lambda observation: int(observation[2] + 0.25 * observation[3] > 0))
    spec = {
        "algorithm": "bc",
        "totalSteps": 200_000,
        "hyperparameters": {"recording": (tmp_path / "log.jsonl").as_uri()},
        "data": {"environment": "CartPole-v1"},
    }
    order = Order.model_validate({"job": "log-2", "spec": spec})
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert behaviour > 450
    assert proof.evaluation.ci_low > 0.9 * behaviour, "at random it falls after 22 steps"


def draw(file: Path, episodes: int) -> float:
    """Episodes of PointGoals, drawn from a squashed normal distribution that is blind; returns their mean return."""
    world, random = make("motion:PointGoals", Split.TRAINING, 0, range(episodes)), np.random.default_rng(0)
    observation, steps, total = world.reset(), [list[Step]() for _ in range(episodes)], np.zeros(episodes)
    for age in range(20):
        drawn = random.normal(size=(episodes, 2))
        done = np.tanh(drawn)
        normal = -0.5 * np.square(drawn) - 0.5 * math.log(2 * math.pi)
        density = (normal - np.log(1 - np.square(done))).sum(axis=1)
        step = world.step(done.astype(np.float32))
        for number, one in enumerate(steps):
            facts = {"observation": observation[number].tolist(), "action": done[number].tolist()}
            facts |= {"log_prob": float(density[number]), "reward": float(step.reward[number])}
            one.append(Step.model_validate(facts | {"exploration": True, "truncated": age == 19}))
        total, observation = total + step.reward, step.observation
    file.write_text("\n".join(line(number, one) for number, one in enumerate(steps)))
    return float(total.mean())


@pytest.mark.parametrize("algorithm", ["cql", "iql-offline"])
def test_from_a_random_agents_log_offline_q_learning_learns_to_balance(tmp_path, monkeypatch, algorithm):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    behaviour = record(tmp_path / "log.jsonl", 1000)
    spec = {
        "algorithm": algorithm,
        "totalSteps": 1_000_000,
        "export": {"behaviour": {"kind": "greedy"}},
        "hyperparameters": {"recording": (tmp_path / "log.jsonl").as_uri(), "hidden": [64, 64]},
        "data": {"environment": "CartPole-v1"},
    }
    order = Order.model_validate({"job": "log-4", "spec": spec})
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert behaviour < 30
    assert proof.evaluation.ci_low > 4 * behaviour


def test_from_numbers_drawn_blindly_offline_q_learning_learns_where_the_goal_is(tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}/store")
    behaviour = draw(tmp_path / "log.jsonl", 500)
    spec = {
        "algorithm": "iql-offline",
        "totalSteps": 500_000,
        "hyperparameters": {"recording": (tmp_path / "log.jsonl").as_uri(), "discount": 0.9, "hidden": [64, 64]},
        "data": {"environment": "motion:PointGoals"},
    }
    order = Order.model_validate({"job": "log-5", "spec": spec})
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path / "store", order.job).proof()
    assert behaviour < -14, "as who stands still, 0.7 from the goal"
    assert proof.evaluation.ci_low > 0.7 * behaviour
