"""`python -m learnloop_sdk.environment_actor`: plays episodes with the served policy without end, for experience.

Its options are environment variables, LEARNLOOP_ACTOR_<OPTION>. SIGTERM stops between steps and delivers the recorded
trajectories. One JSON line of progress every 10 seconds goes to standard output.
"""

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, Json, ValidationError

from learnloop_common import telemetry, termination_message
from learnloop_common.reward_rules.outcome_values import OutcomeValues
from learnloop_sdk import environments, memory, trajectory_encoding
from learnloop_sdk.episode import Episode
from learnloop_sdk.errors import EnvironmentBroken, LearnloopError
from learnloop_sdk.learnloop import ENV_ENDPOINT, Learnloop

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 10.0
FLUSH_SECONDS = 20.0
LONGEST_PAUSE = 10.0
PREFIX = "LEARNLOOP_ACTOR_"
NewPlayer = Callable[[], Callable[[], Awaitable[environments.EpisodeResult]]]
"""Makes a player, which plays one episode at each call."""
T = TypeVar("T")


class Options(BaseModel):
    """The environment variables of an actor.

    Attributes:
        environment: one of learnloop or Gymnasium, or module:EntryPoint.
        endpoint: of the ModelDeployment's Service; default $LEARNLOOP_ENDPOINT.
        randomise: physics that change with each episode: [[parameter, low, high], …].
        credit: reward of a team's members.
        max_steps_per_episode: an episode is truncated after so many.
        success_return: an episode with at least this return succeeded.
        recall: memories to ask for at the start of each episode.
        episodes: stop after so many; 0: never.
        max_steps_per_second: limit of all players together; 0: none.
    """

    environment: str
    agent: str
    endpoint: str = ""
    level: str | None = None
    randomise: Json[tuple[tuple[str, float, float], ...]] = ()
    credit: Literal["team", "individual", "difference"] | None = None
    concurrency: int = Field(4, ge=1, le=256)
    max_steps_per_episode: int | None = Field(None, ge=1)
    success_return: float | None = None
    recall: int = Field(0, ge=0, le=100)
    episodes: int = Field(0, ge=0)
    max_steps_per_second: float = Field(0.0, ge=0.0)

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> "Options":
        """Raises ValidationError."""
        given = {name: text for name in cls.model_fields if (text := environ.get(PREFIX + name.upper()))}
        return cls.model_validate({"endpoint": environ.get(ENV_ENDPOINT, ""), **given})


@dataclass(frozen=True)
class TeamStep(environments.StepResult):
    """Result of the members' actions: observations by member, and `rewards` by member."""

    rewards: list[float] = field(default_factory=list)


class World:
    """One of the trainer's environments, for a team of one or more; episodes differ from world to world.

    Observations, actions and their encodings are the trainer's own (learnloop_environments), so that a policy means the
    same in both.
    """

    def __init__(self, options: Options, environ: Mapping[str, str] = os.environ) -> None:
        """Raises LearnloopError, naming the field and the fix, when it cannot be played."""
        from learnloop_environments import Conditions, make, user_environment
        from learnloop_environments.errors import EnvironmentFailed, TrainerError
        from learnloop_environments.randomness import Split
        from learnloop_environments.spaces import agents

        self._name, self._failed = options.environment, EnvironmentFailed
        user_environment.use(environ)
        conditions = Conditions(
            options.level, options.randomise, options.credit or "team", options.max_steps_per_episode
        )
        try:
            self._inner = make(self._name, Split.TRAINING, random.getrandbits(31), range(1), conditions)
        except TrainerError as error:
            raise LearnloopError(str(error)) from error
        self.agents = agents(self._inner)
        self._begun: Any = None
        self._values = OutcomeValues()

    def reset(self) -> list[Any]:
        """Begin another episode; returns the first observation of each member."""
        begun, self._begun, self._values = self._begun, None, OutcomeValues()
        return self._by_member(self._call("reset", self._inner.reset) if begun is None else begun)

    def step(self, actions: list[Any]) -> TeamStep:
        """Take an action of each member."""
        import numpy as np

        taken = np.asarray(actions, dtype=np.int64 if self._inner.bounds is None else np.float32)
        step = self._call("step", lambda: self._inner.step(taken[None] if self.agents > 1 else taken))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        # An episode that ends is followed by the next one within the step, whose observation reset then returns.
        self._begun = step.observation if terminated or truncated else None
        success = None if step.success is None else bool(step.success[0])
        rewards = np.asarray(step.reward, dtype=np.float64).reshape(-1).tolist()
        reward = sum(rewards) / len(rewards)
        self._values.note(step.values)
        after = self._by_member(step.successor)
        return TeamStep(after, reward, terminated, truncated, success, self._values, rewards=rewards)

    def _call(self, what: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except self._failed as error:
            cause = termination_message.sentence(error.__cause__ or error)
            raise EnvironmentBroken(
                f"environment: {self._name!r} raised {cause} in {what}: correct the environment"
            ) from error

    def _by_member(self, observation: Any) -> list[Any]:
        return list(observation[0]) if self.agents > 1 else list(observation)


async def play(
    loop: Learnloop, world: World, *, task: str = "", recall: int = 0, success_return: float | None = None
) -> environments.EpisodeResult:
    """Play one episode with the served policy. One arm decides for all members, so an outcome belongs to one revision.

    Each member acts on its own observation; its steps are recorded in turn, each with its share of the team's mean
    reward, so the episode's return is the team's.
    """
    observations = world.reset()
    team = {"agents": str(world.agents)} if world.agents > 1 else {}
    async with loop.episode(task, metadata=team) as episode:
        context = {"task": task} if team else {"task": task, "observation": trajectory_encoding.plain(observations[0])}
        memories = await episode.recall(context, recall) if recall else memory.Recall()
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
                return environments.ended(episode, step, success_return, memories)


async def _all_act(episode: Episode, observations: list[Any]) -> list[trajectory_encoding.Decision]:
    """Ask for every member's action by one arm: where it is withdrawn in between, all are asked again."""
    while True:
        arm, decisions = episode.episode_id, []
        for observation in observations:
            await episode.act(observation)
            decisions.append(episode.set_aside())
        if episode.episode_id == arm:
            return decisions


class Pace:
    """Limits all players together to a rate of steps: an unlimited actor fills the cores of a small node."""

    def __init__(self, steps_per_second: float) -> None:
        self._seconds_per_step = 1 / steps_per_second if steps_per_second else 0.0
        self._free_at = 0.0

    async def after(self, steps: int) -> None:
        """Wait as long as `steps` more steps take at this rate."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + steps * self._seconds_per_step
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


@dataclass
class Tally:
    """Counts of episodes, at most `limit` of them; 0: no limit."""

    limit: int
    started: int = 0
    episodes: int = 0
    steps: int = 0
    errors: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=100))

    def print(self, more: Mapping[str, Any]) -> None:
        """Print one line of progress."""
        mean = round(sum(self.returns) / len(self.returns), 3) if self.returns else None
        line = {"episodes": self.episodes, "steps": self.steps, "return_mean_100": mean, "errors": self.errors, **more}
        print(json.dumps(line), flush=True)


async def _play_on(episode: Callable[[], Awaitable[environments.EpisodeResult]], tally: Tally, pace: Pace) -> None:
    """Play episode after episode, backing off while no model answers."""
    pause = 0.5
    while not tally.limit or tally.started < tally.limit:
        tally.started += 1
        try:
            result = await episode()
        except LearnloopError as error:
            tally.errors += 1
            tally.started -= 1
            log.warning("episode failed: %s", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            tally.episodes += 1
            tally.steps += result.length
            tally.returns.append(result.episode_return)
            pause = 0.5
            await pace.after(result.length)


async def _play_all(new_player: NewPlayer, options: Options, tally: Tally) -> None:
    """Run all players; one that breaks (a broken environment) stops the others."""
    pace = Pace(options.max_steps_per_second)
    async with asyncio.TaskGroup() as group:
        for _ in range(options.concurrency):
            group.create_task(_play_on(new_player(), tally, pace))


async def _report(tally: Tally, more: Callable[[], Mapping[str, Any]]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        tally.print(more())


async def act(
    options: Options,
    new_player: NewPlayer,
    close: Callable[[], Awaitable[int]],
    more: Callable[[], Mapping[str, Any]] = dict,
) -> int:
    """Play until SIGTERM or the last episode; returns the exit status.

    Args:
        close: delivers and disconnects; returns how many trajectories were not delivered.
        more: further values of a line of progress.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    tally = Tally(options.episodes)
    players = asyncio.create_task(_play_all(new_player, options, tally))
    others = [asyncio.create_task(_report(tally, more)), asyncio.create_task(stopping.wait())]
    await asyncio.wait([players, others[1]], return_when=asyncio.FIRST_COMPLETED)
    for task in (players, *others):
        task.cancel()
    failure = (await asyncio.gather(players, *others, return_exceptions=True))[0]
    left = await close()
    tally.print(more())
    if isinstance(failure, Exception):
        termination_message.end(failure, "the actor stops: ")
    return 1 if isinstance(failure, Exception) or left else 0


async def run(options: Options) -> int:
    """Play with the served policy."""
    loop = Learnloop(options.agent, options.endpoint)

    def new_player() -> Callable[[], Awaitable[environments.EpisodeResult]]:
        world, recall = World(options), options.recall
        return lambda: play(loop, world, task=options.environment, recall=recall, success_return=options.success_return)

    def counts() -> Mapping[str, Any]:
        pending = loop.delivery.pending if loop.delivery else 0
        return {"pending_trajectories": pending} | {k: v for k, v in loop.counters.snapshot().items() if v}

    return await act(options, new_player, lambda: loop.close(FLUSH_SECONDS), counts)


def main(run: Callable[[Options], Awaitable[int]] = run) -> int:
    """Entry point."""
    telemetry.set_up()
    try:
        options = Options.read()
    except ValidationError as error:
        termination_message.end(error, f"environment variables {PREFIX}…: ")
        return 2

    async def whole() -> int:
        return await run(options)

    try:
        import uvloop
    except ImportError:  # the SDK does not need it; the serving image has it
        return asyncio.run(whole())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(whole())


if __name__ == "__main__":
    sys.exit(main())
