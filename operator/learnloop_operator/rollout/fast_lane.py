"""The fast lane: hard bounds asked of the counters that the pods of an arm on trial serve, each second."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout.checks import error_budget, hard_bound, metric_types
from learnloop_operator.statistics.alarm import Alarm, updated

FRESH = timedelta(seconds=10)
"""Older looks decide nothing: the arm may be another one by now. Pods that are silent for so long are reported."""
UNREACHABLE, UNUSABLE = "PodsUnreachable", "CountersUnusable"
"""Why a pod gave no reading: no answer, or one without the arm's counters."""
NO_POD: Mapping[str, str] = MappingProxyType({})


# The hard bounds asked of one arm: min and max of the analysis and the share of failing requests. Nothing is compared
# with stable: a bound needs one arm.


@dataclass(frozen=True, slots=True)
class Questions:
    """The bounds asked of one arm now. `bar`: the log e-value at which a bound counts as broken beyond doubt."""

    bounds: tuple[hard_bound.HardBound, ...]
    bar: float
    exposed: bool = True
    """Whether the arm gets episodes; while it gets none, what its pods count is not of this rollout."""


def of_episodes(spec: ModelDeploymentSpec, weight: int, arms: int = 1) -> Questions:
    """Of each of `arms` arms on trial that gets `weight` percent of the episodes. The arms of an experiment share the
    budget."""
    # A bound that cannot be broken is not asked, and each one once.
    bounds = {bound.key: bound for bound in of_analysis(spec.analysis) if 0.0 <= bound.share < 1.0}
    bar = error_budget.bar_of_fast_lane(spec.analysis, len(bounds), arms)
    return Questions(tuple(bounds.values()), bar, weight > 0)


def of_analysis(analysis: Analysis) -> Iterator[hard_bound.HardBound]:
    """Every hard bound of the analysis that one arm's counters can break."""
    yield hard_bound.failed_requests(analysis.fast_lane.max_request_errors)
    for metric in analysis.metrics:
        yield from metric_types.type_of(metric).hard_bounds(metric)


def breach(questions: Questions, alarms: Mapping[str, Alarm], candidate_name: str) -> str:
    """The bounds that are broken beyond doubt, in one sentence; "" while there is none."""
    broken = [bound for bound in questions.bounds if _is_broken(bound, alarms.get(bound.key, Alarm()), questions.bar)]
    text = "; ".join(bound.sentence(alarms[bound.key], candidate_name) for bound in broken)
    return f"{text}; read from its own pods" if text else ""


def _is_broken(bound: hard_bound.HardBound, alarm: Alarm, bar: float) -> bool:
    return alarm.evidence >= bar and alarm.recent.total >= bound.fewest_bad


# Evidence about one arm, look by look.
#
# A look reads the pods that answer: what one counted since it was last read is new, however long that was ago, and
# counts once. A pod that gives no reading, an impossible number and a process that was replaced in between add nothing.


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
    last: Mapping[str, hard_bound.Reading] = field(default_factory=dict)
    """The last reading of each pod, one that is silent now included: its next reading is compared with it."""
    alarms: Mapping[str, Alarm] = field(default_factory=dict)
    last_read: datetime | None = None
    """When a pod was read last."""
    silent_since: datetime | None = None
    """When the first look failed of those that none of its pods answered; None: the last look read one."""
    problem: str = ""
    """UNREACHABLE or UNUSABLE when no pod was read for FRESH."""


def looked(
    direct: PodEvidence,
    readings: Mapping[str, hard_bound.Reading],
    questions: Questions,
    now: datetime,
    moment: int,
    silent: Mapping[str, str] = NO_POD,
) -> PodEvidence:
    """The evidence after a look. `moment`: 1, 2, … since the rollout's start; `silent`: the pods that gave no reading,
    each with UNREACHABLE or UNUSABLE.

    The first reading of a process is a beginning: whatever it counted before, perhaps in an earlier rollout, is not
    asked. So is everything while the arm gets no episodes, that of a pod that is silent then included.
    """
    message = {pod: reading for pod, reading in readings.items() if reading.possible}
    silent = {**silent, **dict.fromkeys(readings.keys() - message.keys(), UNUSABLE)}
    remaining = {pod: direct.last[pod] for pod in silent if questions.exposed and pod in direct.last}
    after = replace(direct, last={**remaining, **message})
    if not message:
        since = direct.silent_since or now
        return replace(after, silent_since=since, problem=trouble(silent) if now - since >= FRESH else direct.problem)
    after = replace(after, last_read=now, silent_since=None, problem="")
    batches = [hard_bound.between(direct.last.get(pod), reading) for pod, reading in message.items()]
    if not questions.exposed or not any(batches):
        return after
    seconds = max(1.0, (now - direct.last_read).total_seconds()) if direct.last_read else 1.0
    alarms = _alarms(questions, direct, batches, seconds, moment)
    return replace(after, alarms=alarms, episodes=direct.episodes + hard_bound.finished(hard_bound.total(batches)))


def _alarms(
    questions: Questions, direct: PodEvidence, batches: Sequence[hard_bound.Counters], seconds: float, moment: int
) -> dict[str, Alarm]:
    """Every alarm after each pod's batch of the last `seconds`; those not asked stay as they are.

    Until minEpisodes have finished at the present weight, and the arm's endings are steady
    (checks/unfinished_episodes.py), outcomes of episodes do not count: the short ones end first, and those are often
    the failed ones.
    """
    after = dict(direct.alarms)
    for bound in questions.bounds:
        alarm, bad = direct.alarms.get(bound.key, Alarm()), bound.counted(batches, seconds)
        if bad is not None and direct.episodes >= bound.min_episodes and (direct.steady or not bound.of_episodes):
            alarm = updated(alarm, bad, bound.share, moment)
        after[bound.key] = alarm
    return after


def trouble(silent: Mapping[str, str]) -> str:
    """The reason that these pods gave no reading; "" for none. A blocked network path explains more."""
    return UNREACHABLE if UNREACHABLE in silent.values() else next(iter(silent.values()), "")


def at_weight(direct: PodEvidence, weight: int) -> PodEvidence:
    """The evidence now that the arm gets `weight` percent; another weight begins with other episodes."""
    return direct if weight == direct.weight else replace(direct, weight=weight, episodes=0.0, steady=False)
