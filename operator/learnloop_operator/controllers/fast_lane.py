"""The fast lane: reads the pods of every arm on trial each second, and has an object looked at when a bound is broken.

It decides nothing. A pass puts what was read into its snapshot, and `decide` makes of it what it will; what is done
here is the reading, and to say that a pass is due.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from learnloop_api.kinds.analysis import Analysis
from learnloop_operator.adapters.metrics import Metrics
from learnloop_operator.adapters.pod_metrics import CountersUnusable, PodMetrics, PodUnreachable, Target
from learnloop_operator.core.rollout.direct import UNREACHABLE, UNUSABLE, Direct, at_weight, looked, missed
from learnloop_operator.core.rollout.fast_lane import Subject
from learnloop_operator.core.rollout.gross import breach
from learnloop_operator.core.times import seconds_since

log = logging.getLogger(__name__)

T = TypeVar("T")

EVERY = 1.0
PODS_PER_TURN = 250
"""Pods read in one second: with more of them on trial each is read less often, and the operator stays awake."""

Name = tuple[str, str]
"""Namespace and name of a ModelDeployment."""


@dataclass(slots=True)
class Watched:
    """One arm on trial. `breached`: when a look first showed a breach, by the monotonic clock."""

    pods: tuple[Target, ...]
    analysis: Analysis
    direct: Direct
    breached: float | None = None
    alarm: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class FastLane:
    """All arms on trial of one operator. `clock` is the one decisions know."""

    def __init__(self, pods: PodMetrics, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._pods, self._metrics, self._clock = pods, metrics, clock
        self._watched: dict[Name, Watched] = {}
        self._turn = 0
        metrics.lane_arms.set_function(lambda: float(len(self._watched)))

    async def follow(self, name: Name, subject: Subject, pods: Iterable[Target], analysis: Analysis) -> Direct:
        """What is known of the arm on trial; from now on it is read each second. One that is new is read at once, so
        that the counters' beginning is known before it gets an episode."""
        watched = self._watched.get(name)
        if watched is None or (watched.direct.revision, watched.direct.rollout) != (subject.revision, subject.rollout):
            watched = self._watched[name] = Watched((), analysis, Direct(subject.revision, subject.rollout))
        fresh, watched.pods, watched.analysis = not watched.pods, tuple(pods), analysis
        watched.direct = at_weight(watched.direct, subject.weight)
        if fresh:
            await self._look(name, watched)
        return watched.direct

    def known(self, name: Name) -> Direct | None:
        """What was read of the arm on trial by now."""
        watched = self._watched.get(name)
        return watched.direct if watched else None

    async def unless_breached(self, name: Name, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` gives; None as soon as a look shows a breach, for nobody waits for a slow Prometheus then."""
        watched = self._watched.get(name)
        if watched is None:
            return await work
        task, alarm = asyncio.create_task(work), asyncio.create_task(watched.alarm.wait())
        try:
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            alarm.cancel()

    def forget(self, name: Name) -> None:
        """Nothing of this object is on trial any more. A breach that ends so was acted on, and this is how long it
        took: a little more than until the route was written."""
        watched = self._watched.pop(name, None)
        if watched is not None and watched.breached is not None:
            self._metrics.lane_seconds.observe(time.monotonic() - watched.breached)

    async def run(self, mark: Callable[[str, str], None], leading: Callable[[], bool]) -> None:
        """Read for ever, while this process leads; `mark(namespace, name)` asks for a pass."""
        while True:
            began = time.monotonic()
            if leading():
                await asyncio.gather(*(self._turn_of(name, mark) for name in self._next()))
            await asyncio.sleep(max(0.05, EVERY - (time.monotonic() - began)))

    def _next(self) -> list[Name]:
        """The arms of this turn: all of them, or as many as may be read in a second, in rotation."""
        chosen: list[Name] = []
        names, pods = list(self._watched), 0
        for offset in range(len(names)):
            name = names[(self._turn + offset) % len(names)]
            pods += len(self._watched[name].pods)
            if chosen and pods > PODS_PER_TURN:
                break
            chosen.append(name)
        self._turn = (self._turn + len(chosen)) % max(1, len(names))
        return chosen

    async def _turn_of(self, name: Name, mark: Callable[[str, str], None]) -> None:
        watched = self._watched.get(name)
        if watched is None:
            return
        before = watched.direct.health.problem
        await self._look(name, watched)
        found = breach(watched.analysis, watched.direct.alarms, "the arm")
        if found and watched.breached is None:
            log.info("ModelDeployment %s/%s: gross breach: %s", *name, found)
            watched.breached = time.monotonic()
            watched.alarm.set()
        elif not found:
            watched.breached = None
            watched.alarm.clear()
        if found or watched.direct.health.problem != before:
            mark(*name)

    async def _look(self, name: Name, watched: Watched) -> None:
        if not watched.pods or watched.reading.locked():
            return
        async with watched.reading:
            try:
                readings = await self._pods.read_all(watched.pods, name[1], watched.direct.revision)
            except PodUnreachable as error:
                self._failed(watched, UNREACHABLE, error)
            except CountersUnusable as error:
                self._failed(watched, UNUSABLE, error)
            else:
                now = self._clock()
                moment = 1 + int(max(0.0, seconds_since(watched.direct.rollout, now)))
                watched.direct = looked(watched.direct, readings, watched.analysis, now, moment)
                self._metrics.lane_looks.labels(result="ok").inc()

    def _failed(self, watched: Watched, problem: str, error: Exception) -> None:
        log.debug("fast lane: %s", error)
        watched.direct = missed(watched.direct, problem, self._clock())
        self._metrics.lane_looks.labels(result=problem).inc()
