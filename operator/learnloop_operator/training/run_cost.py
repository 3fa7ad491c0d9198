"""Cost of a run: the CPU and GPU time that its pods reserved, and money where the installation names prices.

Each count adds the time of live pods since the count before. The sum and its moment are one write of the status, so an
operator that dies counts nothing twice, and its successor goes on from there.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel, to_snake

from learnloop_api.wire import training_request
from learnloop_operator.core import plan, times

_GPU = re.compile(r"/gpu$|^nvidia\.com/mig-|^gpu\.intel\.com/")
"""Extended resources that are GPUs or, each counted as one, slices of them."""
EVERY = timedelta(minutes=1)
"""Between two counts of pods that neither end nor change phase: a rank that only waits costs few writes."""
DIGITS = 6
Price = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of the installation."""

    __pydantic_config__ = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    cpu_hour: Price
    gpu_hour: Price
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]

    def of(self, cpu_hours: float, gpu_hours: float) -> float:
        return cpu_hours * self.cpu_hour + gpu_hours * self.gpu_hour


@dataclass(frozen=True, slots=True)
class Reserved:
    """CPUs and GPUs that a pod keeps from others, from when its node took it until its last container ended."""

    cpus: float
    gpus: float
    since: datetime
    until: datetime | None

    def hours(self, after: datetime | None, now: datetime) -> float:
        last = now if self.until is None else min(now, self.until)
        return max(0.0, (last - max(after or self.since, self.since)).total_seconds()) / 3600.0


def reserved(pod: plan.KubeObject) -> Reserved | None:
    """By the pod's requests; None for one that no node has taken."""
    status = pod.get("status") or {}
    since = times.parse(status.get("startTime"))
    if since is None:
        return None
    cpus, gpus = 0.0, 0.0
    spec = pod.get("spec") or {}
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        resources = container.get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            amount = float(plan.quantity(value) or 0)
            cpus += amount if name == "cpu" else 0.0
            gpus += amount if _GPU.search(name) else 0.0
    ends = [(item.get("state") or {}).get("terminated") or {} for item in status.get("containerStatuses") or ()]
    moments = [times.parse(end.get("finishedAt")) or since for end in ends]
    over = status.get("phase") in ("Succeeded", "Failed")
    return Reserved(cpus, gpus, since, max(moments, default=since) if over else None)


def counted(
    cost: Mapping[str, Any],
    pods: Iterable[Reserved],
    begun: datetime | None,
    now: datetime,
    prices: Prices | None,
    *,
    due: bool,
) -> dict[str, Any]:
    """The cost with the time of `pods` up to `now`; unchanged where nothing is due.

    Time keeps the price that it was counted at. In another currency than before, all of it has the new prices.

    Args:
        begun: creation of the TrainingJob: pods of an earlier one of its name are older.
        due: the pods may be gone at the next look.
    """
    last = times.parse(cost.get("countedAt"))
    new = [(pod, pod.hours(last or begun, now)) for pod in pods]
    ended = any(pod.until is not None and hours for pod, hours in new)
    if not any(hours for _, hours in new) or not (due or ended or last is None or now - last >= EVERY):
        return dict(cost)
    cpus, gpus = sum(pod.cpus * hours for pod, hours in new), sum(pod.gpus * hours for pod, hours in new)
    sums = {"cpuHours": cost.get("cpuHours", 0.0) + cpus, "gpuHours": cost.get("gpuHours", 0.0) + gpus}
    rest = {name: value for name, value in cost.items() if name not in ("money", "currency")}
    if prices is not None:
        same = cost.get("currency") == prices.currency
        sums["money"] = cost["money"] + prices.of(cpus, gpus) if same else prices.of(sums["cpuHours"], sums["gpuHours"])
        rest["currency"] = prices.currency
    return {**rest, **{name: round(value, DIGITS) for name, value in sums.items()}, "countedAt": times.stamp(now)}


def together(costs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The cost of a study: of all its trials. Money only where each has some, of one currency."""
    costs = [cost for cost in costs if cost]
    if not costs:
        return {}
    currencies = {cost.get("currency") for cost in costs}
    names = ("cpuHours", "gpuHours") if len(currencies) > 1 or None in currencies else ("cpuHours", "gpuHours", "money")
    sums = {name: round(sum(cost[name] for cost in costs), DIGITS) for name in names}
    return sums | ({"currency": currencies.pop()} if "money" in sums else {})


SENT = ("cpuHours", "gpuHours", "money", "currency")


def to_wire(cost: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {to_snake(name): cost.get(name) for name in SENT} if cost else None


def from_wire(cost: training_request.RunCost | None) -> dict[str, Any]:
    return {to_camel(name): value for name, value in cost.model_dump(exclude_none=True).items()} if cost else {}


def gained(cost: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any] | None:
    """With what each hour (of a GPU, where there are some) and each unit of money gained; None: no cost.

    Args:
        status: of the run. What it gained is its held-out return less that of the policy before.
    """
    if not cost:
        return None
    after, before = ((status.get(name) or {}).get("mean") for name in ("evaluation", "baseline"))
    # An update of a rank that stays gained over the update before it; the cost is of all of them.
    gain = None if after is None or before is None or "update" in status else after - before
    result = {name: cost[name] for name in (*SENT, "countedAt") if name in cost}
    hours = result["gpuHours"] or result["cpuHours"]
    if gain is not None and hours:
        result["gainPerHour"] = float(f"{gain / hours:.4g}")
        if result.get("money"):
            result["gainPerMoney"] = float(f"{gain / result['money']:.4g}")
    return result
