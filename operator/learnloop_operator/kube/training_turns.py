"""Whose turn it is to train, by all TrainingJobs that this process knows of."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_operator.core.coordination.quotas import Quotas
from learnloop_operator.core.coordination.scheduler import Key
from learnloop_operator.core.coordination.turns import Turn, began_on, turn_of
from learnloop_operator.kube.kinds import LEARNING_AGENT, TRAINING_JOB, ResourceKind
from learnloop_operator.kube.object_cache import Object, ObjectCache

PROMISE_SECONDS = 60.0
"""A run that was told to begin keeps its place so long, until its status says so; a pass takes no longer."""
UNKNOWN = Turn(why="the operator has just begun and does not know all runs yet", place=1, waiting=1)


@dataclass(slots=True)
class TrainingTurns:
    """One for each process, for what it promised counts before it is written."""

    cache: ObjectCache
    quotas: Quotas
    clock: Callable[[], float] = time.monotonic
    _promised: dict[Key, float] = field(default_factory=dict)
    _day: str = ""
    _begun: dict[str, str] = field(default_factory=dict)
    """Namespaces of the runs that this process saw begin on that day, by UID; those deleted since are included."""

    def turn(self, live: Mapping[str, Any], now: datetime) -> Turn | None:
        """What the run is told; None where no quota says anything, or a queue of its own decides."""
        if not self.quotas.limits or (live.get("spec") or {}).get("queue") is not None:
            return None
        if not (self.cache.complete(TRAINING_JOB) and self.cache.complete(LEARNING_AGENT)):
            return UNKNOWN
        key = (str(live["metadata"]["namespace"]), str(live["metadata"]["name"]))
        moment = self.clock()
        self._promised = {other: at for other, at in self._promised.items() if moment - at < PROMISE_SECONDS}
        jobs = [dict(live) if _key(body) == key else body for body in self._all(TRAINING_JOB)]
        agents = self._all(LEARNING_AGENT)
        seen = self._seen_today(jobs, now)
        found = turn_of(key, jobs, agents, self.quotas, now, frozenset(self._promised) - {key}, seen)
        if found.admitted:
            self._promised[key] = moment
        return found

    def _seen_today(self, jobs: Iterable[Mapping[str, Any]], now: datetime) -> Counter[str]:
        today = now.astimezone(UTC).date().isoformat()
        if today != self._day:
            self._day, self._begun = today, {}
        for body in jobs:
            if began_on(body, today):
                self._begun[str(body["metadata"].get("uid"))] = str(body["metadata"]["namespace"])
        return Counter(self._begun.values())

    def _all(self, kind: ResourceKind) -> list[Object]:
        found = (self.cache.get(kind, *place) for place in self.cache.names(kind))
        return [body for body in found if body is not None]


def _key(body: Mapping[str, Any]) -> Key:
    return str(body["metadata"]["namespace"]), str(body["metadata"]["name"])
