"""Have all pods of a gang room in their namespace? Asked before one of them is made: half a gang waits for ever.

The API server admits pods one by one against ResourceQuotas (https://kubernetes.io/docs/concepts/policy/resource-quotas).
This reckons as it does, with requests and limits as LimitRanges fill them in.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.quantities import quantity, text
from learnloop_operator.tuning.value_objects import value

Needs = Mapping[str, Decimal]
"""By the names of a quota: `requests.cpu`, `limits.memory`, `pods`."""
_SHORT = {
    "cpu": "requests.cpu",
    "memory": "requests.memory",
    "ephemeral-storage": "requests.ephemeral-storage",
    "count/pods": "pods",
}
_DEMANDED = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Where a quota bounds one of these, each container must name it."""


@value
class PodGroup:
    """Pods that are all the same.

    Attributes:
        pod: core/v1 PodSpec.
        count: how many.
    """

    pod: Manifest
    count: int


@value
class NamespaceRoom:
    """What bounds the pods of a namespace."""

    quotas: tuple[Manifest, ...] = ()
    """core/v1 ResourceQuotas."""
    limit_ranges: tuple[Manifest, ...] = ()
    """core/v1 LimitRanges."""
    promised: tuple[PodGroup, ...] = ()
    """Pods of other gangs that are being made, and that no quota counts yet."""

    def lacks(self, wanted: PodGroup) -> str:
        """Why not all of them can be made, with the quota and its figures; "" where they can."""
        for quota in sorted(self.quotas, key=lambda item: str(item["metadata"]["name"])):
            if _counts(quota, wanted.pod) and (why := self._lacks(quota, wanted)):
                return why
        return ""

    def _lacks(self, quota: Manifest, wanted: PodGroup) -> str:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        used = status.get("used") or {}
        each = self._needs(wanted.pod)
        others: Counter[str] = Counter()
        for group in self.promised:
            if _counts(quota, group.pod):
                for resource, amount in self._needs(group.pod).items():
                    others[resource] += amount * group.count  # type: ignore[assignment]
        for said, limit in sorted(hard.items()):
            resource, most = _SHORT.get(said, said), quantity(limit)
            if resource in _DEMANDED and resource not in each:
                part, kind = resource.split(".")
                return (
                    f"ResourceQuota {name} bounds {said}, so each pod must name it: set "
                    f"spec.pod.resources.{part}.{kind}, or a LimitRange of the namespace that fills it in"
                )
            if most is None or not each.get(resource):
                continue
            asked, taken = each[resource] * wanted.count, quantity(used.get(said, 0)) or Decimal(0)
            if taken + others[resource] + asked <= most:
                continue
            told = f"ResourceQuota {name}: {text(taken)} of {limit} {said} are used"
            told += f", {text(Decimal(others[resource]))} are promised to gangs that begin" if others[resource] else ""
            told += f", and {wanted.count} pods ask for {text(asked)}"
            return f"{told}, which is more than it ever has: ask for less, or raise it" if asked > most else told
        return ""

    def _needs(self, pod: Manifest) -> Needs:
        ready = [_filled(item, self.limit_ranges) for item in pod.get("containers") or ()]
        before = [_filled(item, self.limit_ranges) for item in pod.get("initContainers") or ()]
        names = set.intersection(*(set(item) for item in ready)) if ready else set()
        extended = {name for item in ready for name in item if name not in _DEMANDED}
        found = {name: sum((item.get(name, Decimal(0)) for item in ready), Decimal(0)) for name in names | extended}
        for item in before:  # one after the other, before the others begin
            found = {name: max(amount, item.get(name, Decimal(0))) for name, amount in found.items()}
        return {**found, "pods": Decimal(1)}


def _filled(container: Manifest, ranges: Sequence[Manifest]) -> Needs:
    """Requests and limits as the API server will have them: a limit is a request where there is none, and a LimitRange
    fills in what is missing."""
    resources = container.get("resources") or {}
    limits = dict(resources.get("limits") or {})
    requests = {**limits, **(resources.get("requests") or {})}
    for bounds in ranges:
        for item in (bounds.get("spec") or {}).get("limits") or ():
            if item.get("type") == "Container":
                limits = {**(item.get("default") or {}), **limits}
                requests = {**(item.get("default") or {}), **(item.get("defaultRequest") or {}), **requests}
    found = {f"requests.{name}": quantity(amount) for name, amount in requests.items()}
    found |= {f"limits.{name}": quantity(amount) for name, amount in limits.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def _counts(quota: Manifest, pod: Manifest) -> bool:
    """Does the quota count such pods at all? By its scopes."""
    spec = quota.get("spec") or {}
    scoped: list[Mapping[str, Any]] = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scoped += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_matches(item, pod) for item in scoped)


def _matches(scope: Mapping[str, Any], pod: Manifest) -> bool:
    ends = pod.get("activeDeadlineSeconds") is not None
    best_effort = not any((item.get("resources") or {}) for item in pod.get("containers") or ())
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
