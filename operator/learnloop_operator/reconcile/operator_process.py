"""The operator's life: starts everything, notices what ended, stops in the order that keeps promises."""

import asyncio
import logging
import signal
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kopf
from aiohttp import web
from kubernetes_asyncio.client import Configuration
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from learnloop_common import telemetry, termination_message
from learnloop_common.tls import authorities, own_context
from learnloop_operator import data_plane_client, operator_metrics
from learnloop_operator.kube import (
    cached_reads,
    fenced_client,
    http_transport,
    kinds,
    kubernetes_events,
    leader_lease,
    object_cache,
)
from learnloop_operator.prometheus import gather_evidence, pod_counters
from learnloop_operator.prometheus.client import Prometheus
from learnloop_operator.reconcile import (
    apply_plan,
    fast_lane_reader,
    kopf_handlers,
    learning_agent,
    memory_service,
    model_deployment,
    reward_policy,
    training_job,
    trust_bundles,
    work_queue,
)
from learnloop_operator.settings import Settings


def controllers(services: work_queue.Services) -> list[work_queue.Controller[Any]]:
    return [
        training_job.TrainingJobController(services),
        reward_policy.RewardPolicyController(services),
        memory_service.MemoryServiceController(services),
        model_deployment.ModelDeploymentController(services),
        learning_agent.LearningAgentController(services),
    ]


class ProbeServer:
    """GET /metrics, /healthz, and /readyz (503 with the reason when `unready` gives one)."""

    def __init__(
        self,
        metrics: operator_metrics.OperatorMetrics,
        *,
        unready: Callable[[], str | None],
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics, self._unready, self._refresh = metrics, unready, refresh
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, port: int, host: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 takes a free one and says which in `port`. Without `tls`, plain HTTP."""
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _serve_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        problem = self._unready()
        return web.Response(status=503 if problem else 200, text=problem or "ok")


if TYPE_CHECKING:
    from learnloop_operator.reconcile.tracing import Tracer

log = logging.getLogger(__name__)

DRAIN_SECONDS = 3.0
EVENTS_SECONDS = 1.0
"""Time limit of the last events: the standby waits for the Lease all the while, and an event may be lost."""


class Operator:
    """All parts of one process, wired."""

    def __init__(self, settings: Settings, configuration: Configuration) -> None:
        self.settings = settings
        self.metrics = operator_metrics.OperatorMetrics()
        self.lease_kube = fenced_client.KubeClient(configuration, written=self.metrics.written)
        self.leadership = leader_lease.Leadership(
            self.lease_kube, settings.system_namespace, settings.lease_name, settings.pod_name
        )
        cache = object_cache.ObjectCache(cached_reads.CACHED)
        self.kube = fenced_client.KubeClient(
            configuration, guard=self.leadership.guard, written=self.metrics.written, cache=cache
        )
        self.trust = trust_bundles.TrustBundles(self.kube, authorities(), time.monotonic) if settings.tls else None
        self.reads = cached_reads.CachedReads(self.kube, cache, settings.watch_namespaces)
        self.data_plane = data_plane_client.DataPlane(
            settings.data_url, settings.token_file, guard=self.leadership.guard
        )
        self.announcer = apply_plan.Announcer(self.data_plane)
        self.tracer = _tracer(settings)
        self.recorder = kubernetes_events.EventRecorder(self.kube, settings.pod_name)
        self.prometheus = Prometheus(settings.prometheus_url)
        self.queries = Prometheus(settings.query_url) if settings.query_url else None
        self.pods = pod_counters.CounterReader()
        self.lane = fast_lane_reader.FastLaneReader(self.pods, self.metrics, work_queue.utc_now)
        evidence = gather_evidence.WithExperience(
            gather_evidence.PrometheusEvidence(self.prometheus, self.queries, settings.query_pod_label), self.data_plane
        )
        self.services = work_queue.Services(
            self.reads, self.data_plane, evidence, settings, self.lane, cluster_clock=self.kube.http.clock
        )
        self.runtime = work_queue.Runtime(
            controllers(self.services),
            apply_plan.Applier(
                self.kube,
                self.data_plane,
                self.recorder,
                self.reads,
                self.announcer,
                metrics=self.metrics.loop,
                tracer=self.tracer,
            ),
            self.data_plane,
            self.leadership,
            self.metrics,
            workers=settings.workers,
            resync_seconds=settings.resync_seconds,
            reads=self.reads,
            trust=self.trust,
        )
        self.watching = asyncio.Event()
        self._watching_over = asyncio.Event()
        self.stopping = asyncio.Event()
        self.server = ProbeServer(self.metrics, unready=self._unready, refresh=self._refresh)

    async def run(self) -> int:
        """Exit code: 0 after SIGTERM or SIGINT, 1 when the process must be replaced."""
        self._take_signals()
        await self.server.start(self.settings.port, tls=own_context() if self.settings.tls else None)
        log.info("probes and metrics on port %d", self.server.port)
        parts = {
            "kopf": self._watch(),
            "lease": self.leadership.run(),
            "workers": self.runtime.run(),
            "fast lane": self.lane.run(self._mark_rollout, lambda: self.leadership.held),
            "events": self.recorder.run(),
            "announcer": self.announcer.run(),
            "keeper": apply_plan.ArtifactUsageReporter(self.kube, self.data_plane, self._led_namespaces).run(),
            "stop": self.stopping.wait(),
        }
        tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in parts.items()]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = 0 if self.stopping.is_set() else 1
        for task in done if code else ():
            _report_end(task)
        await self._stop({task.get_name(): task for task in tasks})
        return code

    async def _stop(self, tasks: dict[str, "asyncio.Task[object]"]) -> None:
        # Workers end first, then the last events go out, then the Lease is given up: a standby that takes over
        # never meets a write of ours.
        self.stopping.set()
        tasks["workers"].cancel()
        await asyncio.gather(tasks["workers"], return_exceptions=True)
        await self.recorder.drain(EVENTS_SECONDS)
        tasks["lease"].cancel()
        await asyncio.gather(tasks["lease"], return_exceptions=True)
        await self.leadership.release()
        # Kopf ends last: when it does, it cancels every task that began after it.
        self._watching_over.set()
        await asyncio.wait([tasks["kopf"]], timeout=DRAIN_SECONDS)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await self.server.stop()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)
        for client in (self.kube, self.lease_kube, self.data_plane, self.prometheus, self.queries, self.pods):
            if client is not None:
                await client.close()

    def _led_namespaces(self) -> set[str]:
        return self.runtime.namespaces() if self.leadership.held else set()

    def _mark_rollout(self, namespace: str, name: str, breached: bool) -> None:
        self.runtime.mark(kinds.MODEL_DEPLOYMENT.kind, namespace, name, first=breached)

    async def _watch(self) -> None:
        await self.leadership.answered.wait()  # where the API server is away at its start Kopf soon gives up
        namespaces = self.settings.watch_namespaces
        await kopf.operator(
            registry=kopf_handlers.registry(
                self.runtime,
                self.reads.cache,
                namespaced=bool(namespaces),
                started=self._take_signals_back,
                cut=self.metrics.cut,
            ),
            standalone=True,
            # Kopf would ask for a user name, which an arbitrary uid in a container does not have.
            identity=self.leadership.identity,  # type: ignore[arg-type]  # a private NewType of str
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=self._watching_over,
            ready_flag=self.watching,
        )

    def _take_signals_back(self) -> None:
        # Kopf installs handlers of its own, one turn of the loop after its start-up handlers: they would end Kopf
        # first, and with it every task; ours end the workers first.
        asyncio.get_running_loop().call_later(0.2, self._take_signals)

    def _take_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stopping.set)

    def _refresh(self) -> None:
        self.metrics.leader.set(1.0 if self.leadership.held else 0.0)
        if self.settings.tls:
            trust_bundles.show_expiry(self.metrics.certificate_expiry)

    def _unready(self) -> str | None:
        return None if self.watching.is_set() else "the watches are not established yet"


def _report_end(part: "asyncio.Task[object]") -> None:
    error = part.exception()
    if error is None:
        termination_message.leave(f"{part.get_name()} ended: stopping")
    else:
        termination_message.end(error, f"{part.get_name()} ended: ", "; stopping")


def _tracer(settings: Settings) -> "Tracer | None":
    if not settings.traces_endpoint:
        return None
    from learnloop_operator.reconcile.tracing import exporting

    about = {telemetry.SERVICE_INSTANCE: settings.pod_name, telemetry.NAMESPACE: settings.system_namespace}
    return exporting(settings.traces_endpoint, about, settings.traces_headers)


async def operate(settings: Settings) -> int:
    """Run one operator until a signal or a reason to be replaced."""
    return await Operator(settings, await http_transport.find_configuration()).run()
