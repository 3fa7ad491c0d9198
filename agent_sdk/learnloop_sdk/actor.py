"""`python -m learnloop_sdk.actor`: plays episodes against the served policy for ever, so that there is experience.

Every option has an environment variable, LEARNLOOP_ACTOR_<OPTION>. SIGTERM stops between steps and delivers what
was recorded. One JSON line of progress every 10 seconds goes to standard output.
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

from learnloop_common import process_end
from learnloop_sdk.episode_in_environment import EpisodeResult
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.loop import Learnloop
from learnloop_sdk.worlds import Setting, open_world
from learnloop_sdk.worlds import play as play_episode

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 10.0
FLUSH_SECONDS = 20.0
LONGEST_PAUSE = 10.0


class Pace:
    """Holds all players together to so many steps per second: an actor alone can fill both cores of a small node."""

    def __init__(self, steps_per_second: float) -> None:
        self._seconds_per_step = 1 / steps_per_second if steps_per_second else 0.0
        self._free_at = 0.0

    async def after(self, steps: int) -> None:
        """Wait as long as `steps` more steps are worth."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + steps * self._seconds_per_step
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


@dataclass
class Tally:
    """What was played."""

    limit: int
    episodes: int = 0
    steps: int = 0
    errors: int = 0
    started: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=100))

    def claim(self) -> bool:
        """May one more episode begin?"""
        if self.limit and self.started >= self.limit:
            return False
        self.started += 1
        return True

    def add(self, result: EpisodeResult) -> None:
        """Count a finished episode."""
        self.episodes += 1
        self.steps += result.length
        self.returns.append(result.episode_return)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options; each falls back to its environment variable."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_sdk.actor", description=__doc__)
    options_of(parser, *OPTIONS)
    return parser.parse_args(arguments)


def options_of(parser: argparse.ArgumentParser, *wanted: str) -> None:
    """Give `parser` these of the OPTIONS; each falls back to its environment variable."""
    for name in wanted:
        option = OPTIONS[name]
        value = os.environ.get(f"LEARNLOOP_ACTOR_{name.upper().replace('-', '_')}") or option.default()
        parser.add_argument(f"--{name}", type=option.kind, default=value, required=value is None, help=option.help)


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
    found = json.loads(text)
    if not isinstance(found, list) or len(found) > 16:
        raise ValueError(text)
    return tuple((str(name), float(low), float(high)) for name, low, high in found)


def _credit(text: str) -> str:
    if text not in {"", "team", "individual", "difference"}:
        raise ValueError(text)
    return text


def _optional_float(text: str) -> float | None:
    return float(text) if text else None


@dataclass(frozen=True)
class Option:
    """One option of an actor. `otherwise`: its value where nobody says it; None: somebody has to."""

    help: str
    otherwise: str | None
    kind: Callable[[str], object] = str
    variable: str = ""

    def default(self) -> str | None:
        """Of another environment variable where one is named, else `otherwise`."""
        return os.environ.get(self.variable, self.otherwise) if self.variable else self.otherwise


OPTIONS: Mapping[str, Option] = {
    "environment": Option("an environment of learnloop's or Gymnasium's, or module:EntryPoint", None),
    "level": Option("level of difficulty; empty: the easiest", ""),
    "randomise": Option("physics that change with each episode, as JSON: [[parameter, low, high], …]", "[]", _ranges),
    "credit": Option("what a team's agents earn: team, individual or difference", "", _credit),
    "agent": Option("name of the LearningAgent", None),
    "endpoint": Option("base URL of the ModelDeployment's Service", None, variable="LEARNLOOP_ENDPOINT"),
    "concurrency": Option("episodes played side by side, 1 to 256", "4", _between(1, 256)),
    "success-return": Option("an episode with at least this return succeeded", "", _optional_float),
    "recall": Option("memories to ask for at the start of each episode", "0", _between(0, 100)),
    "episodes": Option("stop after so many episodes; 0: never", "0", _between(0, 10**9)),
    "max-steps-per-second": Option("hold all players together to this rate; 0: as fast as they go", "0", _rate),
    "spool": Option("directory that keeps undelivered trajectories", ""),
}


async def keep_on(episode: Callable[[], Awaitable[EpisodeResult]], what: str, tally: Tally, pace: Pace) -> None:
    """Episode after episode of one player, backing off while there is no model. `what` names one in the log."""
    pause = 0.5
    while tally.claim():
        try:
            result = await episode()
        except LearnloopError as error:
            tally.errors += 1
            tally.started -= 1
            log.warning("%s failed: %s", what, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            tally.add(result)
            pause = 0.5
            await pace.after(result.length)


async def play(loop: Learnloop, options: argparse.Namespace, tally: Tally, pace: Pace) -> None:
    """One of the concurrent players."""
    setting = Setting(options.environment, options.level or None, options.randomise, options.credit or None)
    environment = open_world(setting)

    async def episode() -> EpisodeResult:
        return await play_episode(
            loop,
            environment,
            task=options.environment,
            recall=options.recall,
            success_return=options.success_return,
        )

    await keep_on(episode, "episode", tally, pace)


async def play_all(loop: Learnloop, options: argparse.Namespace, tally: Tally) -> None:
    """All players; one that breaks (a broken environment) stops the others."""
    pace = Pace(options.max_steps_per_second)
    async with asyncio.TaskGroup() as group:
        for _ in range(options.concurrency):
            group.create_task(play(loop, options, tally, pace))


async def report(loop: Learnloop, tally: Tally) -> None:
    """Print progress until cancelled."""
    before, actions = time.monotonic(), 0
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        now, done = time.monotonic(), loop.counters.actions
        _say(loop, tally, (done - actions) / (now - before))
        before, actions = now, done


def _say(loop: Learnloop, tally: Tally, rate: float) -> None:
    line = {
        "episodes": tally.episodes,
        "steps_per_second": round(rate, 1),
        "return_mean_100": round(sum(tally.returns) / len(tally.returns), 2) if tally.returns else None,
        "errors": tally.errors,
        "pending_trajectories": loop.recorder.pending if loop.recorder else 0,
        **{key: value for key, value in loop.counters.snapshot().items() if value},
    }
    print(json.dumps(line), flush=True)


async def run(options: argparse.Namespace) -> int:
    """Play until SIGTERM or the last episode; returns the exit status."""
    stopping = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stopping.set)
    spool = Path(options.spool) if options.spool else None
    loop = Learnloop(options.agent, options.endpoint, spool_directory=spool)
    tally = Tally(limit=options.episodes)
    start = time.monotonic()
    reporter = asyncio.create_task(report(loop, tally))
    players = asyncio.create_task(play_all(loop, options, tally))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait([players, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in (players, reporter, stop):
        task.cancel()
    failure = (await asyncio.gather(players, reporter, stop, return_exceptions=True))[0]
    left = await loop.close(FLUSH_SECONDS)
    _say(loop, tally, loop.counters.actions / max(time.monotonic() - start, 1e-9))
    if isinstance(failure, Exception):
        process_end.end(failure, "the actor stops: ")
    return 1 if isinstance(failure, Exception) or left else 0


def main() -> int:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    options = parse(sys.argv[1:])
    try:
        import uvloop
    except ImportError:  # the SDK does not need it; the serving image has it
        return asyncio.run(run(options))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
