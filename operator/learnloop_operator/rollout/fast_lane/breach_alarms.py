"""Gross breaches: hard bounds that the arm's own counters break beyond doubt.

Each bound (hard_bounds.py has them) is an alarm (sequential/alarm.py), so that reading every second costs no false
rollback.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learnloop_operator.rollout.evidence.pod_counters import Counters
from learnloop_operator.rollout.metrics.hard_bound import HardBound
from learnloop_operator.statistics.alarm import Alarm, heard


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked of one arm at present. `bar`: the log e-value at which a bound counts as broken beyond doubt."""

    bounds: tuple[HardBound, ...]
    bar: float
    exposed: bool = True
    """Whether the arm gets episodes or copies; while it gets none, what its pods count is not of this rollout."""


def listened(
    asked: Questions,
    before: Mapping[str, Alarm],
    batches: Sequence[Counters],
    seconds: float,
    episodes: float,
    moment: int,
    *,
    steady: bool,
) -> dict[str, Alarm]:
    """Every alarm after each pod's batch of the last `seconds`, at `moment` (1, 2, … since the rollout's start); those
    not asked stay as they are.

    `episodes`: finished at the present weight before the batch. Until there are minEpisodes of them, and the arm's
    endings are `steady` (checks/steady_endings.py), outcomes of episodes do not count: the short ones end first, and
    those are often the failed ones.
    """
    after = dict(before)
    for bound in asked.bounds:
        alarm, bad = before.get(bound.claim, Alarm()), bound.heard_of(batches, seconds)
        if bad is not None and episodes >= bound.min_episodes and (steady or not bound.of_episodes):
            alarm = heard(alarm, bad, bound.share, moment)
        after[bound.claim] = alarm
    return after


def breach(asked: Questions, alarms: Mapping[str, Alarm], subject_is: str) -> str:
    """The bounds that are broken beyond doubt, in one sentence; "" while there is none."""
    broken = [
        bound for bound in asked.bounds if bound.claim in alarms and _is_broken(bound, alarms[bound.claim], asked.bar)
    ]
    said = "; ".join(bound.sentence(alarms[bound.claim], subject_is) for bound in broken)
    return f"{said}; read from its own pods" if said else ""


def _is_broken(bound: HardBound, alarm: Alarm, bar: float) -> bool:
    return alarm.evidence >= bar and alarm.recent.total >= bound.fewest_bad
