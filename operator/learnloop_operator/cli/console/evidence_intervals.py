"""Intervals of what a rollout's tests have compared, by the operator's own arithmetic."""

from collections.abc import Sequence
from contextlib import suppress

from learnloop_operator.cli.access.cluster import Object
from learnloop_operator.cli.text.aligned_rows import status as status_of
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.interval import mean_interval

ALPHA = 0.05
Shown = dict[str, dict[str, list[float]]]


def evidence_intervals(rollout: Object) -> Shown:
    """By metric and arm: the mean of the compared values (0 to 1), the ends of its 95 % confidence sequence, and the
    number of episodes. Arms with none are left out, and so is what the status says in another form than it should."""
    found: Shown = {}
    for item in _listed(status_of(rollout).get("evidence")):
        # One object that another version wrote, or somebody by hand, must not take the console from all others.
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            found[str(item.get("name"))] = _of_arms(item.get("judged"))
    return found


def _listed(value: object) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _of_arms(judged: Sequence[float] | None) -> dict[str, list[float]]:
    arms = {"canary": judged[:2], "stable": judged[2:]} if judged and len(judged) == 4 else {}
    return {arm: [total / n, *mean_interval(Counts(n, total), ALPHA), n] for arm, (n, total) in arms.items() if n > 0}
