"""Recorded experience to learn from, made on the spot."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from learnloop_api.wire.trajectory import Outcome, Step, Trajectory
from learnloop_environments import make
from learnloop_environments.randomness import Split
from learnloop_trainer.recordings import Target

WHEN = "2026-01-01T00:00:00Z"


def recorded(name: str, file: Path) -> None:
    """A few hundred steps of one environment, played at random, as one trajectory in `file`.

    Choices are uniform; numbers are tanh of standard normal ones, for bounds of -1 and 1.
    """
    world, random = make(name, Split.TRAINING, 0, range(1)), np.random.default_rng(0)
    observation, steps = world.reset()[0], list[Step]()
    for _ in range(300):
        if world.bounds is None:
            done, action, log_prob = np.array([random.integers(2)]), 0, math.log(0.5)
            action = int(done[0])
        else:
            drawn = random.normal(size=(1, world.actions)).astype(np.float32)
            done = np.tanh(drawn)
            action, log_prob = done[0].tolist(), float(-np.square(drawn).sum() / 2 - np.log(1 - done**2).sum())
        step = world.step(done)
        over = {"terminated": bool(step.terminated[0]), "truncated": bool(step.truncated[0])}
        reward = float(step.reward[0])
        steps.append(
            Step(
                observation=observation.tolist(),
                action=action,
                log_prob=log_prob,
                reward=reward,
                exploration=True,
                **over,
            )
        )
        observation = step.observation[0]
    names = {"trajectory_id": "t", "agent": "a", "episode_id": "e", "policy_revision": "0" * 8}
    outcome = Outcome(status="completed", episode_return=0.0)
    whole = Trajectory(**names, started_at=WHEN, ended_at=WHEN, steps=steps, outcome=outcome)
    file.write_text(whole.model_dump_json())


CONTEXTS = 3


def bandit(file: Path, episodes: int, steps: int, right: float = 0.5) -> Callable[[Target, float], float]:
    """Episodes of an agent that shall name what it sees, one of three things, and does so with probability `right`.

    Returns what gives a policy's true discounted return: without an environment, the answer is known all the same.
    """
    random = np.random.default_rng(1)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = list[str]()
    for number in range(episodes):
        made = list[Step]()
        for age in range(steps):
            context = int(random.integers(CONTEXTS))
            other = (context + int(random.integers(1, CONTEXTS))) % CONTEXTS
            named = context if random.random() < right else other
            chance = right if named == context else (1 - right) / (CONTEXTS - 1)
            made.append(
                Step(
                    observation=np.eye(CONTEXTS)[context].tolist(),
                    action=named,
                    log_prob=math.log(chance),
                    reward=float(named == context),
                    exploration=True,
                    terminated=age == steps - 1,
                )
            )
        names = {"trajectory_id": f"t{number}", "agent": "la", "episode_id": f"e{number}", "policy_revision": "0" * 8}
        outcome = Outcome(status="completed", episode_return=sum(step.reward for step in made))
        whole = Trajectory(**names, started_at=WHEN, ended_at=WHEN, steps=made, outcome=outcome)
        lines.append(whole.model_dump_json())
    file.write_text("\n".join(lines))

    def real(policy: Target, discount: float) -> float:
        context = np.eye(CONTEXTS, dtype=np.float32)
        chances = np.exp(policy.log_probability(context, np.arange(CONTEXTS)))
        return float(chances.mean() * (discount ** np.arange(steps)).sum())

    return real
