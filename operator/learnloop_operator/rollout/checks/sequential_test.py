"""How often each check may err: analysis.alpha, split over everything that can roll a canary back."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.core.times import rough
from learnloop_operator.core.times import text as duration
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Evidence, Verdict, count, number
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.metrics.hard_bound import chance_text
from learnloop_operator.rollout.metrics.metric_type import PLAIN, Measure, max_drop_share
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.comparison import Bars, Claim, Pair, TestMemory, bars, chance, claim, look, needed

TIMES = 3
"""A bound is asked of the canary, of the other arms of an experiment, and of the promoted arm by counters that start
over."""


def claims(analysis: Analysis) -> int:
    """Claims of which one suffices for a rollback: every sequential test and every bound.

    A query that counts no events is compared as it stands and takes nothing of the budget.
    """
    return sum([type_of(metric).claims(metric) for metric in analysis.metrics])


def alpha_of_bound(analysis: Analysis, arms: int = 1) -> float:
    """Chance with which one bound may be called broken though it holds, however often one looks.

    `arms`: so many are asked at a time, of which none may be wronged.
    """
    return analysis.alpha / (max(1, claims(analysis)) * TIMES * arms)


# Sequential tests of a rollout: what they remember, and how they take a look at the evidence.


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
    Where samples are lost that it needs, it starts over once they are not needed.
    """
    tests = sequential(analysis)
    if not tests:
        return ()
    recorded = {(trial.name, trial.claim): trial for trial in before}
    bar, after = bars_of(analysis), []
    canary, stable = evidence.arms.get(subject), evidence.arms.get(reference)
    torn = bool((canary and canary.gap) or (stable and stable.gap))
    for metric in tests:
        text = claim_text(metric)
        trial = recorded.get((metric.name, text)) or SequentialTest(metric.name, text, TestMemory())
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


# What a sequential test makes of its evidence: one check, with the sentence.


def weigh(metric: MetricThreshold, trial: SequentialTest, analysis: Analysis, share: float, per_second: float) -> Check:
    """Worse rolls the canary back, fine lets the step pass, everything else holds and says for how long.

    `share` is the canary's share of new episodes, `per_second` the episodes it finishes.
    """
    bar, memory, kind = bars_of(analysis), trial.memory, type_of(metric)
    noun, drop = kind.compared_noun(metric, trial.measure), max_drop_share(metric, kind.scale(metric))
    if drop is None:
        return Check(Verdict.HOLD, f"{noun}: spec.analysis.metrics: {metric.name} needs a maxDrop within its range")
    canary, stable = memory.judged.canary, memory.judged.stable
    if canary.n <= 0.0:
        return Check(Verdict.HOLD, f"{noun}: no episodes of the canary and of stable at the same time to compare yet")
    words = f"{noun} of the canary {_value(metric, canary)} vs {_value(metric, stable)} of stable"
    over = f"over {_amount(metric, canary)}"
    worse, fine = chance_text(memory.worse), chance_text(memory.fine)
    tolerated = f"P(not worse by {metric.max_drop:g})"
    result = claim(memory, bar)
    if result is Claim.WORSE:
        return Check(Verdict.BREACH, f"{words} {over}; P(worse) {worse}; bar {_bar(bar.worse)}")
    if result is Claim.FINE:
        return Check(Verdict.PASS, f"{words}; {tolerated} {fine}; bar {_bar(bar.fine)}")
    more = needed(memory, drop, bar, share) if 0.0 < share < 1.0 else None
    wait = "no end in sight at these rates" if more is None else f"about {more:.0f} more canary episodes needed"
    if more is not None and per_second > 0.0:
        wait += f", {duration(rough(more / per_second))} at the present rate"
    bounds = f"bars {_bar(bar.worse)} and {_bar(bar.fine)}"
    reason = reasons.NO_END_IN_SIGHT if more is None else reasons.NOT_ENOUGH_DATA
    text = f"{words} {over}: undecided: P(worse) {worse}, {tolerated} {fine}; {bounds}; {wait}"
    return Check(Verdict.HOLD, text, reason)


def _amount(metric: MetricThreshold, seen: Counts) -> str:
    """Blocks of events are as many as episodes, and are none."""
    episodes = count(int(seen.n))
    return f"the events of {episodes}" if type_of(metric).counts_events else episodes


def _value(metric: MetricThreshold, seen: Counts) -> str:
    """The mean in the metric's own unit."""
    return number(type_of(metric).in_unit(metric, seen.total / seen.n if seen.n > 0.0 else 0.0))


def _bar(log_evidence: float) -> str:
    return f"{chance(log_evidence):.6g}"
