"""metav1.Condition arithmetic: a transition time moves only when the status does."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

TRUE: Literal["True"] = "True"
FALSE: Literal["False"] = "False"
UNKNOWN: Literal["Unknown"] = "Unknown"


def condition(
    type_: str, status: Literal["True", "False", "Unknown"], reason: str, message: str, generation: int
) -> dict[str, Any]:
    """A condition without its transition time; `merge` adds it."""
    return {
        "type": type_,
        "status": status,
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
    *, ready: bool | None, progressing: bool, stalled: bool, reason: str, message: str, generation: int
) -> list[dict[str, Any]]:
    """Ready, Reconciling and Stalled as kstatus reads them; `ready=None` is Unknown."""
    status = UNKNOWN if ready is None else TRUE if ready else FALSE
    return [
        condition("Ready", status, reason, message, generation),
        condition("Reconciling", TRUE if progressing else FALSE, reason, message, generation),
        condition("Stalled", TRUE if stalled else FALSE, reason, message, generation),
    ]
