"""The condition Anomalous of a TrainingJob or LearningAgent, and the event when it turns."""

from collections.abc import Iterable, Mapping
from typing import Any

from learnloop_operator.core.anomalies.scale_free_rules import LEAST, ReturnAnomalies
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition
from learnloop_operator.core.plan import Manifest, Notice

TYPE = "Anomalous"
QUIET, TOO_FEW, LITERAL = "Quiet", "TooFewEpisodes", "FixedThresholdsOnly"

CALM = "no sudden drop, no instability, no slow decline"
WHY_FIXED = "They also do so for negative returns and for returns that rise"


def judged(
    watched: Mapping[str, ReturnAnomalies], before: Iterable[Mapping[str, Any]], generation: int
) -> list[dict[str, Any]]:
    """The condition, from what was found of each subject ("" for a run itself, else "revision …"); none where nothing
    was looked at. Its message stays as it is while the reason does: moving figures are not written.
    """
    if not watched:
        return []
    status, reason, message = _verdict(watched)
    old = next((item for item in before if item["type"] == TYPE), None)
    if old is not None and (old["status"], old["reason"]) == (status, reason):
        message = str(old.get("message", message))
    return [condition(TYPE, status, reason, message[:1024], generation)]


def news(before: Mapping[str, Any], after: Manifest) -> tuple[Notice, ...]:
    """An event when an anomaly was found, and when it is over."""
    old, new = _held(before), _held(after)
    if new.get("status") == TRUE and old.get("reason") != new["reason"]:
        return (Notice("Warning", new["reason"], new["message"]),)
    if old.get("status") == TRUE and new.get("status") == FALSE:
        return (Notice("Normal", "AnomalyOver", f"{old['reason']} is over: {new['message']}"[:1024]),)
    return ()


def _verdict(watched: Mapping[str, ReturnAnomalies]) -> tuple[Any, str, str]:
    for subject, result in watched.items():
        if result.findings:
            first = result.findings[0]
            others = "".join(f"; {item.anomaly}: {item.sentence}" for item in result.findings[1:])
            literal = f"; the specification's fixed thresholds: {', '.join(result.literal)}" if result.literal else ""
            return TRUE, first.anomaly, f"{_of(subject)}{first.sentence}{others}{literal}"
    enough = [result for result in watched.values() if result.returns >= LEAST]
    if not enough:
        most = max(result.returns for result in watched.values())
        return UNKNOWN, TOO_FEW, f"fewer than {LEAST} episodes can be looked at ({most} when this was written)"
    sentence = sorted({text for result in watched.values() for text in result.literal})
    if sentence:
        return (
            FALSE,
            LITERAL,
            f"{CALM}; only the specification's fixed thresholds report: {', '.join(sentence)}. {WHY_FIXED}",
        )
    return FALSE, QUIET, CALM


def _of(subject: str) -> str:
    return f"{subject}: " if subject else ""


def _held(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions") or () if item["type"] == TYPE), {})
