"""Which changes of a status can wait: figures that move with every look, while nothing has been decided.

A status written at every look would be most of what a rollout costs the API server. What can wait is kept in memory
(reconcile/unwritten_statuses.py). The operator writes it with the next thing that happens, or when it has waited for
a minute, then two, then four: as long as the step had lasted. A restart forgets it, as if these looks had not been
taken. Tests go on from what was written, in one larger batch.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from learnloop_operator.core.times import seconds_since, stamp
from learnloop_operator.rollout import reasons

FIRST_WAIT = 60.0
_UNDECIDED = "undecided"
"""MetricEvidence.verdict of a test that has said nothing yet."""
_FIGURES = {"episodes", "meanReturn", "successRate"}
_FIGURES_OF_EXPERIMENT = {"episodes", "mean", "low", "high", "chanceBetter", "logBetter", "judged", "seen"}
_TOLD_LATER = {"verdict", "conditions", "evidence", "stepBaseEpisodes", "routingGeneration"}
_BUSY = {
    reasons.NOT_ENOUGH_DATA,
    reasons.EMPTY_RESULT,
    reasons.WAITING_FOR_TIME,
    reasons.STEPPING,
    reasons.EXPERIMENT_RUNNING,
    reasons.PROMOTED,
    reasons.GUARDING,
    reasons.GUARD_OVER,
    reasons.HEALTHY,
}
"""Reasons that follow one another in a rollout that goes well."""


def can_wait(written: Mapping[str, Any], wanted: Mapping[str, Any], since: datetime | None, now: datetime) -> bool:
    """Whether the status `wanted` may stay unwritten: it says what `written` says, but for figures.

    `since`: when something first stayed unwritten; None when nothing does.
    """
    if not written or _said(written) != _said(wanted):
        return False
    if since is None:
        return True
    began = wanted.get("stepStartedAt") or _experiment_began(wanted) or wanted.get("promotedAt")
    had_lasted = seconds_since(began, now) - seconds_since(stamp(since), now) if began else 0.0
    return (now - since).total_seconds() < max(FIRST_WAIT, had_lasted)


def _said(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader is told at once."""
    said = {key: value for key, value in status.items() if key not in _TOLD_LATER}
    for role in ("stable", "canary", "previous"):
        if role in said:
            said[role] = _arm(said[role], exact=role == "stable")
    said["conditions"] = sorted(_condition(item) for item in status.get("conditions") or ())
    if "experiment" in said:
        said["experiment"] = _experiment(said["experiment"])
    # A test that has begun says nothing yet: its figures are told with the others.
    tests = ((item["name"], item["verdict"]) for item in status.get("evidence") or ())
    said["evidence"] = sorted(item for item in tests if item[1] != _UNDECIDED)
    return said


def _arm(arm: Mapping[str, Any], *, exact: bool) -> dict[str, Any]:
    kept = {key: value for key, value in arm.items() if key not in _FIGURES}
    if not exact:
        kept["readyReplicas"] = bool(kept.get("readyReplicas"))
    return kept


def _experiment_began(status: Mapping[str, Any]) -> str | None:
    found = status.get("experiment") or {}
    return found.get("startedAt") if found.get("phase") != "Finished" else None


def _experiment(found: Mapping[str, Any]) -> dict[str, Any]:
    """Who is in the race, with pods, and who has won or left it; not by how much."""
    arms = [{key: value for key, value in arm.items() if key not in _FIGURES_OF_EXPERIMENT} for arm in found["arms"]]
    for arm in arms:
        arm["guardrails"] = [(item["name"], item["standing"]) for item in arm.get("guardrails") or ()]
    return {**found, "message": "", "arms": arms}


def _condition(item: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Data and the fast lane come and go with every step: only trouble with them is news."""
    kind, status, reason = str(item["type"]), str(item["status"]), str(item["reason"])
    generation = int(item.get("observedGeneration") or 0)
    if kind == reasons.DATA_AVAILABLE and (status != "Unknown" or reason not in reasons.PROVIDER):
        return kind, "", "" if reason in _BUSY or status != "False" else reason, generation
    if kind == reasons.FAST_LANE and status != "False":
        return kind, "", "", generation
    return kind, status, "" if reason in _BUSY else reason, generation
