"""When to look again at what may not change for long: ever more seldom.

The operator watches a Deployment's status, so it sees when it becomes ready. What a pod says of itself (no
image, not schedulable, why it crashed) has to be asked for. The operator asks soon in the beginning, when a person is
looking on, and ever more seldom of pods that will not start. A thousand such objects must not cost what a thousand
rollouts do.
"""

from datetime import datetime

from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.times import seconds_since

SOONEST, LATEST = 5.0, 60.0
SHARE = 0.1
"""Share of the time that it has waited already. The operator learns of the end at most that share too late."""


def ever_later(seconds: float, soonest: float, latest: float) -> float:
    """Seconds until the next look at what has not changed for `seconds`."""
    return min(latest, max(soonest, SHARE * seconds))


def next_look(since: str | None, now: datetime, latest: float = LATEST) -> float:
    """Seconds until the next look at pods that have not been ready since then; None: since just now."""
    return ever_later(seconds_since(since, now), SOONEST, latest)


def unready_since(deployment: Manifest | None) -> str | None:
    """Since when a Deployment has had too few ready pods, as its condition Available tells (apps/v1
    DeploymentCondition), or since it was made where the condition is missing. None where it has enough, or unknown."""
    if deployment is None:
        return None
    result: str | None = deployment["metadata"].get("creationTimestamp")
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Available":
            result = condition.get("lastTransitionTime") if condition.get("status") == "False" else None
    return result
