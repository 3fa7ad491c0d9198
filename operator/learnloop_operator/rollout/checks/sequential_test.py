"""Sequential tests of a rollout: what they remember, and how they take a look at the evidence."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.rollout.checks.error_budget import claims
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.metrics.metric_type import PLAIN, Measure, max_drop_share
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.statistics.comparison import Bars, Pair, TestMemory, bars, look


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """One sequential metric of this rollout. `claim`: what is tested, so that a changed metric starts over."""

    name: str
    claim: str
    memory: TestMemory
    measure: Measure = PLAIN
    """Fixed at the look that begins the comparison."""

    @property
    def begun(self) -> bool:
        """Whether a look has been taken from which on outcomes count."""
        return self.memory.seen is not None or self.memory.judged.canary.n > 0.0


def sequential(analysis: Analysis) -> list[MetricThreshold]:
    """The metrics that are tested and not compared as they stand."""
    return [metric for metric in analysis.metrics if metric.test == "sequential"]


def bars_of(analysis: Analysis) -> Bars:
    """The error budget, split over the tests and bounds that may act."""
    return bars(analysis.alpha, max(1, claims(analysis)))


def looked(
    analysis: Analysis,
    before: Iterable[SequentialTest],
    evidence: Evidence,
    subject: str,
    reference: str,
    *,
    concurrent: bool,
) -> tuple[SequentialTest, ...]:
    """Every sequential metric's trial after one look. Missing evidence leaves all of them as they are.

    The comparison begins when the canary has played `minEpisodes`: of the first episodes the short ones end first.
    Where samples are lost that it needs, it begins anew when they are no longer needed.
    """
    tests = sequential(analysis)
    if not tests:
        return ()
    known = {(trial.name, trial.claim): trial for trial in before}
    bar, after = bars_of(analysis), []
    canary, stable = evidence.arms.get(subject), evidence.arms.get(reference)
    torn = bool((canary and canary.gap) or (stable and stable.gap))
    for metric in tests:
        text = claim_text(metric)
        trial = known.get((metric.name, text)) or SequentialTest(metric.name, text, TestMemory())
        if not concurrent or torn:
            if trial.memory.seen is not None:
                trial = replace(trial, memory=replace(trial.memory, seen=None))
        elif canary and stable and type_of(metric).spoken(metric, canary) >= metric.min_episodes:
            trial = _look(metric, trial, canary, stable, bar)
        after.append(trial)
    return tuple(after)


@lru_cache(maxsize=1024)
def claim_text(metric: MetricThreshold) -> str:
    """The claim in words: a changed number in it asks another question."""
    where, what = metric.return_range, type_of(metric).claim_noun(metric)
    text = f"{what} not worse by {metric.max_drop:g}" if metric.max_drop is not None else what
    return f"{text} of {where.lowest:g}..{where.highest:g}" if where else text


def _look(
    metric: MetricThreshold, trial: SequentialTest, canary: ArmEvidence, stable: ArmEvidence, bar: Bars
) -> SequentialTest:
    kind = type_of(metric)
    drop = max_drop_share(metric, kind.scale(metric))
    fixed = trial.measure if trial.begun else kind.measure(metric, stable)
    if drop is None or fixed is None:
        return trial
    one, other = kind.outcomes(metric, canary, fixed), kind.outcomes(metric, stable, fixed)
    if one is None or other is None:
        return trial
    return SequentialTest(trial.name, trial.claim, look(trial.memory, Pair(one, other), drop, bar), fixed)
