"""metav1.Condition arithmetic: a transition time moves only when the status does."""

from collections.abc import Iterable, Mapping
from typing import Any

from learnloop_operator.core.plan import BaseSnapshot

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


def find(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """The condition of this type; empty without one."""
    return next((item for item in status.get("conditions") or () if item.get("type") == type_), {})


BRIEF = 30
"""Characters of a sentence that fit a line of `kubectl get` of 120 characters."""


def brief(status: Mapping[str, Any]) -> str | None:
    """Beginning of Ready's message; None without it."""
    message = find(status, "Ready").get("message", "")
    return (message if len(message) <= BRIEF else f"{message[: BRIEF - 1].rstrip()}…") or None


def condition(type_: str, status: str | bool | None, reason: str, message: str, generation: int) -> dict[str, Any]:
    """A condition without its transition time, which `merge` adds. `status=None` is Unknown."""
    return {
        "type": type_,
        "status": UNKNOWN if status is None else str(status),
        "reason": reason,
        "message": message[:32768],
        "observedGeneration": generation,
    }


def merge(before: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]], now: str) -> list[dict[str, Any]]:
    """`wanted` with transition times: the old one where the status is unchanged, `now` (RFC 3339) elsewhere.

    Types that are not wanted any more disappear; the order is that of `wanted`, so equal worlds give equal lists.
    """
    old = {item["type"]: item for item in before}
    merged = []
    for item in wanted:
        previous = old.get(item["type"])
        unchanged = previous is not None and previous.get("status") == item["status"]
        time = previous["lastTransitionTime"] if unchanged and previous else now
        merged.append({**item, "lastTransitionTime": time})
    return merged


def ready_triplet(
    snapshot: BaseSnapshot, reason: str, message: str, *, ready: bool | None, progressing: bool, stalled: bool = False
) -> list[dict[str, Any]]:
    """Ready, Reconciling and Stalled as kstatus reads them: what is stalled is Failed unless it is Reconciling."""
    states = {"Ready": ready, "Reconciling": progressing and not stalled, "Stalled": stalled}
    return [condition(type_, state, reason, message, snapshot.generation) for type_, state in states.items()]
