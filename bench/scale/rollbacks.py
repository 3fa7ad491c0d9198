"""How long a worse model keeps its weight in a cluster.

A site has canaries, held at half of the episodes, and a Prometheus that is played here. At a moment that nothing
foretells, all that the canary does fails; the clock runs from there until the watch shows a status without a weight for
it. The small cluster has its rollbacks before the large one is made: neither starves the other of the machine's cores.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.operator.api import Api
from bench.operator.data_plane import data_plane
from bench.operator.observer import Observer
from bench.operator.process import Running, running
from bench.operator.thousand import say
from learnloop_api import names
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT, ResourceKind
from testing.operators.crash_rig import NAME, model, revision
from testing.operators.served_traffic import Provider, Traffic

WEIGHT = 50
CALM_SECONDS = (18.0, 21.0)
"""From the canary's weight to its failure. In none of the runs seen was anything judged in the first fifteen."""
SCRAPE_SECONDS = 0.2
PATIENCE = 180.0
SPEC: dict[str, Any] = {
    "rollout": {"steps": [{"weight": WEIGHT, "minEpisodes": 1_000_000}, {"weight": 100}], "keepForSeconds": 5},
    "analysis": {"intervalSeconds": 1, "metrics": [{"name": "success", "type": "success", "minRatio": 0.9}]},
}


class StatusObserver(Observer):
    """Keeps the newest status of each ModelDeployment, and when it was seen."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, [MODEL_DEPLOYMENT])
        self.statuses: dict[tuple[str, str], tuple[Mapping[str, Any], float]] = {}

    def _saw(self, kind: ResourceKind, type_: str, item: Mapping[str, Any]) -> None:
        super()._saw(kind, type_, item)
        metadata = item["metadata"]
        self.statuses[metadata["namespace"], metadata["name"]] = (item.get("status") or {}, time.monotonic())


@dataclass(slots=True)
class TurningTraffic(Traffic):
    """Episodes of an arm that succeed until a moment, and fail from then on."""

    failing_since: dict[str, datetime] = field(default_factory=dict)

    def success_share(self, revision: str, seconds: int, ago: int) -> float:
        """By when they were played."""
        since = self.failing_since.get(revision)
        begin, end = self.growth(revision, seconds + ago), self.growth(revision, ago)
        if since is None or begin == end:
            return 1.0
        failed = min(begin, self.growth(revision, (self.now - since).total_seconds())) - end
        return 1.0 - max(0.0, failed) / (begin - end)


class Site:
    """One cluster with an operator at work, and what is rolled back there."""

    def __init__(self, name: str, api: Api, observer: StatusObserver, provider: Provider, operator: Running) -> None:
        self.name, self.api, self.observer = name, api, observer
        self.provider, self.operator = provider, operator
        self.seconds: list[float] = []
        self._traffic: dict[int, TurningTraffic] = {}

    async def begin(self, canaries: int) -> None:
        """A namespace and a ModelDeployment for each canary; returns when all serve."""
        for number in range(canaries):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _namespace(number)}}
            await self.api.create(namespace)
            traffic = TurningTraffic(now=datetime.now(UTC), per_second=200.0)
            self.provider.traffic[_namespace(number)] = self._traffic[number] = traffic
            metadata = {"name": NAME, "namespace": _namespace(number)}
            body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata}
            await self.api.create({**body, "spec": {**SPEC, "model": model(0)}})
        for number in range(canaries):
            await self._until(number, "serving", lambda status: status.get("phase") == "Healthy")

    async def roll_back(self, number: int, turn: int, calm: float) -> None:
        """One model more, which turns out to be worse."""
        namespace, new = _namespace(number), revision(turn)
        traffic = self._traffic[number]
        traffic.shares = lambda: {revision(0): 100 - WEIGHT, new: WEIGHT}
        await self.api.merge(MODEL_DEPLOYMENT, namespace, NAME, {"spec": {"model": model(turn)}})
        await self._until(number, f"at {WEIGHT} %", lambda status: status.get("weight") == WEIGHT)
        await asyncio.sleep(calm)
        traffic.failing_since[new] = traffic.now
        began = time.monotonic()
        seconds = await self._until(number, "rolled back", lambda status: not status.get("weight"))
        self.seconds.append(seconds - began)

    async def _until(self, number: int, what: str, condition: Any) -> float:
        """The moment at which the watch showed such a status."""
        deadline, key = time.monotonic() + PATIENCE, (_namespace(number), NAME)
        while True:
            status, moment = self.observer.statuses.get(key, ({}, 0.0))
            if status.get("phase") and condition(status):
                return moment
            self.operator.alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {key[0]} is not {what} after {PATIENCE:.0f} s: {status}")
            await asyncio.sleep(0.005)


def _namespace(number: int) -> str:
    return f"canary-{number:02d}"


@asynccontextmanager
async def site(name: str, kubeconfig: Path, extra: Mapping[str, str] | None = None) -> AsyncIterator[Site]:
    """An operator over the whole of the cluster, for as long as the block."""
    provider = Provider()
    await provider.start()
    async with Api(kubeconfig) as api, StatusObserver(api) as observer, data_plane() as url:
        settings = {"LEARNLOOP_PROMETHEUS_URL": provider.url, **(extra or {})}
        with running("ours", kubeconfig, url, settings) as operator:
            made = Site(name, api, observer, provider, operator)
            scraping = asyncio.create_task(_scrape(provider))
            try:
                yield made
            finally:
                scraping.cancel()
                await asyncio.gather(scraping, return_exceptions=True)
                await provider.stop()


async def _scrape(provider: Provider) -> None:
    last = time.monotonic()
    while True:
        await asyncio.sleep(SCRAPE_SECONDS)
        now = time.monotonic()
        for traffic in provider.traffic.values():
            traffic.pass_time(now - last)
        last = now


async def roll_back_all(made: Site, canaries: int, turns: int, seed: int = 1) -> None:
    """`turns` times for each of the `canaries`, which go side by side; fills `seconds` of the site."""
    moments = random.Random(seed)
    await made.begin(canaries)

    async def one(number: int) -> None:
        for turn in range(1, turns + 1):
            await made.roll_back(number, turn, moments.uniform(*CALM_SECONDS))
            if number == 0:
                say(f"rollbacks: turn {turn} of {turns}, {len(made.seconds)} in {made.name}")

    async with asyncio.TaskGroup() as group:
        for number in range(canaries):
            group.create_task(one(number))
