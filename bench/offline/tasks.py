"""What is learned from: a world, who logged in it, and how both sides learn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments import VectorEnvironment, make
from learnloop_environments.randomness import Split

BATCH, HIDDEN, RATE = 256, [64, 64], 1e-3
Act = Callable[[NDArray[Any]], NDArray[Any]]
"""From observations [n, observations] to what is done: choices [n], or numbers [n, dimensions] within -1 and 1."""


@dataclass(frozen=True, slots=True)
class Task:
    """One algorithm on one log.

    Attributes:
        peer: the library's class.
        updates: of each side, of BATCH transitions.
        parameters: hyperparameters of ours; `theirs` says the same to the library.
    """

    algorithm: str
    peer: str
    environment: str
    episodes: int
    discount: float
    updates: int = 2000
    parameters: Mapping[str, Any] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)


_HELD_DOWN = {"conservatism": 1.0}
_IMPLICIT = {"actor_learning_rate": RATE, "critic_learning_rate": RATE}
_SOFT = _IMPLICIT | {"conservative_weight": 1.0, "alpha_learning_rate": 0.0, "temp_learning_rate": RATE}
TASKS = (
    Task("cql", "DiscreteCQL", "CartPole-v1", 600, 0.99, 2000, _HELD_DOWN, {"target_update_interval": 200}),
    Task("cql-sac", "CQL", "PointGoals-v1", 500, 0.9, 2000, _HELD_DOWN, _SOFT),
    Task("iql-offline", "IQL", "PointGoals-v1", 500, 0.9, 2000, {}, _IMPLICIT),
    Task("iql-offline", "IQL", "Pendulum-v1", 100, 0.97, 2000, {}, _IMPLICIT),
)


def logged(task: Task) -> dict[str, NDArray[Any]]:
    """Steps of the task's log, one episode after another, and the last observation of each episode."""
    random = np.random.default_rng(0)
    world = make(task.environment, Split.TRAINING, 0, range(task.episodes))
    seen, running = world.reset(), np.ones(task.episodes, dtype=np.bool_)
    rows: list[tuple[Any, ...]] = []
    while running.any():
        done = _act(world, seen, random)
        step = world.step(done if world.bounds is None else world.bounds.scale(done))
        over = step.terminated | step.truncated
        for one in np.flatnonzero(running):
            rows.append((one, seen[one], done[one], step.reward[one], step.terminated[one], over[one]))
        seen, running = step.observation, running & ~over
    world.close()
    rows.sort(key=lambda row: row[0])  # stable: steps of an episode stay in their order
    names = ("episode", "observation", "action", "reward", "terminated", "last")
    return {name: np.asarray([row[index] for row in rows]) for index, name in enumerate(names)}


def _act(world: VectorEnvironment, seen: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Blindly, but for the pendulum: a controller that swings it up, disturbed, in half of its steps."""
    if world.bounds is None:
        return random.integers(0, world.actions, len(seen))
    blind = np.tanh(random.normal(size=(len(seen), world.actions))).astype(np.float32)
    if world.observations != 3:
        return blind
    upright, sine, speed = seen[:, 0], seen[:, 1], seen[:, 2]
    held = -(8.0 * sine + 2.0 * speed) / 2.0
    swung = np.where(upright > 0.8, held, np.sign(speed))
    skilled = np.clip(swung[:, None] + 0.3 * blind, -1.0, 1.0)
    return np.where(random.random((len(seen), 1)) < 0.5, skilled, blind).astype(np.float32)


def played(environment: str, act: Act, episodes: int, seed: int) -> float:
    """Mean return of so many episodes that no log has."""
    world = make(environment, Split.HELD_OUT, seed, range(episodes))
    seen, running, total = world.reset(), np.ones(episodes, dtype=np.bool_), np.zeros(episodes)
    while running.any():
        done = act(seen)
        step = world.step(done if world.bounds is None else world.bounds.scale(done))
        total += np.where(running, step.reward, 0.0)
        seen, running = step.observation, running & ~(step.terminated | step.truncated)
    world.close()
    return float(total.mean())
