"""The environments that the trainer trains in, played one episode at a time: what actors play.

Observations, actions and their encodings are the trainer's own (learnloop_environments), so a policy means the same in
both. Where that package is not installed, Gymnasium's registered environments are played as they are.
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from learnloop_common.process_end import sentence
from learnloop_sdk.episode import Episode
from learnloop_sdk.episode_in_environment import (
    Environment,
    EpisodeResult,
    StepResult,
    execute_with_learning,
    make_gymnasium,
)
from learnloop_sdk.errors import EnvironmentBroken, LearnloopError
from learnloop_sdk.loop import Learnloop
from learnloop_sdk.memory import Recall
from learnloop_sdk.trajectory import Decision

T = TypeVar("T")
Ranges = Sequence[tuple[str, float, float]]


@dataclass(frozen=True)
class Setting:
    """How an environment is played; see learnloop_environments.Conditions."""

    name: str
    level: str | None = None
    randomise: Ranges = ()
    credit: str | None = None

    @property
    def plain(self) -> bool:
        """Nothing but the name is said."""
        return not (self.level or self.randomise or self.credit)


@dataclass(frozen=True)
class TeamStep:
    """What a step brought a team: by member, but for how the episode went."""

    observations: list[Any]
    rewards: list[float]
    terminated: bool
    truncated: bool
    success: bool | None


class World:
    """One environment with one who acts, or with a team; episodes differ from world to world and from run to run."""

    def __init__(self, setting: Setting, environ: Mapping[str, str]) -> None:
        """Raises LearnloopError, naming the field and the fix, when it cannot be played so."""
        from learnloop_environments import Conditions, make, own_code
        from learnloop_environments.base import agents
        from learnloop_environments.errors import EnvironmentFailed, TrainerError
        from learnloop_environments.randomness import Split

        self._name, self._failed = setting.name, EnvironmentFailed
        own_code.use(environ)
        conditions = Conditions(setting.level, tuple(setting.randomise), setting.credit or "team")
        try:
            self._inner = make(setting.name, Split.TRAINING, random.getrandbits(31), range(1), conditions)
        except TrainerError as error:
            raise LearnloopError(str(error)) from error
        self.agents = agents(self._inner)
        self._begun: Any = None

    def reset(self) -> list[Any]:
        """What each member sees at the beginning of another episode."""
        begun, self._begun = self._begun, None
        return self._rows(self._call("reset", self._inner.reset) if begun is None else begun)

    def step(self, actions: list[Any]) -> TeamStep:
        """Take one action each."""
        import numpy as np

        numbers = self._inner.bounds is not None
        rows = np.asarray(actions, dtype=np.float32 if numbers else np.int64)
        step = self._call("step", lambda: self._inner.step(rows[None] if self.agents > 1 else rows))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        # An episode that ends is followed by the next one within the step, which reset then hands out.
        self._begun = step.observation if terminated or truncated else None
        success = None if step.success is None else bool(step.success[0])
        rewards = np.asarray(step.reward, dtype=np.float64).reshape(-1).tolist()
        return TeamStep(self._rows(step.successor), rewards, terminated, truncated, success)

    def _call(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except self._failed as error:
            cause = sentence(error.__cause__ or error)
            raise EnvironmentBroken(
                f"environment: {self._name!r} raised {cause} in {what}: correct the environment"
            ) from error

    def _rows(self, observation: Any) -> list[Any]:
        return list(observation[0]) if self.agents > 1 else [observation[0]]

    def close(self) -> None:
        """Release what the environment holds."""
        self._inner.close()


class Alone:
    """A world with one who acts, behind the interface of `execute_with_learning`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reset(self) -> Any:
        """See Environment.reset."""
        return self._world.reset()[0]

    def step(self, action: Any) -> StepResult:
        """See Environment.step."""
        step = self._world.step([action])
        return StepResult(step.observations[0], step.rewards[0], step.terminated, step.truncated, step.success)


async def play(
    loop: Learnloop,
    world: "World | Environment",
    *,
    task: str = "",
    recall: int = 0,
    success_return: float | None = None,
) -> EpisodeResult:
    """One episode of an agent, or of a team, with the served policy."""
    if isinstance(world, World) and world.agents > 1:
        return await _play_team(loop, world, task, recall, success_return)
    single = Alone(world) if isinstance(world, World) else world
    return await execute_with_learning(loop, single, task=task, recall=recall, success_return=success_return)


def open_world(setting: Setting, environ: Mapping[str, str] = os.environ) -> World | Environment:
    """The environment of this setting; raises LearnloopError, naming field and fix, when it cannot be played so."""
    try:
        import learnloop_environments  # noqa: F401 - only in images that play
    except ImportError:
        if setting.plain:
            return make_gymnasium(setting.name)
        text = "has a level, randomised physics or a credit, which need the package learnloop_environments"
        raise LearnloopError(f"environment: {setting.name!r} {text}: use learnloop's serving image") from None
    return World(setting, environ)


async def _play_team(
    loop: Learnloop, world: World, task: str, recall: int, success_return: float | None
) -> EpisodeResult:
    """One episode of one policy, so that an outcome belongs to one revision only.

    Each member asks with what it sees; its steps are recorded in turn, each with its share of the team's mean reward,
    so the episode's return is the team's.
    """
    seen = world.reset()
    async with loop.episode(task, metadata={"agents": str(world.agents)}) as episode:
        found = await episode.recall({"task": task}, recall) if recall else Recall()
        while True:
            decisions = await _all_act(episode, seen)
            step = world.step([decision[1] for decision in decisions])
            over = step.terminated or step.truncated
            for member, decision in enumerate(decisions):
                last = over and member == world.agents - 1
                episode.take_up(decision)
                share = step.rewards[member] / world.agents
                after = step.observations[member] if last else None
                episode.record(None, share, last and step.terminated, last and step.truncated, next_observation=after)
            seen = step.observations
            if over:
                break
        success = step.success
        if success is None and success_return is not None:
            success = episode.episode_return >= success_return
        episode.outcome(success)
        played = episode.segment
    return EpisodeResult(
        played.episode_id,
        played.trajectory_id,
        played.revision,
        episode.episode_return,
        episode.length,
        success,
        len(found.memories),
    )


async def _all_act(episode: Episode, seen: list[Any]) -> list[Decision]:
    """What every member does, all by one arm: where it is withdrawn in between, all are asked again."""
    while True:
        arm, decisions = episode.episode_id, []
        for observation in seen:
            await episode.act(observation)
            decisions.append(episode.set_aside())
        if episode.episode_id == arm:
            return decisions


Part = TypeVar("Part")


def difference(worth: Callable[[Mapping[str, Part]], float], team: Mapping[str, Part], member: str) -> dict[str, float]:
    """The team's result with and without one member (Wolpert & Tumer, Advances in Complex Systems 4, 2001).

        episode.outcome(True, **difference(score, results, "scout"))

    Args:
        worth: what the result of these members would be worth; asked for all of them, and for all but `member`.
        team: what each did, by name.
        member: whose episode it is.

    Returns:
        `global` and `counterfactual`. A member gains by their difference only what the team gains by the member.

    Raises:
        LearnloopError: the team has no such member.
    """
    if member not in team:
        raise LearnloopError(
            f"difference: {member!r} is not in the team; it has {', '.join(sorted(team)) or 'no members'}"
        )
    others = {name: part for name, part in team.items() if name != member}
    return {"global": float(worth(dict(team))), "counterfactual": float(worth(others))}
