"""Episodes that were opened and do not end: of a policy that hangs, the survivors alone would be judged.

Two questions, both paired with stable. May a step pass? The canary's share of ended episodes must be at least half of
stable's share, and no more may be open than can just have begun. Is the canary to be rolled back? When the share of its
overdue episodes is beyond `maxOverdue` for certain. An episode is overdue that was opened longer ago than the deadline
and has not ended.

`due - (closed - young)` never overstates what is overdue: more episodes may have ended that were opened later. What
stable leaves open, and what it ends later than the deadline, is excused: agents that give up, and a deadline that is
too short, meet both arms. Both of stable's shares are taken at their largest, so that identical arms differ in the
canary's favour.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import error_budget, metric_types
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Openings, Verdict, hold, lost, number
from learnloop_operator.statistics import e_values, latency

LEAST_OF_STABLES_SHARE = 0.5
"""A step passes when the canary has ended this part of the share that stable has ended."""
FEWEST = 5.0
"""So many overdue episodes at least: a few are lost with the agents that played them."""


def unfinished(
    analysis: Analysis,
    candidate: ArmEvidence | None,
    reference: ArmEvidence | None,
    candidate_name: str,
    reference_name: str,
    passing: float | None = None,
    stale: float = 0.0,
    arms: int = 1,
) -> Check | None:
    """Judges opened episodes; None where nothing speaks against the arm.

    `passing`: a step may pass now, which began so many seconds ago; None: none may. `stale`: as in `may_hang`. `arms`:
    that are asked, and share what may be erred with.
    """
    own = candidate.openings if candidate else None
    if candidate is None or own is None or own.opened <= 0.0 or lost(candidate.gap, candidate_name):
        return None
    excused = _excused(reference)
    if excused is not None and (result := _overdue(own, excused, analysis, arms, candidate_name, reference_name)):
        return result
    if passing is None:
        return None
    if not lags(own, reference):
        text = may_hang(analysis, candidate, reference, passing, stale)
        return hold(f"episodes: {candidate_name}: {text}", reasons.EPISODES_UNFINISHED) if text else None
    due = _expected(own, reference)
    text = (
        f"episodes: {candidate_name} has ended {own.closed:.0f} of {own.opened:.0f} that were opened, "
        f"{due:.0f} needed compared with {reference_name}"
    )
    return hold(text, reasons.EPISODES_UNFINISHED)


def may_hang(
    analysis: Analysis, candidate: ArmEvidence | None, reference: ArmEvidence | None, seconds: float, stale: float = 0.0
) -> str | None:
    """A sentence while more of the episodes that an arm opened in `seconds` are open than a guard may end with.

    Those of the last seconds are left out, as many as the longest episodes of either arm take: they have just begun.
    So are those of `stale` seconds more, since the arm was scraped. None where too little is known: missing data keeps
    no guard.
    """
    own, excused = candidate.openings if candidate else None, _excused(reference)
    if candidate is None or reference is None or own is None or excused is None or candidate.gap:
        return None
    lengths = [_longest(arm, analysis.episode_deadline_seconds) or 0.0 for arm in (candidate, reference)]
    fresh = own.opened * min(1.0, (max(lengths) + stale) / max(seconds, 1.0))
    overdue = own.opened - own.closed - fresh
    if overdue < FEWEST or overdue <= (excused + analysis.max_overdue) * own.opened:
        return None
    return (
        f"{own.opened - own.closed:.0f} of {own.opened:.0f} episodes that it got have not ended, and most others "
        f"ended within {max(lengths):.0f} s"
    )


def lags(own: Openings, reference: ArmEvidence | None) -> bool:
    """Whether an arm has ended less than half of the share of its openings that the reference has ended of its own."""
    return own.closed < _expected(own, reference)


def _expected(own: Openings, reference: ArmEvidence | None) -> float:
    return own.opened * (1.0 - (_excused(reference) or 0.0)) * LEAST_OF_STABLES_SHARE


def _excused(reference: ArmEvidence | None) -> float | None:
    """The share of its openings that the reference leaves open or ends late; None where that is unknown."""
    openings = reference.openings if reference and not reference.gap else None
    return min(1.0, openings.open_share + openings.late_share) if openings else None


def _overdue(
    own: Openings, excused: float, analysis: Analysis, arms: int, candidate_name: str, reference_name: str
) -> Check | None:
    due, bar = own.due, excused + analysis.max_overdue
    overdue = min(due, max(0.0, due - (own.closed - own.young)))
    if overdue < FEWEST or bar >= 1.0 or overdue <= bar * due:
        return None
    alpha = error_budget.alpha_of_unfinished(analysis, arms)
    least = e_values.mean_interval(e_values.Counts(due, overdue), alpha)[0]
    text = (
        f"episodes: {overdue:.0f} of {due:.0f} that {candidate_name} got more than {analysis.episode_deadline_seconds} "
        f"s ago have not ended; bar {number(analysis.max_overdue)} beyond the {number(excused)} of {reference_name}"
    )
    sure = f"certainly at least {number(least)} ({metric_types.level_text(alpha)})"
    if least > bar:
        return Check(Verdict.BREACH, f"{text}; {sure}")
    return hold(f"{text}, undecided: {sure}", reasons.EPISODES_UNFINISHED)


# Whether the endings of arms can be compared: after each change of shares short episodes end first.
#
# An arm that gets more episodes ends its short ones first, and one that gets fewer ends its long ones last. Where
# failures are short, or successes are, such endings tell arms apart that are the same. So nothing is compared until the
# longest episodes that were opened before the change have ended, as the servers' histogram of lengths has it.


LONGEST = 0.99
"""Quantile of the lengths of an arm's ended episodes that is waited for."""
STAMP = timedelta(seconds=1)
"""A change is on record in whole seconds, rounded down."""


def steady(
    candidates: Iterable[ArmEvidence | None],
    reference: ArmEvidence | None,
    since: datetime | None,
    now: datetime,
    deadline: int,
) -> bool:
    """Whether all arms end what they open at the shares that they have had `since`.

    An episode that is older than `deadline` seconds is overdue and is waited for no longer. Lengths that are unknown
    may be as long as that.
    """
    arms = [*candidates, reference]
    recorded = [arm for arm in arms if arm is not None]
    if since is None or len(recorded) < len(arms):
        return False
    lengths = [_longest(arm, deadline) for arm in recorded]
    scraped_at = min(arm.scraped_at or now for arm in recorded)
    waited = (scraped_at - since - STAMP).total_seconds()
    behind = any(lags(arm.openings, reference) for arm in recorded if arm is not reference and arm.openings)
    return not behind and all(length is not None and waited >= length for length in lengths)


def _longest(arm: ArmEvidence, deadline: int) -> float | None:
    """Seconds; None while no episode has ended."""
    lasted = arm.openings.lasted if arm.openings else {}
    if not lasted:
        return float(deadline)
    length = latency.quantile_of(lasted, LONGEST) if latency.total(lasted) >= 1.0 else None
    return None if length is None else min(length, float(deadline))
