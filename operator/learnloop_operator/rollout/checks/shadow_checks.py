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
    if bars.min_return_ratio is not None:
        result.append(_estimate(bars, bars.min_return_ratio, seen))
    return result


def summary(bars: ShadowCheck, seen: ShadowEvidence) -> ShadowStatus:
    """The figures for people; the estimate stays silent below its effective sample size."""
    answered = seen.compared + seen.errors
    slow = _slow(bars, seen)
    speaks = seen.episodes > 0.0 and seen.effective >= bars.min_effective_episodes
    around = seen.interval() if speaks else None
    result = ShadowStatus(
        requests=int(seen.compared + 1e-6),
        agreement=_share(seen.agreed, seen.compared),
        error_rate=_share(seen.errors, answered),
        slow_rate=_share(slow.total, slow.n) if slow else None,
        estimated_return=_round(seen.weighted_return / seen.weight) if speaks else None,
        estimated_low=_round(around[0]) if around else None,
        estimated_high=_round(around[1]) if around else None,
        stable_return=_round(seen.stable_return / seen.episodes) if speaks else None,
        effective_episodes=round(seen.effective, 1),
        message="",
    )
    return result.model_copy(update={"message": _sentence(bars, seen, result)})


def _sentence(bars: ShadowCheck, seen: ShadowEvidence, found: ShadowStatus) -> str:
    parts = [f"{found.requests} requests compared"]
    if found.agreement is not None:
        parts.append(f"agreement {found.agreement:.1%}")
    if found.error_rate is not None:
        parts.append(f"errors {found.error_rate:.1%}")
    if found.slow_rate is not None:
        parts.append(f"slower than {number(bars.max_latency_seconds or 0.0)} s {found.slow_rate:.1%}")
    if seen.lost >= 1.0:
        parts.append(f"{int(seen.lost)} copies lost on the way")
    size = f"effective sample size {number(seen.effective)}"
    if found.estimated_return is not None and found.stable_return is not None:
        value, base = number(found.estimated_return), number(found.stable_return)
        low, high = found.estimated_low, found.estimated_high
        around = f" [{number(low)}, {number(high)}]" if low is not None and high is not None else ""
        parts.append(f"estimated return {value}{around} vs {base} of stable ({size} of {int(seen.episodes)} episodes)")
    else:
        parts.append(f"no estimate of its return ({size}, needs {bars.min_effective_episodes})")
    return ", ".join(parts)


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


def _estimate(bars: ShadowCheck, ratio: float, seen: ShadowEvidence) -> Check:
    """An estimate lets a step pass or hold; it proves nothing, so it never rolls a canary back."""
    if seen.effective < bars.min_effective_episodes or seen.weight <= 0.0 or seen.episodes <= 0.0:
        return Check(Verdict.HOLD, f"an effective sample size of {bars.min_effective_episodes}")
    value, base = seen.weighted_return / seen.weight, seen.stable_return / seen.episodes
    bar = base + (ratio - 1.0) * abs(base)
    if not (math.isfinite(value) and value >= bar):
        return Check(Verdict.HOLD, f"an estimated return of at least {number(bar)}")
    return Check(Verdict.PASS, f"estimated return {number(value)}")


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


def _round(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None
