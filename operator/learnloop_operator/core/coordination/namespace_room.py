"""Have all pods of a gang room in their namespace? Asked before one of them is made: half a gang waits for ever.

The API server admits pods one by one against ResourceQuotas (https://kubernetes.io/docs/concepts/policy/resource-quotas).
This reckons as it does, with requests and limits as LimitRanges fill them in. What webhooks add to a pod, only the API
server can say: `RoomReader.admitted` asks it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from learnloop_operator.core.coordination.pod_needs import DEMANDED, asks_nothing, needs_of
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.quantities import quantity, text

_SHORT = {
    "cpu": "requests.cpu",
    "memory": "requests.memory",
    "ephemeral-storage": "requests.ephemeral-storage",
    "count/pods": "pods",
}


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that are all the same.

    Attributes:
        pod: core/v1 PodSpec.
        count: how many.
        objects: what is made beside them, one of each, by the names that quotas have for it: `count/jobs.batch`.
    """

    pod: Manifest
    count: int
    objects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceRoom:
    """What bounds the pods of a namespace."""

    quotas: tuple[Manifest, ...] = ()
    """core/v1 ResourceQuotas."""
    limit_ranges: tuple[Manifest, ...] = ()
    """core/v1 LimitRanges."""
    promised: tuple[PodGroup, ...] = ()
    """Pods of other gangs that are being made, and that no quota counts yet."""
    refused: str = ""
    """Why the API server would not take one such pod now, in its words about a quota."""

    def lacks(self, wanted: PodGroup) -> str:
        """Why not all of them can be made, with the quota and its figures; "" where they can."""
        for quota in sorted(self.quotas, key=lambda item: str(item["metadata"]["name"])):
            if self._counts(quota, wanted.pod) and (why := self._lacks(quota, wanted)):
                return why
        return self.refused

    def _lacks(self, quota: Manifest, wanted: PodGroup) -> str:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        used = status.get("used") or {}
        each = needs_of(wanted.pod, self.limit_ranges)
        others: Counter[str] = Counter()
        for group in self.promised:
            if self._counts(quota, group.pod):
                others.update(group.objects)
                for resource, amount in needs_of(group.pod, self.limit_ranges).items():
                    others[resource] += amount * group.count  # type: ignore[assignment]
        for said, limit in sorted(hard.items()):
            resource, most = _SHORT.get(said, said), quantity(limit)
            if resource in DEMANDED and resource not in each:
                part, kind = resource.split(".")
                return (
                    f"ResourceQuota {name} bounds {said}, so each pod must name it: set "
                    f"spec.pod.resources.{part}.{kind}, or a LimitRange of the namespace that fills it in"
                )
            made_once = said in wanted.objects
            if most is None or not (made_once or each.get(resource)):
                continue
            asked = Decimal(1) if made_once else each[resource] * wanted.count
            taken = quantity(used.get(said, 0)) or Decimal(0)
            if taken + others[resource] + asked <= most:
                continue
            told = f"ResourceQuota {name}: {text(taken)} of {limit} {said} are used"
            told += f", {text(Decimal(others[resource]))} are promised to gangs that begin" if others[resource] else ""
            told += ", and 1 more is needed" if made_once else f", and {wanted.count} pods ask for {text(asked)}"
            return f"{told}, which is more than it ever has: ask for less, or raise it" if asked > most else told
        return ""

    def _counts(self, quota: Manifest, pod: Manifest) -> bool:
        """Does the quota count such pods at all? By its scopes."""
        spec = quota.get("spec") or {}
        scoped: list[Mapping[str, Any]] = [
            {"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()
        ]
        scoped += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
        return all(_matches(item, pod, best_effort=asks_nothing(pod, self.limit_ranges)) for item in scoped)


def _matches(scope: Mapping[str, Any], pod: Manifest, *, best_effort: bool) -> bool:
    ends = pod.get("activeDeadlineSeconds") is not None
    priority = pod.get("priorityClassName")
    match scope.get("scopeName"):
        case "Terminating":
            return ends
        case "NotTerminating":
            return not ends
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            listed = priority in (scope.get("values") or ())
            chosen = {"In": listed, "NotIn": not listed, "Exists": bool(priority), "DoesNotExist": not priority}
            return chosen.get(str(scope.get("operator")), False)
    return False
