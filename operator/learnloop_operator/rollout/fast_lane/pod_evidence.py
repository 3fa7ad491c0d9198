"""The fast lane's evidence about one arm: what its pods said themselves, look by look.

A look hears the pods that answer: what one counted since it was last heard is new, however long that was ago, and is
heard once. A pod that gives no reading, a number that is none and a process that was replaced in between add nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from learnloop_operator.rollout.evidence.pod_counters import Reading, between, finished, total
from learnloop_operator.rollout.fast_lane.breach_alarms import Questions, listened
from learnloop_operator.statistics.alarm import Alarm

FRESH = timedelta(seconds=10)
"""Older looks decide nothing: the arm may be another one by now."""
DEGRADED_AFTER, RECOVERED_AFTER = timedelta(seconds=5), timedelta(seconds=30)
"""How long looks must fail, or succeed, before the lane's state changes: a state that flaps costs a write each time."""

UNREACHABLE, UNUSABLE = "PodsUnreachable", "CountersUnusable"
"""Why a pod gave no reading: no answer, or one without the arm's counters."""

NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FastLaneHealth:
    """Whether the lane works; slow to change its mind."""

    problem: str = ""
    """UNREACHABLE or UNUSABLE while pods give no reading."""
    silent: int = 0
    """How many of the pods those are, where others are read; 0 where it is all of them, or none."""
    of: int = 0
    """How many pods there are where some are silent."""
    doubted_since: datetime | None = None
    doubted_for_worse: bool = False

    @property
    def level(self) -> tuple[int, int]:
        """Greater is worse: all pods are read, some are silent, all are."""
        if not self.problem:
            return (0, 0)
        return (1, self.silent) if self.of else (2, 0)

    def after(self, problem: str, now: datetime, silent: int = 0, of: int = 0) -> "FastLaneHealth":
        """The state after a look at which all pods had `problem`, `silent` pods `of` all had it, or, with "", none."""
        seen = FastLaneHealth(problem, silent, of)
        if seen.level == self.level:
            return replace(self, of=of, doubted_since=None)
        worse = seen.level > self.level
        if self.doubted_since is None or worse != self.doubted_for_worse:
            return replace(self, doubted_since=now, doubted_for_worse=worse)
        patience = DEGRADED_AFTER if worse else RECOVERED_AFTER
        return seen if now - self.doubted_since >= patience else self


@dataclass(frozen=True, slots=True)
class PodEvidence:
    """Evidence about the arm `revision` in the rollout that began at `rollout`. A retry is another rollout."""

    revision: str
    rollout: str
    weight: int = 0
    episodes: float = 0.0
    """Episodes that finished at this weight, as far as they were read."""
    steady: bool = False
    """Whether the episodes that end are those that are opened at this weight: not only the short ones of them."""
    last: Mapping[str, Reading] = field(default_factory=dict)
    """The last reading of each pod, one that is silent now included: its next reading is compared with it."""
    alarms: Mapping[str, Alarm] = field(default_factory=dict)
    seen_at: datetime | None = None
    """When a pod was read last."""
    health: FastLaneHealth = field(default_factory=FastLaneHealth)
    every: int = 1
    """Seconds between two looks; more than 1 where more pods are on trial than can be read in a second."""


def looked(
    direct: PodEvidence,
    readings: Mapping[str, Reading],
    asked: Questions,
    now: datetime,
    moment: int,
    silent: Mapping[str, str] = NOBODY,
) -> PodEvidence:
    """The evidence after a look. `moment`: 1, 2, … since the rollout's start; `silent`: the pods that gave no reading,
    each with UNREACHABLE or UNUSABLE.

    The first reading of a process is a beginning: whatever it counted before, perhaps in an earlier rollout, is not
    asked. So is everything while the arm gets neither episodes nor copies, that of a pod that is silent then included.
    """
    told = {pod: reading for pod, reading in readings.items() if reading.possible}
    silent = {**silent, **dict.fromkeys(readings.keys() - told.keys(), UNUSABLE)}
    kept = {pod: direct.last[pod] for pod in silent if asked.exposed and pod in direct.last}
    after = replace(direct, last={**kept, **told}, health=_health(direct.health, len(told), silent, now))
    if not told:
        return after
    after = replace(after, seen_at=now)
    batches = [between(direct.last.get(pod), reading) for pod, reading in told.items()]
    if not asked.exposed or not any(batches):
        return after
    seconds = max(1.0, (now - direct.seen_at).total_seconds()) if direct.seen_at else 1.0
    alarms = listened(asked, direct.alarms, batches, seconds, direct.episodes, moment, steady=direct.steady)
    return replace(after, alarms=alarms, episodes=direct.episodes + finished(total(batches)))


def trouble(silent: Mapping[str, str]) -> str:
    """What to call it when these pods gave no reading; "" for none. A way that is closed explains more."""
    return UNREACHABLE if UNREACHABLE in silent.values() else next(iter(silent.values()), "")


def _health(before: FastLaneHealth, told: int, silent: Mapping[str, str], now: datetime) -> FastLaneHealth:
    some = (len(silent), len(silent) + told) if silent and told else (0, 0)
    return before.after(trouble(silent), now, *some)


def at_weight(direct: PodEvidence, weight: int) -> PodEvidence:
    """The evidence now that the arm gets `weight` percent; another weight begins with other episodes."""
    return direct if weight == direct.weight else replace(direct, weight=weight, episodes=0.0, steady=False)
