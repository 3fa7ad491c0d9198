"""The fast lane's evidence about one arm: what its pods said themselves, look by look.

A look needs every pod of the arm. Half an arm, a number that is none and a process that was replaced in between all
leave the evidence as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from learnloop_operator.core.rollout.gross import Questions, listened
from learnloop_operator.core.rollout.tally import Reading, between, finished, total
from learnloop_operator.core.sequential.alarm import Alarm

FRESH = timedelta(seconds=10)
"""Older looks decide nothing: the arm may be another one by now."""
DEGRADED_AFTER, RECOVERED_AFTER = timedelta(seconds=5), timedelta(seconds=30)
"""How long looks must fail, or succeed, before the lane's state changes: a state that flaps costs a write each time."""

UNREACHABLE, UNUSABLE = "PodsUnreachable", "CountersUnusable"
"""Why a look failed: no answer from a pod, or one without the arm's counters."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the lane works; slow to change its mind."""

    problem: str = ""
    """UNREACHABLE or UNUSABLE while it does not work."""
    doubted_since: datetime | None = None

    def after(self, problem: str, now: datetime) -> "Health":
        """The state after a look that failed with `problem`, or succeeded with none."""
        if bool(problem) == bool(self.problem):
            return replace(self, doubted_since=None)
        if self.doubted_since is None:
            return replace(self, doubted_since=now)
        patience = DEGRADED_AFTER if problem else RECOVERED_AFTER
        return Health(problem) if now - self.doubted_since >= patience else self


@dataclass(frozen=True, slots=True)
class Direct:
    """Evidence about the arm `revision` in the rollout that began at `rollout`. A retry is another rollout."""

    revision: str
    rollout: str
    weight: int = 0
    episodes: float = 0.0
    """Episodes that finished at this weight, as far as they were read."""
    last: Mapping[str, Reading] = field(default_factory=dict)
    """The last reading of each pod."""
    alarms: Mapping[str, Alarm] = field(default_factory=dict)
    seen_at: datetime | None = None
    """When every pod was read last."""
    health: Health = field(default_factory=Health)
    every: int = 1
    """Seconds between two looks; more than 1 where more pods are on trial than can be read in a second."""


def looked(direct: Direct, readings: Mapping[str, Reading], asked: Questions, now: datetime, moment: int) -> Direct:
    """The evidence after a look at every pod of the arm. `moment`: 1, 2, … since the rollout's start.

    The first reading of a process is a beginning: whatever it counted before, perhaps in an earlier rollout, is not
    asked. So is everything while the arm gets neither episodes nor copies.
    """
    health = direct.health.after("", now)
    if not all(reading.possible for reading in readings.values()):
        return replace(direct, health=direct.health.after(UNUSABLE, now))
    after = replace(direct, last=dict(readings), seen_at=now, health=health)
    batch = total([between(direct.last.get(pod), reading) for pod, reading in readings.items()])
    if not asked.exposed or not batch:
        return after
    alarms = listened(asked, direct.alarms, batch, direct.episodes, moment)
    return replace(after, alarms=alarms, episodes=direct.episodes + finished(batch))


def missed(direct: Direct, problem: str, now: datetime) -> Direct:
    """The evidence after a look that failed: unchanged, and older by the time."""
    return replace(direct, health=direct.health.after(problem, now))


def at_weight(direct: Direct, weight: int) -> Direct:
    """The evidence now that the arm gets `weight` percent; another weight begins with other episodes."""
    return direct if weight == direct.weight else replace(direct, weight=weight, episodes=0.0)
