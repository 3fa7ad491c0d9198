"""Judges an arm in shadow by copies of live requests, against each bar of the step.

Confidence sequences judge rates. A bar is breached when the rate is certainly beyond it, however often one looks, and
met when the rate itself is within it. In between the step holds.
"""

import math

from learnloop_api.kinds.rollouts.gates import ShadowCheck, ShadowStatus
from learnloop_operator.rollout.evidence import Check, ShadowEvidence, Verdict, number
from learnloop_operator.statistics.betting import Counts, mean_interval

SLOW_SHARE = 0.01
"""maxLatencySeconds is about 99 of 100 requests."""
BARS = 3
"""Errors, latency and agreement share the error budget."""


def checks(bars: ShadowCheck, seen: ShadowEvidence, alpha: float) -> list[Check]:
    """Every bar that is set, errors first."""
    share = alpha / BARS
    result = [_at_most("error rate", Counts(seen.compared + seen.errors, seen.errors), bars.max_error_rate, share)]
    slow = _slow(bars, seen)
    if slow is not None:
        text = f"share slower than {number(bars.max_latency_seconds or 0.0)} s"
        result.append(_at_most(text, slow, SLOW_SHARE, share))
    if bars.min_agreement is not None:
        result.append(_agreement(Counts(seen.compared, seen.agreed), bars.min_agreement, share))
    return result


def summary(bars: ShadowCheck, seen: ShadowEvidence) -> ShadowStatus:
    """The figures for people."""
    slow = _slow(bars, seen)
    result = ShadowStatus(
        requests=int(seen.compared + 1e-6),
        agreement=_share(seen.agreed, seen.compared),
        error_rate=_share(seen.errors, seen.compared + seen.errors),
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
    if seen.lost >= 1.0:
        parts.append(f"{int(seen.lost)} copies lost on the way")
    return result.model_copy(update={"message": ", ".join(parts)})


def _at_most(what: str, seen: Counts, most: float, alpha: float) -> Check:
    rate = seen.total / seen.n if seen.n > 0.0 else 0.0
    text = f"{what} {rate:.1%} over {int(seen.n)} requests in shadow; bar at most {most:.1%}"
    if seen.n <= 0.0:
        return Check(Verdict.HOLD, f"{what} at most {most:.1%}")
    if mean_interval(seen, alpha)[0] > most:
        return Check(Verdict.BREACH, text)
    return Check(Verdict.HOLD, f"{what} at most {most:.1%}") if rate > most else Check(Verdict.PASS, text)


def _agreement(seen: Counts, least: float, alpha: float) -> Check:
    rate = seen.total / seen.n if seen.n > 0.0 else 0.0
    text = f"agreement {rate:.1%} over {int(seen.n)} requests in shadow; bar at least {least:.1%}"
    if seen.n > 0.0 and mean_interval(seen, alpha)[1] < least:
        return Check(Verdict.BREACH, text)
    enough = seen.n > 0.0 and rate >= least
    return Check(Verdict.PASS, text) if enough else Check(Verdict.HOLD, f"agreement at least {least:.1%}")


def _slow(bars: ShadowCheck, seen: ShadowEvidence) -> Counts | None:
    """Requests answered, and how many took longer than the bound that is next to maxLatencySeconds."""
    most = bars.max_latency_seconds
    if most is None:
        return None
    total = seen.within.get(math.inf, 0.0)
    bound = min((bound for bound in seen.within if bound >= most - 1e-9), default=math.inf)
    return Counts(total, max(0.0, total - seen.within.get(bound, 0.0)))


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, max(0.0, part / whole)), 4) if whole > 0.0 else None
