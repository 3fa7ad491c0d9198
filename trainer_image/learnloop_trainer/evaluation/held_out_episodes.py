"""Plays a policy on held-out episodes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import HeldOut
from learnloop_environments import Conditions, VectorEnvironment, errors, make, randomness, simulation, wrappers
from learnloop_environments.spaces import ActionSpace, Bounds, Observations, team_return
from learnloop_trainer import floating_point, shielded_environment, training_order

BLOCK = 256  # episodes played side by side
MAX_STEPS = 100_000
"""Of one episode. The return of a longer one is not known, so nothing is proven by the part that was played."""
KEEP = 20_000  # observations kept for the parity check


World = Callable[[range], VectorEnvironment]  # from the numbers of held-out episodes to their environments


def world(name: str, seed: int) -> World:
    """The held-out episodes of an environment under its own conditions."""
    return lambda members: make(name, randomness.Split.HELD_OUT, seed, members)


def decide(policy: "Policy", environment: VectorEnvironment, observation: Observations) -> NDArray[Any]:
    """The policy's actions in the environment's shape: each agent of a team asks it with what that agent sees."""
    actions = policy.act(np.ascontiguousarray(observation.reshape(-1, environment.observations)))
    return actions.reshape(*observation.shape[:-1], *actions.shape[1:])


class Policy(Protocol):
    """Anything that acts."""

    def act(self, observation: Observations) -> NDArray[Any]:
        """Actions [n], or [n, dimensions] where they are continuous, for observations [n, observations]."""


@runtime_checkable
class Drawing(Policy, Protocol):
    """A policy that draws: the same numbers again whenever the same episodes begin."""

    def begin(self, first: int) -> None:
        """Episodes begin, numbered from `first`."""


class Uniform:
    """Every action equally likely: the baseline when nothing is serving yet."""

    def __init__(self, actions: int, seed: int, bounds: Bounds | None = None) -> None:
        """Its draws depend on the seed and on how often it was asked."""
        self._space, self._seed, self._calls = ActionSpace(actions, bounds), seed, 0

    def act(self, observation: Observations) -> NDArray[Any]:
        self._calls += 1
        rows = np.arange(len(observation))[:, None]
        return self._space.sample(
            lambda count: randomness.uniforms(
                randomness.Purpose.BASELINE, self._seed, self._calls, rows, np.arange(count)
            )
        )


def play(
    environment: str | World, policy: Policy, seed: int, episodes: int, alive: Callable[[int], None]
) -> tuple[NDArray[np.float64], Observations]:
    """One episode on each of the held-out seeds 0 to `episodes` - 1 of this run.

    `environment`: a name, or what makes the environments. Returns the undiscounted returns [episodes], of teams the
    mean over the agents, and a sample of the observations met [m, observations]. Raises ConfigError where an episode
    has not ended after MAX_STEPS.
    `alive` is called now and then with the number of episodes finished.
    """
    returns: list[NDArray[np.float64]] = []
    observations: list[Observations] = []
    build = world(environment, seed) if isinstance(environment, str) else environment
    for first in range(0, episodes, BLOCK):
        members = range(first, min(first + BLOCK, episodes))
        returns.append(_play_block(build(members), policy, members, observations, alive))
    return np.concatenate(returns), np.concatenate(observations)[:KEEP]


def _play_block(
    environment: VectorEnvironment,
    policy: Policy,
    members: range,
    met: list[Observations],
    alive: Callable[[int], None],
) -> NDArray[np.float64]:
    try:
        observation = environment.reset()
        if isinstance(policy, Drawing):
            policy.begin(members.start)
        running, total = np.ones(len(members), dtype=np.bool_), np.zeros(len(members))
        rows = 0
        for t in range(MAX_STEPS):
            if rows < KEEP:
                met.append(observation[running].reshape(-1, environment.observations))
                rows += len(met[-1])
            step = environment.step(decide(policy, environment, observation))
            floating_point.require_finite(t, observation=step.successor, reward=step.reward)
            total += team_return(step.reward) * running
            running &= ~(step.terminated | step.truncated)
            if not running.any():
                break
            observation = step.observation
            if t % 100 == 0:
                alive(members.start + int((~running).sum()))
        else:
            problem = f"does not end {int(running.sum())} of {len(members)} held-out episodes within {MAX_STEPS} steps"
            fix = "set spec.data.maxStepsPerEpisode, or have its step return truncated after a time limit"
            world = wrappers.innermost(environment)
            raise errors.ConfigError(
                "spec.data.environment", getattr(world, "name", type(world).__name__), problem, fix
            )
        return total
    finally:
        environment.close()


def collect(
    environment: str | World, actions: int, seed: int, count: int, bounds: Bounds | None = None
) -> Observations:
    """At least `count` observations met by the uniform policy on held-out episodes."""
    build = world(environment, seed) if isinstance(environment, str) else environment
    opened, policy = build(range(64)), Uniform(actions, seed, bounds)
    try:
        observation = opened.reset()
        observations = [observation.reshape(-1, opened.observations)]
        while sum(map(len, observations)) < count:
            observation = opened.step(decide(policy, opened, observation)).observation
            observations.append(observation.reshape(-1, opened.observations))
        return np.concatenate(observations)[:count]
    finally:
        opened.close()


def nominal(order: training_order.Order) -> Conditions:
    """Conditions of evaluation: nominal physics and the level the run is to reach."""
    level = order.spec.data.level
    if order.spec.curriculum is not None:
        level = order.spec.curriculum.until or list(getattr(sample(order), "LEVELS", ()))[-1].name
    return Conditions(level, max_steps=order.spec.data.max_steps_per_episode)


def sample(order: training_order.Order) -> simulation.Simulation | VectorEnvironment:
    """One environment of the run, already closed: for what it says of itself."""
    environment = make(order.environment, randomness.Split.HELD_OUT, order.spec.seed, range(1))
    environment.close()
    inner: simulation.Simulation | VectorEnvironment = wrappers.innermost(environment)
    return inner


def episodes(order: training_order.Order) -> HeldOut:
    spec, wanted = order.spec, order.spec.evaluation
    seed = spec.seed if wanted.seed is None else wanted.seed
    return HeldOut(seed=seed, first=wanted.first_episode or 0, episodes=wanted.episodes)


def held_out(
    order: training_order.Order,
    conditions: Conditions | None = None,
    first: int = 0,
    split: randomness.Split = randomness.Split.HELD_OUT,
) -> World:
    """Episodes with plain rewards, behind the shield: it is obeyed even in evaluation, and by the baseline too.

    Numbers of episodes begin at `first`, counted from the run's first held-out one: two worlds whose numbers do not
    overlap share no seed. Training's episodes belong to the run's seed alone, and are counted from 0.
    """
    spec, proof = order.spec, episodes(order)
    seed, zero = (proof.seed, proof.first) if split is randomness.Split.HELD_OUT else (spec.seed, 0)
    limit = spec.data.max_steps_per_episode
    chosen = replace(nominal(order) if conditions is None else conditions, credit="team", max_steps=limit)

    def opened(members: range) -> VectorEnvironment:
        numbers = range(members.start + first + zero, members.stop + first + zero)
        world = make(order.environment, split, seed, numbers, chosen)
        return shielded_environment.shielded(world, spec.safety, policy=order.fallback)

    return opened
