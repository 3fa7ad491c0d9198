"""Episodes in environments: execute_with_learning (spec 000), and the trainer's environments for actors and teams.

An environment is one of
- the name of a registered Gymnasium environment, or anything with Gymnasium's `reset()` and `step(action)`;
- a step function: `step(None)` gives the first StepResult, `step(action)` the next. Gymnasium is not imported for it.
Every one of these callables may be async.
"""

import inspect
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from learnloop_common.process_end import sentence
from learnloop_sdk.episode import Episode
from learnloop_sdk.errors import EnvironmentBroken, LearnloopError
from learnloop_sdk.loop import Learnloop
from learnloop_sdk.memory import Recall
from learnloop_sdk.trajectory import Decision, plain

T = TypeVar("T")
Ranges = Sequence[tuple[str, float, float]]


@dataclass(frozen=True)
class StepResult:
    """Result of an action."""

    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TeamStep(StepResult):
    """Result of a team's actions: observations by member, and `rewards` by member."""

    rewards: Sequence[float] = ()


@runtime_checkable
class Environment(Protocol):
    """The part of Gymnasium's Env that is used."""

    def reset(self) -> Any:
        """First observation, or (observation, info)."""
        ...

    def step(self, action: Any) -> Any:
        """(observation, reward, terminated, truncated, info) or a StepResult."""
        ...


StepFunction = Callable[[Any], StepResult | Awaitable[StepResult]]
Act = Callable[[Any, list[dict[str, Any]]], Any]


@dataclass(frozen=True)
class EpisodeResult:
    """Result of an episode; people's feedback on it refers to `trajectory_id`."""

    episode_id: str
    trajectory_id: str
    revision: str
    episode_return: float
    length: int
    success: bool | None
    recalled: int


async def execute_with_learning(
    loop: Learnloop,
    environment: str | Environment | StepFunction,
    *,
    task: str = "",
    act: Act | None = None,
    revision: str | None = None,
    explore: bool = True,
    recall: int = 0,
    max_steps: int | None = None,
    success_return: float | None = None,
    metadata: Mapping[str, str] | None = None,
) -> EpisodeResult:
    """Play one episode: observe, recall, act, execute, record.

    Args:
        act: (observation, memories) → action, for an agent that decides by itself; None: the served policy decides.
        revision: the external agent's own version, recorded as the policy's.
        recall: how many memories to ask for at the start.
        max_steps: truncate after so many steps.
        success_return: success means a return of at least this, where the environment does not report success.

    Raises LearnloopError, and errors of the environment or agent (the episode is recorded as an error).
    """
    step = _stepper(environment)
    first = await step(None)
    observation = first.observation
    async with loop.episode(
        task, explore=explore, external=act is not None, revision=revision, metadata=metadata
    ) as episode:
        context = {"task": task, "observation": plain(observation)}
        memories = await episode.recall(context, recall) if recall > 0 else Recall()
        while True:
            if act is None:
                action = await episode.act(observation)
            else:
                action = plain(await _settled(act(observation, memories.memories)))
            result = await step(action)
            capped = max_steps is not None and episode.length + 1 >= max_steps and not result.terminated
            over = result.terminated or result.truncated or capped
            episode.record(
                action,
                result.reward,
                result.terminated,
                result.truncated or capped,
                observation=observation,
                next_observation=result.observation if over else None,
            )
            observation = result.observation
            if over:
                return _ended(episode, result, success_return, memories)


async def _play_team(
    loop: Learnloop, world: "World", task: str, recall: int, success_return: float | None
) -> EpisodeResult:
    """Play one episode of one policy, so that an outcome belongs to one revision only.

    Each member acts on its own observation; its steps are recorded in turn, each with its share of the team's mean
    reward, so the episode's return is the team's.
    """
    observations = world.reset()
    async with loop.episode(task, metadata={"agents": str(world.agents)}) as episode:
        memories = await episode.recall({"task": task}, recall) if recall else Recall()
        while True:
            decisions = await _all_act(episode, observations)
            step = world.step([decision[1] for decision in decisions])
            over = step.terminated or step.truncated
            for member, decision in enumerate(decisions):
                last = over and member == world.agents - 1
                episode.take_up(decision)
                share = step.rewards[member] / world.agents
                after = step.observation[member] if last else None
                episode.record(None, share, last and step.terminated, last and step.truncated, next_observation=after)
            observations = step.observation
            if over:
                return _ended(episode, step, success_return, memories)


async def _all_act(episode: Episode, observations: list[Any]) -> list[Decision]:
    """Ask for every member's action by one arm: where it is withdrawn in between, all are asked again."""
    while True:
        arm, decisions = episode.episode_id, []
        for observation in observations:
            await episode.act(observation)
            decisions.append(episode.set_aside())
        if episode.episode_id == arm:
            return decisions


def _ended(episode: Episode, last: StepResult, success_return: float | None, memories: Recall) -> EpisodeResult:
    success = last.success
    if success is None and success_return is not None:
        success = episode.episode_return >= success_return
    episode.outcome(success, **last.values)
    played = episode.segment
    return EpisodeResult(
        played.episode_id,
        played.trajectory_id,
        played.revision,
        episode.episode_return,
        episode.length,
        success,
        len(memories.memories),
    )


def _stepper(environment: str | Environment | StepFunction) -> Callable[[Any], Awaitable[StepResult]]:
    """Give all environments one shape: None resets, an action steps."""
    world = make_gymnasium(environment) if isinstance(environment, str) else environment

    async def reset_or_step(action: Any) -> StepResult:
        if action is None:
            first = await _settled(world.reset())  # type: ignore[union-attr]
            with_info = isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)
            return StepResult(first[0] if with_info else first)
        result = await _settled(world.step(action))  # type: ignore[union-attr]
        if isinstance(result, StepResult):
            return result
        observation, reward, terminated, truncated, info = result
        success = info.get("is_success", info.get("success")) if isinstance(info, dict) else None
        success = None if success is None else bool(success)
        return StepResult(observation, float(reward), bool(terminated), bool(truncated), success)

    async def call(action: Any) -> StepResult:
        result = await _settled(world(action))  # type: ignore[operator]
        if not isinstance(result, StepResult):
            raise LearnloopError(f"environment: a step function must return StepResult, not {type(result).__name__}")
        return result

    if isinstance(world, Environment):
        return reset_or_step
    if not callable(world):
        raise LearnloopError(f"environment: {type(world).__name__} has neither reset and step nor is it callable")
    return call


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def make_gymnasium(name: str) -> Environment:
    """Make a registered Gymnasium environment; only this imports Gymnasium."""
    try:
        import gymnasium
    except ImportError as error:
        raise LearnloopError(f"environment: {name!r} needs the package gymnasium, which is not installed") from error
    try:
        environment: Environment = gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise LearnloopError(f"environment: {name!r}: {error}") from error
    return environment


@dataclass(frozen=True)
class Setting:
    """Name and conditions of an environment; see learnloop_environments.Conditions."""

    name: str
    level: str | None = None
    randomise: Ranges = ()
    credit: str | None = None


class World:
    """One of the trainer's environments, for one agent or a team; episodes differ from world to world.

    Observations, actions and their encodings are the trainer's own (learnloop_environments), so that a policy means the
    same in both.
    """

    def __init__(self, setting: Setting, environ: Mapping[str, str]) -> None:
        """Raises LearnloopError, naming the field and the fix, when it cannot be played."""
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

    def reset(self) -> Any:
        """Begin another episode; returns the first observation, a list of them for a team."""
        begun, self._begun = self._begun, None
        return self._by_member(self._call("reset", self._inner.reset) if begun is None else begun)

    def step(self, action: Any) -> TeamStep:
        """Take an action, a list of them for a team."""
        import numpy as np

        actions = np.asarray(action, dtype=np.int64 if self._inner.bounds is None else np.float32)[None]
        step = self._call("step", lambda: self._inner.step(actions))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        # An episode that ends is followed by the next one within the step, whose observation reset then returns.
        self._begun = step.observation if terminated or truncated else None
        success = None if step.success is None else bool(step.success[0])
        rewards = np.asarray(step.reward, dtype=np.float64).reshape(-1).tolist()
        reward = sum(rewards) / len(rewards)
        return TeamStep(self._by_member(step.successor), reward, terminated, truncated, success, rewards=rewards)

    def _call(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except self._failed as error:
            cause = sentence(error.__cause__ or error)
            raise EnvironmentBroken(
                f"environment: {self._name!r} raised {cause} in {what}: correct the environment"
            ) from error

    def _by_member(self, observation: Any) -> Any:
        return list(observation[0]) if self.agents > 1 else observation[0]


def open_world(setting: Setting, environ: Mapping[str, str] = os.environ) -> World | Environment:
    """Open an environment; raises LearnloopError, naming the field and the fix, when it cannot be played.

    Where learnloop_environments is not installed, Gymnasium's registered environments are played as they are.
    """
    try:
        import learnloop_environments  # noqa: F401 - only in images that play
    except ImportError:
        if not (setting.level or setting.randomise or setting.credit):
            return make_gymnasium(setting.name)
        text = "has a level, randomised physics or a credit, which need the package learnloop_environments"
        raise LearnloopError(f"environment: {setting.name!r} {text}: use learnloop's serving image") from None
    return World(setting, environ)


async def play(
    loop: Learnloop,
    world: World | Environment,
    *,
    task: str = "",
    recall: int = 0,
    success_return: float | None = None,
) -> EpisodeResult:
    """Play one episode of an agent, or of a team, with the served policy."""
    if isinstance(world, World) and world.agents > 1:
        return await _play_team(loop, world, task, recall, success_return)
    return await execute_with_learning(loop, world, task=task, recall=recall, success_return=success_return)


Part = TypeVar("Part")


def difference(worth: Callable[[Mapping[str, Part]], float], team: Mapping[str, Part], member: str) -> dict[str, float]:
    """Difference reward: the team's result with and without one member (Wolpert & Tumer, 2001).

        episode.outcome(True, **difference(score, results, "scout"))

    Args:
        worth: value of these members' results; called for all of them, and for all but `member`.
        team: each member's result, by name.
        member: the agent of the episode.

    Returns:
        `global` and `counterfactual`. Their difference is what the team gains by the member.

    Raises:
        LearnloopError: `member` is not in the team.
    """
    if member not in team:
        raise LearnloopError(
            f"difference: {member!r} is not in the team; it has {', '.join(sorted(team)) or 'no members'}"
        )
    others = {name: part for name, part in team.items() if name != member}
    return {"global": float(worth(dict(team))), "counterfactual": float(worth(others))}
