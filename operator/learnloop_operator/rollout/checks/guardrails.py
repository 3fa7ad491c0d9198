"""Guardrails: is an arm certainly not worse than stable by maxDrop, or is it certainly worse by more?

For each challenger and guardrail two e-processes bet on the same batches (sequential.betting), against "worse than
stable by maxDrop or more" (`fine`) and against "worse by at most maxDrop" (`worse`). One may be proven, not both.

Error budget: half of the experiment's alpha. A winner that breaks a guardrail must have been proven fine on the very
one it breaks: with K-1 challengers each proof has alpha / (2 (K-1)), however many guardrails there are
(intersection-union). An arm that keeps all of its guardrails is withdrawn if one of (K-1) G claims errs: each has
alpha / (2 (K-1) G), by the union bound. Both hold however often one looks.
"""

import math
from dataclasses import dataclass, replace

from learnloop_api.kinds.rollouts.experiment import AnyExperiment, ExperimentGuardrail
from learnloop_operator.rollout.checks.best_arm_elimination import Batch, new_batch
from learnloop_operator.rollout.metrics.metric_type import Measure
from learnloop_operator.statistics.betting import NONE, Counts, log_e
from learnloop_operator.statistics.comparison import CREDIT, Bars, Pair, expected


@dataclass(frozen=True, slots=True)
class GuardrailEvidence:
    """What is known of one arm and one guardrail; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """What the source had counted at the last look that took anything over; None: the next look begins anew."""
    fine: float = 0.0
    """Log e-value of "not worse than stable by maxDrop"; stable's own stay 0."""
    worse: float = 0.0
    """Log e-value of "worse than stable by more"."""
    measure: Measure | None = None
    """Of stable's alone: what was fixed, by what it had shown until then, before the comparison began."""


def bars(asked: AnyExperiment) -> Bars:
    """Log e-values at which a guardrail holds and is broken, as the module's head derives them."""
    challengers, half = asked.challengers, asked.alpha / 2.0
    return Bars(math.log(challengers * max(1, len(asked.guardrails)) / half), math.log(challengers / half))


def share_of_alpha(asked: AnyExperiment) -> float:
    """What is left of alpha for the comparison by the experiment's metric."""
    return asked.alpha / 2.0 if asked.guardrails else asked.alpha


def drop_of(guardrail: ExperimentGuardrail) -> float:
    """maxDrop on the scale 0..1."""
    where = guardrail.return_range
    return guardrail.max_drop / (where.highest - where.lowest if where else 1.0)


def look(
    guards: tuple[GuardrailEvidence, ...], seen: tuple[Counts | None, ...], drop: float, bar: Bars
) -> tuple[GuardrailEvidence, ...]:
    """All arms' guards, stable's first, after a look at counters that now read `seen`; None for arms that are out, or
    of which there is no number: without stable's nothing is compared.

    Bets are made with what was known before the batch. What speaks for an arm beyond its bar is given away, so that
    an arm that turns bad late is not covered by its past.
    """
    if seen[0] is None:
        return guards
    batch = new_batch(guards, seen)
    if batch is None:
        return guards
    if not batch:
        return tuple(replace(guard, seen=counts) for guard, counts in zip(guards, seen, strict=True))
    # An arm that is silent at this look begins anew at its next: stable's episodes of today are no match for them.
    return tuple(
        _bet(guards, batch, index, drop, bar) if index in batch else replace(guard, seen=None)
        for index, guard in enumerate(guards)
    )


def _bet(guards: tuple[GuardrailEvidence, ...], batch: Batch, index: int, drop: float, bar: Bars) -> GuardrailEvidence:
    guard, mine, base = guards[index], batch[index], batch.get(0, NONE)
    fine, worse = guard.fine, guard.worse
    if index:
        arm, stable = expected(Pair(guard.judged, guards[0].judged))
        fine = min(fine + log_e(mine, base, arm, stable, -drop), bar.fine + CREDIT)
        worse += log_e(base, mine, stable, arm, drop)
    judged, seen = guard.judged.plus(mine), (guard.seen or NONE).plus(mine)
    return replace(guard, judged=judged, seen=seen, fine=fine, worse=worse)


def standing(guard: GuardrailEvidence, bar: Bars) -> str:
    """`holds`, `broken` or `unproven`."""
    if guard.worse >= bar.worse:
        return "broken"
    return "holds" if guard.fine >= bar.fine else "unproven"
