"""The fast lane: reads the pods of every arm on trial each second, and has an object looked at when a bound is broken.

It decides nothing. The reader reads, and says when a pass is due. The pass puts the readings into its snapshot, and
`decide` judges them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from learnloop_operator.core.times import seconds_since
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.prometheus.pod_counters import Answers, CounterReader, PodUnreachable, Target
from learnloop_operator.rollout.fast_lane import (
    UNREACHABLE,
    UNUSABLE,
    PodEvidence,
    Questions,
    at_weight,
    breach,
    looked,
    trouble,
)
from learnloop_operator.rollout.judging.watched_arms import WatchedArm

log = logging.getLogger(__name__)

T = TypeVar("T")

EVERY = 1.0

Name = tuple[str, str]
"""Namespace and name of a ModelDeployment."""
Mark = Callable[[str, str, bool], None]
"""Asks for a pass over a ModelDeployment (namespace, name); True: an arm of it is in breach."""


@dataclass(slots=True)
class ArmOnTrial:
    """One arm on trial. `breached`: when a look first showed a breach, by the monotonic clock."""

    questions: Questions
    direct: PodEvidence
    pods: tuple[Target, ...] = ()
    breached: float | None = None
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class OnTrial:
    """The arms on trial of one ModelDeployment, by revision. `alarm` is set while one of them is in breach."""

    arms: dict[str, ArmOnTrial] = field(default_factory=dict)
    alarm: asyncio.Event = field(default_factory=asyncio.Event)


class FastLaneReader:
    """All arms on trial of one operator. `clock` is the one decisions know."""

    def __init__(self, pods: CounterReader, metrics: OperatorMetrics, clock: Callable[[], datetime]) -> None:
        self._pods, self._metrics, self._clock = pods, metrics, clock
        self._on_trial: dict[Name, OnTrial] = {}
        metrics.lane_arms.set_function(lambda: float(sum(len(item.arms) for item in self._on_trial.values())))

    async def follow(
        self, name: Name, watched: tuple[WatchedArm, ...], pods: Mapping[str, tuple[Target, ...]]
    ) -> Mapping[str, PodEvidence]:
        """Readings of the arms on trial, by revision; from now on they are read each second, and no other arm of
        this object is. A new one is read immediately, so that the counters' beginning is known before it gets an
        episode. `pods`: those of each arm."""
        on_trial = self._on_trial.setdefault(name, OnTrial())
        for revision in on_trial.arms.keys() - {one.revision for one in watched}:
            self._over(on_trial.arms.pop(revision))
        fresh = [arm for one in watched if (arm := _followed(on_trial, one, pods.get(one.revision, ())))]
        await asyncio.gather(*(self._look(name, arm) for arm in fresh))
        _raise_alarm(on_trial)
        return self.readings(name)

    def readings(self, name: Name) -> Mapping[str, PodEvidence]:
        on_trial = self._on_trial.get(name)
        arms = on_trial.arms.items() if on_trial else ()
        return {revision: arm.direct for revision, arm in arms}

    def let_episodes_speak(self, name: Name, steady: Iterable[str]) -> None:
        """The endings of these revisions are steady at their present weight."""
        on_trial = self._on_trial.get(name, OnTrial())
        for revision in steady:
            if arm := on_trial.arms.get(revision):
                arm.direct = replace(arm.direct, steady=True)

    async def unless_breached(self, name: Name, work: Coroutine[Any, Any, T]) -> T | None:
        """Result of `work`; None as soon as a look shows a breach, which does not wait for a slow Prometheus."""
        on_trial = self._on_trial.get(name)
        if on_trial is None:
            return await work
        task, alarm = asyncio.create_task(work), asyncio.create_task(on_trial.alarm.wait())
        try:
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            alarm.cancel()

    def forget(self, name: Name) -> None:
        """Forget this object: none of its arms is on trial."""
        on_trial = self._on_trial.pop(name, OnTrial())
        for arm in on_trial.arms.values():
            self._over(arm)

    async def run(self, mark: Mark, leading: Callable[[], bool]) -> None:
        """Read while this process leads; `mark` asks for passes. No arm waits for another's pods: one that is
        still being read is left out."""
        async with asyncio.TaskGroup() as turns:
            while True:
                if leading():
                    for name, item in self._on_trial.items():
                        for revision in item.arms:
                            turns.create_task(self._turn_of(name, revision, mark))
                await asyncio.sleep(EVERY)

    def _over(self, arm: ArmOnTrial) -> None:
        """An arm is off trial. A breach that ends so was acted on, and this is how long it took: a little more than
        until the route was written."""
        if arm.breached is not None:
            self._metrics.lane_seconds.observe(time.monotonic() - arm.breached)

    async def _turn_of(self, name: Name, revision: str, mark: Mark) -> None:
        on_trial = self._on_trial.get(name)
        arm = on_trial.arms.get(revision) if on_trial else None
        if on_trial is None or arm is None:
            return
        before = arm.direct.problem
        await self._look(name, arm)
        result = breach(arm.questions, arm.direct.alarms, "the arm")
        if result and arm.breached is None:
            log.info("ModelDeployment %s/%s: gross breach of %s: %s", *name, revision, result)
            arm.breached = time.monotonic()
        elif not result:
            arm.breached = None
        _raise_alarm(on_trial)
        if result or arm.direct.problem != before:
            mark(*name, bool(result))

    async def _look(self, name: Name, arm: ArmOnTrial) -> None:
        if not arm.pods or arm.reading.locked():
            return
        async with arm.reading:
            answers = await self._pods.read_all(arm.pods, *name, arm.direct.revision)
            silent = {pod: _why(error) for pod, error in answers.errors.items()}
            now = self._clock()
            moment = 1 + int(max(0.0, seconds_since(arm.direct.rollout, now)))
            arm.direct = looked(arm.direct, answers.readings, arm.questions, now, moment, silent)
            for error in answers.errors.values():
                log.debug("fast lane: %s", error)
            self._metrics.lane_looks.labels(result=_result(answers, silent)).inc()


def _why(error: Exception) -> str:
    return UNREACHABLE if isinstance(error, PodUnreachable) else UNUSABLE


def _result(answers: Answers, silent: Mapping[str, str]) -> str:
    if not silent:
        return "ok"
    return "some" if answers.readings else trouble(silent)


def _followed(on_trial: OnTrial, one: WatchedArm, pods: tuple[Target, ...]) -> ArmOnTrial | None:
    """Brings what is known of the arm up to date; returns it where its pods have not been read yet."""
    arm = on_trial.arms.get(one.revision)
    if arm is None or arm.direct.rollout != one.rollout:
        arm = on_trial.arms[one.revision] = ArmOnTrial(one.questions, PodEvidence(one.revision, one.rollout))
    unread, arm.pods, arm.questions = not arm.pods, pods, one.questions
    arm.direct = at_weight(arm.direct, one.weight)
    return arm if unread else None


def _raise_alarm(on_trial: OnTrial) -> None:
    if any(arm.breached is not None for arm in on_trial.arms.values()):
        on_trial.alarm.set()
    else:
        on_trial.alarm.clear()
