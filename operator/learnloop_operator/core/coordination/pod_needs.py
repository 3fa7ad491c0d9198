"""What a pod asks for, as a ResourceQuota counts it.

Source: Kubernetes' resource helpers and pod evaluator (https://kubernetes.io/docs/concepts/policy/resource-quotas,
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers#resource-sharing-within-containers).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.quantities import quantity

Needs = Mapping[str, Decimal]
"""By the names of a quota: `requests.cpu`, `limits.memory`, `pods`."""
DEMANDED = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Where a quota bounds one of these, each container must name it, or the pod as a whole."""


def needs_of(pod: Manifest, ranges: Sequence[Manifest]) -> Needs:
    """Of one pod.

    Args:
        pod: core/v1 PodSpec.
        ranges: core/v1 LimitRanges of its namespace, which fill in what it does not say.

    Returns:
        What counts. One of DEMANDED is missing where some container does not name it.
    """
    containers = [_of_container(item, ranges) for item in pod.get("containers") or ()]
    total, before, sidecars = _sum(*containers), dict[str, Decimal](), dict[str, Decimal]()
    everyone = list(containers)
    for item in pod.get("initContainers") or ():
        needs = _of_container(item, ranges)
        everyone.append(needs)
        # A sidecar stays; whatever else comes before the containers runs alone, beside the sidecars begun so far.
        if item.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, needs)
            before = _most(before, sidecars)
        else:
            before = _most(before, _sum(sidecars, needs))
    found = _most(_sum(total, sidecars), before)
    whole = _named(pod.get("resources") or {})
    if whole:
        found = {**dict.fromkeys(DEMANDED, Decimal(0)), **found, **whole}
    else:
        found = {name: amount for name, amount in found.items() if name not in DEMANDED or _all_name(everyone, name)}
    overhead = {name: quantity(amount) or Decimal(0) for name, amount in (pod.get("overhead") or {}).items()}
    for name, amount in overhead.items():
        for part in ("requests", "limits"):
            if found.get(f"{part}.{name}") or part == "requests":
                found[f"{part}.{name}"] = found.get(f"{part}.{name}", Decimal(0)) + amount
    return {**found, "pods": Decimal(1)}


def asks_nothing(pod: Manifest, ranges: Sequence[Manifest]) -> bool:
    """No container asks for CPU or memory: the pod is of the class BestEffort, whatever devices it has."""
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    named = [_named(pod.get("resources") or {}), *(_of_container(item, ranges) for item in containers)]
    return not any(needs.get(name) for needs in named for name in DEMANDED)


def _all_name(containers: Sequence[Needs], name: str) -> bool:
    return bool(containers) and all(name in item for item in containers)


def _sum(*several: Needs) -> dict[str, Decimal]:
    names = {name for item in several for name in item}
    return {name: sum((item.get(name, Decimal(0)) for item in several), Decimal(0)) for name in names}


def _most(left: Needs, right: Needs) -> dict[str, Decimal]:
    return {name: max(left.get(name, Decimal(0)), right.get(name, Decimal(0))) for name in {*left, *right}}


def _of_container(container: Manifest, ranges: Sequence[Manifest]) -> Needs:
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
    return _named({"requests": requests, "limits": limits})


def _named(resources: Mapping[str, Any]) -> dict[str, Decimal]:
    """core/v1 ResourceRequirements by the names of a quota."""
    limits = resources.get("limits") or {}
    requests = {**limits, **(resources.get("requests") or {})}
    found = {f"requests.{name}": quantity(amount) for name, amount in requests.items()}
    found |= {f"limits.{name}": quantity(amount) for name, amount in limits.items()}
    return {name: amount for name, amount in found.items() if amount is not None}
