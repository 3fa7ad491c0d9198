"""Sequential tests of a rollout: what they remember, and how they take a look at the evidence."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from learnloop_api.kinds.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.comparison import Bars, Memory, Pair, bars, chance, claim, look, needed


@dataclass(frozen=True, slots=True)
class Trial:
    """One sequential metric of this rollout. `claim`: what is tested, so that a changed metric starts over."""

    name: str
    claim: str
    memory: Memory


def sequential(analysis: Analysis) -> list[MetricThreshold]:
    """The metrics that are tested and not compared as they stand."""
    return [metric for metric in analysis.metrics if metric.test == "sequential"]


def bars_of(analysis: Analysis) -> Bars:
    """The error budget, split over the sequential metrics."""
    return bars(analysis.alpha, max(1, len(sequential(analysis))))


def looked(
    analysis: Analysis, before: Iterable[Trial], evidence: Evidence, subject: str, reference: str, *, concurrent: bool
) -> tuple[Trial, ...]:
    """Every sequential metric's trial after one look. Missing evidence leaves all of them as they are.

    The comparison begins when the canary has played `minEpisodes`: of the first episodes the short ones end first.
    """
    known = {(trial.name, trial.claim): trial for trial in before}
    bar, after = bars_of(analysis), []
    canary, stable = evidence.arms.get(subject), evidence.arms.get(reference)
    for metric in sequential(analysis):
        text = claim_text(metric)
        trial = known.get((metric.name, text), Trial(metric.name, text, Memory()))
        drop = share_of_range(metric)
        pair = counts(metric, canary), counts(metric, stable)
        if not concurrent:
            trial = replace(trial, memory=replace(trial.memory, seen=None))
        elif pair[0] and pair[1] and drop is not None and pair[0].n >= metric.min_episodes:
            trial = replace(trial, memory=look(trial.memory, Pair(pair[0], pair[1]), drop, bar))
        after.append(trial)
    return tuple(after)


def claim_text(metric: MetricThreshold) -> str:
    """The claim in words: whoever changes a number in it asks another question."""
    where = metric.return_range
    text = f"{metric.type} not worse by {metric.max_drop:g}" if metric.max_drop is not None else metric.type
    return f"{text} of {where.lowest:g}..{where.highest:g}" if where else text


def share_of_range(metric: MetricThreshold) -> float | None:
    """maxDrop on the scale 0..1; None where the API server would have refused the metric."""
    width = 1.0
    if metric.type == "return":
        width = metric.return_range.highest - metric.return_range.lowest if metric.return_range else 0.0
    drop = metric.max_drop / width if metric.max_drop is not None and width > 0.0 else 0.0
    return drop if 0.0 < drop < 1.0 else None


def counts(metric: MetricThreshold, arm: ArmEvidence | None) -> Counts | None:
    """The arm's episodes and the sum of their values, 0 for the worst and 1 for the best; None where none is known."""
    if arm is None:
        return None
    n, mean = float(arm.episodes), None
    if metric.type == "success":
        mean = arm.success_rate
    elif metric.type == "errors" and arm.error_rate is not None:
        mean = 1.0 - arm.error_rate
    elif metric.type == "return" and metric.return_range and arm.mean_return is not None:
        where = metric.return_range
        mean = (arm.mean_return - where.lowest) / (where.highest - where.lowest)
    return None if mean is None else Counts(n, n * mean)


def load(saved: Iterable[MetricEvidence]) -> tuple[Trial, ...]:
    """Trials from a status; one with damaged numbers begins anew."""
    return tuple(Trial(item.name, item.claim, _memory(item)) for item in saved)


def save(trials: Iterable[Trial], analysis: Analysis, share: float) -> list[MetricEvidence] | None:
    """The trials as the status keeps them, to the last bit; `share`: the canary's share of new episodes."""
    bar, by_name = bars_of(analysis), {metric.name: metric for metric in sequential(analysis)}
    kept = [_evidence(trial, by_name[trial.name], bar, share) for trial in trials if trial.name in by_name]
    return kept or None


def _evidence(trial: Trial, metric: MetricThreshold, bar: Bars, share: float) -> MetricEvidence:
    memory, drop = trial.memory, share_of_range(metric)
    more = needed(memory, drop, bar, share) if drop is not None and 0.0 < share < 1.0 else None
    return MetricEvidence(
        name=trial.name,
        claim=trial.claim,
        verdict=claim(memory, bar).value,
        chance_worse=round(chance(memory.worse), 6),
        chance_fine=round(chance(memory.fine), 6),
        needed_episodes=None if more is None else int(more),
        log_worse=memory.worse,
        log_fine=memory.fine,
        judged=_numbers(memory.judged),
        seen=_numbers(memory.seen) if memory.seen else None,
    )


def _memory(item: MetricEvidence) -> Memory:
    judged, seen = _pair(item.judged), _pair(item.seen)
    if judged is None or item.log_worse is None or item.log_fine is None:
        return Memory()
    return Memory(seen, judged, item.log_worse, item.log_fine)


def _numbers(pair: Pair) -> list[float]:
    return [pair.canary.n, pair.canary.total, pair.stable.n, pair.stable.total]


def _pair(numbers: list[float] | None) -> Pair | None:
    if not numbers or len(numbers) != 4:
        return None
    pair = Pair(Counts(*numbers[:2]), Counts(*numbers[2:]))
    return pair if pair.canary.possible and pair.stable.possible else None
