"""One ModelDeployment in a namespace of a real API server: a user, a kubelet, agents, and an operator that can die."""

import asyncio
import contextlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kubernetes_asyncio.client import Configuration

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.cached_reads import CACHED, CachedReads
from learnloop_operator.kube.errors import NotFound
from learnloop_operator.kube.fenced_client import APPLIED, KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP, DEPLOYMENT, HTTP_ROUTE, MODEL_DEPLOYMENT, SERVICE, ResourceKind
from learnloop_operator.kube.kubernetes_events import EventRecorder
from learnloop_operator.kube.leader_lease import Leadership
from learnloop_operator.kube.object_cache import ObjectCache
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.prometheus.gather_evidence import PrometheusEvidence
from learnloop_operator.prometheus.pod_counters import CounterReader
from learnloop_operator.reconcile.apply_plan import Applier
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.model_deployment import ModelDeploymentController
from learnloop_operator.reconcile.work_queue import ObjectKey, Runtime, Services, WorkQueue
from learnloop_operator.rollout.children.routing import read, read_route
from learnloop_operator.rollout.state.snapshot import revision_of
from learnloop_operator.settings import Settings
from testing.operators.api_access import patch
from testing.operators.gateway_api import ROUTING, accept_routes, install
from testing.operators.served_traffic import Provider, Traffic
from testing.operators.write_ledger import Killed, Ledger, TappedHttp

NAME = "md"
STEPS = [{"weight": weight, "minEpisodes": 6} for weight in (10, 25, 50, 100)]
WATCHED = (MODEL_DEPLOYMENT, DEPLOYMENT, SERVICE)
RESTART_SECONDS = 3.0
"""Of the rig's time, until a new process stands where the killed one was."""
LONGEST_WAIT = 10.0


def model(number: int) -> dict[str, str]:
    """The user's model of that number."""
    return {"uri": f"https://models.example/{number}.onnx", "sha256": f"{number:064x}"}


def revision(number: int) -> str:
    """The arm it is served by."""
    return revision_of(model(number)["uri"], model(number)["sha256"], PodOptions())


def full_spec(mode: str = "service", **changes: Any) -> dict[str, Any]:
    """The spec of a rollout in four steps, short enough to watch, in this routing mode."""
    spec: dict[str, Any] = {
        "model": model(0),
        "serving": {"replicas": 2, "canaryReplicas": 1},
        "rollout": {"steps": STEPS, "keepForSeconds": 30},
        "analysis": {"intervalSeconds": 5, "metrics": [{"name": "success", "type": "success", "minRatio": 0.9}]},
    }
    return {**spec, **({"routing": ROUTING} if mode == "gateway" else {}), **changes}


class Leading(Leadership):
    """The only process there is."""

    @property
    def held(self) -> bool:
        """Always."""
        return True

    def guard(self) -> None:
        """Every write may begin."""


class Later(WorkQueue):
    """Remembers when the runtime wants to look again, and leaves the waiting to the rig."""

    again: float | None = None

    def mark_later(self, key: ObjectKey, seconds: float) -> None:
        """The earliest counts."""
        self.again = seconds if self.again is None else min(self.again, seconds)


class Process:
    """One operator process: its caches, its queue and its unsent events die with it."""

    def __init__(self, connection: Configuration, rig: "Rig", provider: Provider) -> None:
        cache = ObjectCache(CACHED)
        self.kube = KubeClient(connection, cache=cache)
        self.kube.http = TappedHttp(connection, rig.ledger)
        self.reads = CachedReads(self.kube, cache, (rig.namespace,))
        self.prometheus, self.pods = Prometheus(provider.url), CounterReader()
        data = DataPlane("http://127.0.0.1:9")
        self.recorder = EventRecorder(self.kube, "operator")
        lane = FastLaneReader(self.pods, OperatorMetrics(), rig.traffic.clock)
        services = Services(
            self.reads, data, PrometheusEvidence(self.prometheus), Settings(), lane, clock=rig.traffic.clock
        )
        self.runtime = Runtime(
            [ModelDeploymentController(services)],
            Applier(
                self.kube,
                data,
                self.recorder,
                self.reads,
            ),
            data,
            Leading(self.kube, "system", "lease", "one"),
            OperatorMetrics(),
            workers=1,
            resync_seconds=300,
            reads=self.reads,
        )
        self.runtime.queue = self.queue = Later()
        self.key = ObjectKey(MODEL_DEPLOYMENT.kind, rig.namespace, NAME)

    async def look(self) -> float | None:
        """One pass and its events; seconds until the next one is due. Raises Killed.

        The cache has all of a listing at the first look, and what watches would have brought at each later one.
        """
        self.queue.again = None
        await self.reads.refresh(*(() if not self.reads.cache.complete(MODEL_DEPLOYMENT) else (WATCHED,)))
        await self.runtime.one_pass(self.key)
        sending = asyncio.create_task(self.recorder.run())
        sent = asyncio.create_task(self.recorder.drain(30.0))
        await asyncio.wait({sending, sent}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sent.cancel()
            sending.result()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        return self.queue.again

    async def die(self) -> None:
        """Only sockets are left to close."""
        for client in (self.kube, self.prometheus, self.pods):
            await client.close()


class Rig:
    """A namespace of its own. `turn` is one look of the operator and the time until the next."""

    def __init__(
        self, connection: Configuration, provider: Provider, spec: dict[str, Any], through: Configuration | None = None
    ) -> None:
        self.namespace = f"sweep-{uuid.uuid4().hex[:10]}"
        self.spec = ModelDeploymentSpec.model_validate(spec).to_kube()
        self.spec_body, self._connection, self._provider = spec, through or connection, provider
        self.user = KubeClient(connection, timeout=60.0)
        self.traffic = provider.traffic[self.namespace] = Traffic()
        self.by_gateway = self.spec["routing"]["mode"] == "gateway"
        self.ledger = Ledger(NAME, self.spec, self.traffic.clock)
        self.traffic.shares = self.ledger.shares
        self.process = Process(self._connection, self, provider)
        self.deaths, self.blind = 0, 0.0

    async def begin(self) -> None:
        """The namespace, and what the user applies."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.user.http.request("POST", "/api/v1/namespaces", body=namespace)
        if self.by_gateway:
            await install(self.user)
        metadata = {"name": NAME, "namespace": self.namespace}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": metadata,
            "spec": self.spec_body,
        }
        await self.user.create(body)

    async def end(self) -> None:
        """Close what is open; the namespace goes with the API server."""
        await self.process.die()
        await self.user.close()
        del self._provider.traffic[self.namespace]

    async def wish(self, number: int, quality: float) -> None:
        """The user wants another model; so good it is."""
        self.traffic.quality[revision(number)] = quality
        change = {"spec": {"model": model(number)}}
        await patch(self.user, MODEL_DEPLOYMENT, self.namespace, NAME, change)

    async def turn(self) -> bool:
        """Look, start pods, let time pass. False when a look neither wrote nor wants another soon."""
        before = self.ledger.total
        try:
            again = await self.process.look()
        except Killed:
            await self.restart()
            again = RESTART_SECONDS
        wrote = self.ledger.total > before
        if self.ledger.unstarted:
            self.ledger.unstarted = False
            await self.kubelet()
        # A write comes back as an event and gives another look, as it does in a cluster.
        self.traffic.pass_time(min(again, LONGEST_WAIT) if again else 0.0)
        return wrote or again is not None

    async def observe(self) -> None:
        """Bring the ledger up to what is there: an answer that was lost told it nothing."""
        body = await self.user.get(MODEL_DEPLOYMENT, self.namespace, NAME)
        table = await self.user.find(CONFIG_MAP, self.namespace, f"{NAME}-routing")
        self.ledger.status = body.get("status") or {}
        self.ledger.replicas = {
            item["metadata"]["name"]: item["spec"]["replicas"]
            for item in await self.user.list(DEPLOYMENT, self.namespace)
        }
        route = await self.user.find(HTTP_ROUTE, self.namespace, NAME) if self.by_gateway else None
        self.ledger.routing = replace(read(table), route=read_route(route, NAME))
        await self.kubelet()

    async def restart(self) -> None:
        """The process is replaced by one that knows nothing."""
        self.deaths += 1
        self.traffic.unknown_until = self.traffic.now + timedelta(seconds=self.blind)
        await self.process.die()
        self.process = Process(self._connection, self, self._provider)

    async def kubelet(self) -> None:
        """Every pod that is wanted is ready; and the gateway has taken the route."""
        await start_pods(self.user, self.namespace)
        if self.by_gateway:
            await accept_routes(self.user, self.namespace)

    async def end_state(self) -> dict[str, Any]:
        """All there is, without what depends on when it was made."""
        return await state_of(self.user, self.namespace, *([HTTP_ROUTE] if self.by_gateway else []))


async def start_pods(user: KubeClient, namespace: str) -> None:
    """The work of kubelets and the Deployment controller: every pod that is wanted is ready."""
    for item in await user.list(DEPLOYMENT, namespace):
        count = item["spec"]["replicas"]
        if (item.get("status") or {}).get("readyReplicas", 0) != count:
            path = DEPLOYMENT.path(namespace, item["metadata"]["name"], "status")
            status = {"status": {"replicas": count, "readyReplicas": count}}
            with contextlib.suppress(NotFound):  # an arm may go between the list and this
                await user.http.request("PATCH", path, body=status, content_type="application/merge-patch+json")


async def state_of(user: KubeClient, namespace: str, *more: ResourceKind) -> dict[str, Any]:
    """All there is in the namespace, without what depends on when it was made."""
    state: dict[str, Any] = {}
    for kind in (MODEL_DEPLOYMENT, DEPLOYMENT, SERVICE, CONFIG_MAP, *more):
        for item in await user.list(kind, namespace):
            if item["metadata"]["name"] != "kube-root-ca.crt":
                state[f"{kind.kind}/{item['metadata']['name']}"] = _timeless(item, namespace)
    return state


_TIMES = {
    "since",
    "startedAt",
    "finishedAt",
    "lastTransitionTime",
    "stepStartedAt",
    "rolloutStartedAt",
    "promotedAt",
    "at",
    "expires_at",
}
_COUNTS = {"episodes", "routingGeneration", "generation", "observedGeneration", "stepBaseEpisodes"}
_FIGURES = {"mean", "low", "high", "chanceBetter", "logBetter", "judged", "counted", "requests", "ready"}
_OF_THE_SERVER = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "clusterIP", "clusterIPs", "nodePort"}
_LEFT_OUT = _TIMES | _COUNTS | _FIGURES | _OF_THE_SERVER | {"message", "verdict", APPLIED}


def _timeless(item: Any, namespace: str) -> Any:
    if item in ("beaten", "withdrawn"):
        return "out"  # an arm that was beaten just before the operator died is on record as withdrawn, and says so
    if isinstance(item, Mapping):
        return {key: _timeless(value, namespace) for key, value in sorted(item.items()) if key not in _LEFT_OUT}
    if isinstance(item, list):
        return [_timeless(value, namespace) for value in item]
    if isinstance(item, str):
        text = item.replace(namespace, "NAMESPACE")
        # A routing table and a verdict are JSON within a string: their numbers that count and tell time go too,
        # and whether a guest that is out was beaten or withdrawn.
        return re.sub(r'"(generation|expires_at|at|since|standing|message)":\s*("[^"]*"|\d+|null)', r'"\1":0', text)
    return item
