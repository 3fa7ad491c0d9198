"""`python -m learnloop_sdk.actor`: plays episodes with the served policy without end, to collect experience.

Every option has an environment variable, LEARNLOOP_ACTOR_<OPTION>. SIGTERM stops between steps and delivers the
recorded trajectories. One JSON line of progress every 10 seconds goes to standard output.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learnloop_common import process_end
from learnloop_sdk.environments import EpisodeResult, Setting, open_world
from learnloop_sdk.environments import play as play_episode
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.loop import Learnloop

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 10.0
FLUSH_SECONDS = 20.0
LONGEST_PAUSE = 10.0
NewPlayer = Callable[[], Callable[[], Awaitable[EpisodeResult]]]
"""Makes a player, which plays one episode at each call."""


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
    episodes: int = 0
    steps: int = 0
    errors: int = 0
    started: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, result: EpisodeResult) -> None:
        """Count a finished episode."""
        self.episodes += 1
        self.steps += result.length
        self.returns.append(result.episode_return)

    def print(self, steps: int, seconds: float, more: Mapping[str, Any]) -> None:
        """Print one line of progress: `steps` in `seconds`."""
        line = {
            "episodes": self.episodes,
            "steps_per_second": round(steps / max(seconds, 1e-9), 1),
            "return_mean_100": round(sum(self.returns) / len(self.returns), 3) if self.returns else None,
            "errors": self.errors,
            **more,
        }
        print(json.dumps(line), flush=True)


def _between(low: int, high: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return whole_number


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1e6:
        raise ValueError(text)
    return value


def _ranges(text: str) -> tuple[tuple[str, float, float], ...]:
    ranges = json.loads(text)
    if not isinstance(ranges, list) or len(ranges) > 16:
        raise ValueError(text)
    return tuple((str(name), float(low), float(high)) for name, low, high in ranges)


def _credit(text: str) -> str:
    if text not in {"", "team", "individual", "difference"}:
        raise ValueError(text)
    return text


@dataclass(frozen=True)
class Option:
    """One option of an actor; required where `otherwise` is None."""

    help: str
    otherwise: str | None
    kind: Callable[[str], object] = str


OPTIONS: Mapping[str, Option] = {
    "environment": Option("an environment of learnloop or Gymnasium, or module:EntryPoint", None),
    "level": Option("level of difficulty; empty: the easiest", ""),
    "randomise": Option("physics that change with each episode, as JSON: [[parameter, low, high], …]", "[]", _ranges),
    "credit": Option("reward of a team's members: team, individual or difference", "", _credit),
    "agent": Option("name of the LearningAgent", None),
    "endpoint": Option("base URL of the ModelDeployment's Service; default $LEARNLOOP_ENDPOINT", None),
    "concurrency": Option("concurrent episodes, 1 to 256", "4", _between(1, 256)),
    "success-return": Option(
        "an episode with at least this return succeeded", "", lambda text: float(text) if text else None
    ),
    "recall": Option("memories to ask for at the start of each episode", "0", _between(0, 100)),
    "episodes": Option("stop after so many episodes; 0: never", "0", _between(0, 10**9)),
    "max-steps-per-second": Option("limit of all players together; 0: none", "0", _rate),
    "spool": Option("directory that keeps undelivered trajectories", ""),
}


def parse(arguments: Sequence[str], wanted: Sequence[str] = tuple(OPTIONS)) -> argparse.Namespace:
    """Read the wanted OPTIONS; each falls back to its environment variable."""
    parser = argparse.ArgumentParser(prog="an actor of learnloop")
    for name in wanted:
        option = OPTIONS[name]
        value = os.environ.get(f"LEARNLOOP_ACTOR_{name.upper().replace('-', '_')}") or option.otherwise
        if name == "endpoint":
            value = value or os.environ.get("LEARNLOOP_ENDPOINT")
        parser.add_argument(f"--{name}", type=option.kind, default=value, required=value is None, help=option.help)
    return parser.parse_args(arguments)


async def _play_on(episode: Callable[[], Awaitable[EpisodeResult]], tally: Tally, pace: Pace) -> None:
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
            tally.add(result)
            pause = 0.5
            await pace.after(result.length)


async def _play_all(new_player: NewPlayer, options: argparse.Namespace, tally: Tally) -> None:
    """Run all players; one that breaks (a broken environment) stops the others."""
    pace = Pace(options.max_steps_per_second)
    async with asyncio.TaskGroup() as group:
        for _ in range(options.concurrency):
            group.create_task(_play_on(new_player(), tally, pace))


async def _report(tally: Tally, more: Callable[[], Mapping[str, Any]]) -> None:
    before, steps = time.monotonic(), 0
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        now = time.monotonic()
        tally.print(tally.steps - steps, now - before, more())
        before, steps = now, tally.steps


async def act(
    options: argparse.Namespace,
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
    tally, start = Tally(options.episodes), time.monotonic()
    players = asyncio.create_task(_play_all(new_player, options, tally))
    others = [asyncio.create_task(_report(tally, more)), asyncio.create_task(stopping.wait())]
    await asyncio.wait([players, others[1]], return_when=asyncio.FIRST_COMPLETED)
    for task in (players, *others):
        task.cancel()
    failure = (await asyncio.gather(players, *others, return_exceptions=True))[0]
    left = await close()
    tally.print(tally.steps, time.monotonic() - start, more())
    if isinstance(failure, Exception):
        process_end.end(failure, "the actor stops: ")
    return 1 if isinstance(failure, Exception) or left else 0


async def run(options: argparse.Namespace) -> int:
    """Play with the served policy."""
    spool = Path(options.spool) if options.spool else None
    loop = Learnloop(options.agent, options.endpoint, spool_directory=spool)

    def new_player() -> Callable[[], Awaitable[EpisodeResult]]:
        setting = Setting(options.environment, options.level or None, options.randomise, options.credit or None)
        environment = open_world(setting)
        return lambda: play_episode(
            loop,
            environment,
            task=options.environment,
            recall=options.recall,
            success_return=options.success_return,
        )

    def counts() -> Mapping[str, Any]:
        pending = loop.recorder.pending if loop.recorder else 0
        return {"pending_trajectories": pending} | {k: v for k, v in loop.counters.snapshot().items() if v}

    return await act(options, new_player, lambda: loop.close(FLUSH_SECONDS), counts)


def main(run: Callable[[argparse.Namespace], Awaitable[int]] = run, wanted: Sequence[str] = tuple(OPTIONS)) -> int:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    options = parse(sys.argv[1:], wanted)

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
