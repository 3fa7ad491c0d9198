"""Whether the endings of arms can be compared: after each change of shares short episodes end first.

An arm that gets more episodes ends its short ones first, and one that gets fewer ends its long ones last. Where
failures are short, or successes are, such endings tell arms apart that are the same. So nothing is compared until the
longest episodes that were opened before the change have ended, as the servers' histogram of lengths has it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from learnloop_operator.rollout.checks.unfinished_episodes import lags
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.statistics.latency import quantile_of, total

LONGEST = 0.99
"""Quantile of the lengths of an arm's ended episodes that is waited for."""
STAMP = timedelta(seconds=1)
"""A change is on record in whole seconds, rounded down."""


def steady(
    subjects: Iterable[ArmEvidence | None],
    reference: ArmEvidence | None,
    since: datetime | None,
    now: datetime,
    deadline: int,
) -> bool:
    """Whether all arms end what they open at the shares that they have had `since`.

    An episode that is older than `deadline` seconds is overdue and is waited for no longer. Lengths that are unknown
    may be as long as that.
    """
    arms = [*subjects, reference]
    known = [arm for arm in arms if arm is not None]
    if since is None or len(known) < len(arms):
        return False
    lengths = [_longest(arm, deadline) for arm in known]
    seen_at = min(arm.seen_at or now for arm in known)
    waited = (seen_at - since - STAMP).total_seconds()
    behind = any(lags(arm.openings, reference) for arm in known if arm is not reference and arm.openings)
    return not behind and all(length is not None and waited >= length for length in lengths)


def _longest(arm: ArmEvidence, deadline: int) -> float | None:
    """Seconds; None while no episode has ended."""
    lasted = arm.openings.lasted if arm.openings else {}
    if not lasted:
        return float(deadline)
    length = quantile_of(lasted, LONGEST) if total(lasted) >= 1.0 else None
    return None if length is None else min(length, float(deadline))
