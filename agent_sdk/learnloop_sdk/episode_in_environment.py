"""execute_with_learning (spec 000): observe, recall, act, execute, record, for any environment or agent.

An environment is one of
- the name of a registered Gymnasium environment, or anything with Gymnasium's `reset()` and `step(action)`;
- a step function: `step(None)` gives the first StepResult, `step(action)` the next. No Gymnasium is imported for it.
Every one of these callables may be async.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from learnloop_sdk.episode import Episode
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.loop import Learnloop
from learnloop_sdk.memory import Recall
from learnloop_sdk.trajectory import plain


@dataclass(frozen=True)
class StepResult:
    """What executing an action brought."""

    observation: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    values: Mapping[str, float] = field(default_factory=dict)


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
    """How the episode went; people's feedback on it goes by `trajectory_id`."""

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
    """Play one episode with learning around it.

    Args:
        act: (observation, memories) → action, for an agent that decides by itself; None: the served policy decides.
        revision: the external agent's own version, recorded as the policy's.
        recall: how many memories to ask for at the start; 0 asks for none.
        max_steps: truncate after so many steps.
        success_return: success means a return of at least this, where the environment itself does not say.

    Raises what the environment or the agent raises (the episode is recorded as an error), and LearnloopError.
    """
    step = _stepper(environment)
    first = await step(None)
    observation = first.observation
    async with loop.episode(
        task, explore=explore, external=act is not None, revision=revision, metadata=metadata
    ) as episode:
        memories = await _recall(episode, task, observation, recall)
        while True:
            action = await _decide(episode, act, observation, memories)
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
                break
        success = result.success
        if success is None and success_return is not None:
            success = episode.episode_return >= success_return
        episode.outcome(success, **result.values)
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


async def _recall(episode: Episode, task: str, observation: Any, k: int) -> Recall:
    if k <= 0:
        return Recall()
    return await episode.recall({"task": task, "observation": plain(observation)}, k)


async def _decide(episode: Episode, act: Act | None, observation: Any, memories: Recall) -> Any:
    if act is None:
        return await episode.act(observation)
    return plain(await _settled(act(observation, memories.memories)))


def _stepper(environment: str | Environment | StepFunction) -> Callable[[Any], Awaitable[StepResult]]:
    """One shape for all environments: None resets, an action steps."""
    world = make_gymnasium(environment) if isinstance(environment, str) else environment
    if isinstance(world, Environment):
        return _of_environment(world)
    if not callable(world):
        raise LearnloopError(f"environment: {type(world).__name__} has neither reset and step nor is it callable")
    function: StepFunction = world

    async def step(action: Any) -> StepResult:
        result = await _settled(function(action))
        if not isinstance(result, StepResult):
            raise LearnloopError(f"environment: a step function must return StepResult, not {type(result).__name__}")
        return result

    return step


def _of_environment(environment: Environment) -> Callable[[Any], Awaitable[StepResult]]:
    async def step(action: Any) -> StepResult:
        if action is None:
            first = await _settled(environment.reset())
            with_info = isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)
            return StepResult(first[0] if with_info else first)
        result = await _settled(environment.step(action))
        if isinstance(result, StepResult):
            return result
        observation, reward, terminated, truncated, info = result
        success = info.get("is_success", info.get("success")) if isinstance(info, dict) else None
        return StepResult(
            observation,
            float(reward),
            bool(terminated),
            bool(truncated),
            None if success is None else bool(success),
        )

    return step


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def make_gymnasium(name: str) -> Environment:
    """A registered Gymnasium environment; imported here only, agents without Gymnasium never pay for it."""
    try:
        import gymnasium
    except ImportError as error:
        raise LearnloopError(f"environment: {name!r} needs the package gymnasium, which is not installed") from error
    try:
        environment: Environment = gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise LearnloopError(f"environment: {name!r}: {error}") from error
    return environment
