"""A shadow step: the canary gets copies of live requests, and its answers go to no user."""

import math

from learnloop_api.kinds.rollouts.gates import ShadowCheck, ShadowStatus
from learnloop_api.wire.routing import Mirror
from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import Check, ShadowEvidence, Verdict, lost, number, untimely
from learnloop_operator.rollout.judging import judgement, release_gates, watched_arms
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.statistics.e_values import Counts, mean_interval

SLOW_SHARE = 0.01
"""Share of copies that may take longer than maxLatencySeconds."""


def shadow_of(snapshot: Snapshot, state: State) -> ShadowCheck | None:
    """The bars of the shadow step the rollout is at."""
    if state.canary is None or state.step is None or state.weight or release_gates.canary_waits(snapshot, state):
        return None
    return snapshot.spec.rollout.steps[state.step].shadow


def mirror_for(snapshot: Snapshot, state: State) -> Mirror | None:
    """The mirror entry of the routing table."""
    bars = shadow_of(snapshot, state)
    if bars is None or state.canary is None:
        return None
    return Mirror(revision=state.canary.revision, percent=bars.percent, max_distance=bars.max_distance)


def only_stable_answers(snapshot: Snapshot, state: State) -> bool:
    """Whether the canary's pods must stay out of the address that users know: before and in its shadow steps."""
    if state.canary is None or state.weight:
        return False
    steps = snapshot.spec.rollout.steps
    return steps[state.step if state.step is not None else 0].shadow is not None


def judge_shadow(snapshot: Snapshot, state: State, bars: ShadowCheck) -> judgement.Judgement:
    """Weigh what the copies have shown. Missing data holds."""
    if snapshot.evidence.unavailable:
        return judgement.Judgement(
            hold=f"no evidence: {snapshot.evidence.unavailable}", hold_reason=snapshot.evidence.reason
        )
    if seconds_since(state.step_started_at, snapshot.now) < watched_arms.SHORTEST:
        text = f"evidence counts from {watched_arms.SHORTEST:.0f} s after the step's start on"
        return judgement.Judgement(hold=text)
    counted = snapshot.evidence.shadow or ShadowEvidence()
    if counted.broken:
        return judgement.Judgement(hold=counted.broken, hold_reason=reasons.NOT_A_NUMBER)
    result = checks(bars, counted, snapshot.spec.analysis.alpha)
    breach = "; ".join(item.sentence for item in result if item.verdict is Verdict.BREACH)
    if late := untimely(snapshot.evidence.clock, counted.scraped_at, snapshot.now, "the canary"):
        return judgement.Judgement(breach=breach, hold=late.text, hold_reason=late.reason)
    if torn := lost(counted.gap, "the canary"):
        return judgement.Judgement(breach=breach, hold=torn.text, hold_reason=torn.reason)
    missing = [item.sentence for item in result if item.verdict is Verdict.HOLD]
    if counted.compared < bars.min_requests:
        missing.insert(0, f"{bars.min_requests} compared requests")
    message = figures(snapshot, state)
    text = message.message if message else ""
    hold = f"{text}; waiting for {', '.join(missing)}" if missing else ""
    reason = reasons.NOT_ENOUGH_DATA if snapshot.evidence.shadow else reasons.EMPTY_RESULT
    return judgement.Judgement(breach=breach, hold=hold, passed=text, hold_reason=reason)


def figures(snapshot: Snapshot, state: State) -> ShadowStatus | None:
    """The figures to show: those on record where none is known now; none once another rollout has begun."""
    before, counted = snapshot.before, snapshot.evidence.shadow
    old = before.shadow if before.rollout_started_at == state.rollout_started_at else None
    bars = _looked_at(snapshot)
    if bars is None or counted is None or counted.broken or snapshot.evidence.unavailable:
        return old
    if seconds_since(before.step_started_at, snapshot.now) < watched_arms.SHORTEST:
        return old
    return summary(bars, counted)


def _looked_at(snapshot: Snapshot) -> ShadowCheck | None:
    """The bars of the shadow step that this pass has evidence of."""
    before, steps = snapshot.before, snapshot.spec.rollout.steps
    if before.canary is None or before.step is None or before.weight:
        return None
    return steps[min(before.step, len(steps) - 1)].shadow


# Checks of the copies, against each bar of the step.
#
# Confidence sequences judge rates. A bar is breached when the rate is certainly beyond it, however often one looks, and
# met when the rate itself is within it. In between the step holds. Copies of one episode hang together: for confidence
# they count as one outcome.


BARS = 3
"""Errors, latency and agreement share the error budget."""


def checks(bars: ShadowCheck, evidence: ShadowEvidence, alpha: float) -> list[Check]:
    """Every bar that is set, errors first."""
    share, most = alpha / BARS, _independent(bars, evidence)
    errors = Counts(evidence.compared + evidence.errors, evidence.errors)
    result = [_at_most("error rate", errors, bars.max_error_rate, share, most)]
    slow = _slow(bars, evidence)
    if slow is not None:
        text = f"share slower than {number(bars.max_latency_seconds or 0.0)} s"
        result.append(_at_most(text, slow, SLOW_SHARE, share, most))
    if bars.min_agreement is not None:
        result.append(_agreement(Counts(evidence.compared, evidence.agreed), bars.min_agreement, share, most))
    return result


def summary(bars: ShadowCheck, evidence: ShadowEvidence) -> ShadowStatus:
    """The figures for people."""
    slow = _slow(bars, evidence)
    result = ShadowStatus(
        requests=int(evidence.compared + 1e-6),
        agreement=_share(evidence.agreed, evidence.compared),
        error_rate=_share(evidence.errors, evidence.compared + evidence.errors),
        slow_rate=_share(slow.total, slow.n) if slow else None,
        message="",
    )
    parts = [f"{result.requests} requests compared"]
    if result.agreement is not None:
        parts.append(f"agreement {result.agreement:.1%}")
    if result.error_rate is not None:
        parts.append(f"errors {result.error_rate:.1%}")
    if result.slow_rate is not None:
        parts.append(f"slower than {number(bars.max_latency_seconds or 0.0)} s {result.slow_rate:.1%}")
    if evidence.lost >= 1.0:
        parts.append(f"{int(evidence.lost)} copies lost on the way")
    return result.model_copy(update={"message": ", ".join(parts)})


def _independent(bars: ShadowCheck, evidence: ShadowEvidence) -> float:
    """Outcomes at most: the episodes that were copied."""
    return math.inf if evidence.episodes is None else max(1.0, evidence.episodes * bars.percent / 100.0)


def _at_most(what: str, counts: Counts, most: float, alpha: float, independent: float) -> Check:
    rate = counts.total / counts.n if counts.n > 0.0 else 0.0
    text = f"{what} {rate:.1%} over {int(counts.n)} requests in shadow; bar at most {most:.1%}"
    if counts.n <= 0.0:
        return Check(Verdict.HOLD, f"{what} at most {most:.1%}")
    if mean_interval(counts.at_most(independent), alpha)[0] > most:
        return Check(Verdict.BREACH, text)
    return Check(Verdict.HOLD, f"{what} at most {most:.1%}") if rate > most else Check(Verdict.PASS, text)


def _agreement(counts: Counts, least: float, alpha: float, independent: float) -> Check:
    rate = counts.total / counts.n if counts.n > 0.0 else 0.0
    text = f"agreement {rate:.1%} over {int(counts.n)} requests in shadow; bar at least {least:.1%}"
    if counts.n > 0.0 and mean_interval(counts.at_most(independent), alpha)[1] < least:
        return Check(Verdict.BREACH, text)
    enough = counts.n > 0.0 and rate >= least
    return Check(Verdict.PASS, text) if enough else Check(Verdict.HOLD, f"agreement at least {least:.1%}")


def _slow(bars: ShadowCheck, evidence: ShadowEvidence) -> Counts | None:
    """Requests answered, and how many took longer than the bound that is next to maxLatencySeconds."""
    most = bars.max_latency_seconds
    if most is None:
        return None
    total = evidence.within.get(math.inf, 0.0)
    bound = min((bound for bound in evidence.within if bound >= most - 1e-9), default=math.inf)
    return Counts(total, max(0.0, total - evidence.within.get(bound, 0.0)))


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, max(0.0, part / whole)), 4) if whole > 0.0 else None
