"""Episodes in environments: execute_with_learning (spec 000).

An environment is one of
- the name of a registered Gymnasium environment, or anything with Gymnasium's `reset()` and `step(action)`; numbers
  of its `info` become outcome values (K: the sum over the steps, K.last, K.max);
- a step function: `step(None)` gives the first StepResult, `step(action)` the next. Gymnasium is not imported for it.
Every one of these callables may be async.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from learnloop_common.reward_rules.outcome_values import OutcomeValues, numbers
from learnloop_sdk import errors, memory, trajectory_encoding
from learnloop_sdk.episode import Episode
from learnloop_sdk.learnloop import Learnloop


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
    environment: Any,
    *,
    task: str = "",
    act: Callable[[Any, list[dict[str, Any]]], Any] | None = None,
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
        context = {"task": task, "observation": trajectory_encoding.plain(observation)}
        memories = await episode.recall(context, recall) if recall > 0 else memory.Recall()
        while True:
            if act is None:
                action = await episode.act(observation)
            else:
                action = trajectory_encoding.plain(await _settled(act(observation, memories.memories)))
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
                return ended(episode, result, success_return, memories)


def ended(episode: Episode, last: StepResult, success_return: float | None, memories: memory.Recall) -> EpisodeResult:
    """Report the outcome after the last step."""
    success = last.success
    if success is None and success_return is not None:
        success = episode.episode_return >= success_return
    episode.outcome(success)
    episode.measure(last.values)
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


def _stepper(environment: Any) -> Callable[[Any], Awaitable[StepResult]]:
    """Give all environments one shape: None resets, an action steps."""
    world = _gymnasium(environment) if isinstance(environment, str) else environment
    values = OutcomeValues()

    async def reset_or_step(action: Any) -> StepResult:
        if action is None:
            first = await _settled(world.reset())
            with_info = isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)
            return StepResult(first[0] if with_info else first)
        result = await _settled(world.step(action))
        if isinstance(result, StepResult):
            return result
        observation, reward, terminated, truncated, info = result
        success = info.get("is_success", info.get("success")) if isinstance(info, dict) else None
        success = None if success is None else bool(success)
        values.note(numbers(info) if isinstance(info, dict) else {})
        return StepResult(observation, float(reward), bool(terminated), bool(truncated), success, values)

    async def call(action: Any) -> StepResult:
        result = await _settled(world(action))
        if not isinstance(result, StepResult):
            raise errors.LearnloopError(
                f"environment: a step function must return StepResult, not {type(result).__name__}"
            )
        return result

    if hasattr(world, "reset") and hasattr(world, "step"):
        return reset_or_step
    if not callable(world):
        raise errors.LearnloopError(
            f"environment: {type(world).__name__} has neither reset and step nor is it callable"
        )
    return call


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _gymnasium(name: str) -> Any:
    """Make a registered Gymnasium environment; only this imports Gymnasium."""
    try:
        import gymnasium
    except ImportError as error:
        raise errors.LearnloopError(
            f"environment: {name!r} needs the package gymnasium, which is not installed"
        ) from error
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise errors.LearnloopError(f"environment: {name!r}: {error}") from error
