"""Whole operator processes that work on one ModelDeployment through a proxy, while time passes as it does.

Around them, for real: the API server. Played here: kubelets, a gateway, agents that go where route and routing table
lead them, a Prometheus.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from learnloop_api import names
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP, HTTP_ROUTE, LEASE, MODEL_DEPLOYMENT
from learnloop_operator.rollout.children.routing import read, read_route
from testing.operators.api_access import from_kubeconfig, patch
from testing.operators.crash_rig import NAME, full_spec, model, revision, start_pods, state_of
from testing.operators.gateway_api import accept_routes, install
from testing.operators.served_traffic import Provider, Traffic
from testing.proxies.stream_proxy import StreamProxy
from testing.simulation.routed_users import shares

LEASE_NAME = "learnloop-operator"
PATIENCE = 120.0
"""Seconds in which nothing happens; a loaded machine is slow, not wrong."""
LIMIT = 1_200.0
"""Seconds in which things happen, and never the one that is waited for."""
TICK = 0.2
STEPS = [{"weight": weight, "minEpisodes": 6} for weight in (10, 25, 50, 100)]
EXACT_COUNTS = {"rollout.judging.watched_arms.SHORTEST": 2.0, "prometheus.queries.SHORTEST_DUE": 2}
"""Shortest windows of evidence: the Prometheus that is played here counts exactly and needs no two scrapes."""
QUICK = {
    "rollout": {"steps": STEPS, "keepForSeconds": 2},
    "analysis": {"intervalSeconds": 1, "metrics": [{"name": "success", "type": "success", "minRatio": 0.9}]},
}


class Operator:
    """One process, which is started again when it ends, as a kubelet does, unless it is `given_up`."""

    def __init__(self, rig: "LiveRig", name: str, proxy: StreamProxy, system: str, hasty: Mapping[str, float]) -> None:
        self.rig, self.name, self.proxy, self.system = rig, name, proxy, system
        self._hasty = {**EXACT_COUNTS, **hasty}
        self.codes, self.given_up = list[int](), False
        self.log = rig.folder / f"{name}.log"
        self.config = rig.folder / f"{name}.kubeconfig"
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """A new process."""
        environment = os.environ | {
            "KUBECONFIG": str(self.config),
            "HASTY": json.dumps(self._hasty),
            "POD_NAME": self.name,
            "LEARNLOOP_WATCH_NAMESPACE": self.rig.namespace,
            "LEARNLOOP_SYSTEM_NAMESPACE": self.system,
            "LEARNLOOP_LEASE_NAME": LEASE_NAME,
            "LEARNLOOP_PROMETHEUS_URL": self.rig.provider.url,
            "LEARNLOOP_DATA_URL": "http://127.0.0.1:9",
            "LEARNLOOP_PORT": "0",
        }
        program = [sys.executable, str(Path(__file__).with_name("short_interval_operator.py"))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(program, env=environment, stderr=log, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """SIGKILL: no line of it runs any more when this returns."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    async def look_after(self) -> None:
        """Start it again, whenever it ends.

        A killed process leaves its Lease, and a standby waits it out (bench/operator/failover.py measures how long).
        Here it is deleted, as a person may do with `kubectl delete lease`: the holder is proven dead.
        """
        while True:
            await asyncio.sleep(0.05)
            if self.process is None or self.process.poll() is None or self.given_up:
                continue
            self.codes.append(self.process.returncode)
            if self.process.returncode == -signal.SIGKILL:
                await self.rig.user.delete(LEASE.ref(self.system, LEASE_NAME))
            self.begin()

    async def ask(self, path: str) -> str:
        """The probe server's answer; "" without one."""
        ports = re.findall(r"probes and metrics on port (\d+)", self.output)
        if not ports:
            return ""
        url, patience = f"http://127.0.0.1:{ports[-1]}{path}", aiohttp.ClientTimeout(total=5.0)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with aiohttp.ClientSession(timeout=patience) as session, session.get(url) as answer:
                return await answer.text()
        return ""

    @property
    def output(self) -> str:
        """Its log."""
        return self.log.read_text()


class LiveRig:
    """A namespace with one ModelDeployment in this routing mode, and what lives around it."""

    def __init__(self, api_server: Path, provider: Provider, folder: Path, mode: str, namespace: str = "") -> None:
        self.connection, self.provider, self.folder = from_kubeconfig(api_server), provider, folder
        self.namespace = namespace or f"live-{uuid.uuid4().hex[:10]}"
        self.user = KubeClient(self.connection, timeout=60.0)
        self.mode, self.by_gateway = mode, mode == "gateway"
        self.traffic = Traffic(now=datetime.now(UTC), per_second=200.0)
        provider.traffic[self.namespace] = self.traffic
        self.operators: list[Operator] = []
        self.tables: list[RoutingTable] = []
        """Each routing table that was seen in force, in order."""
        self._tasks: list[asyncio.Task[None]] = []

    async def create(self) -> None:
        """The ModelDeployment as the user applies it."""
        await self._namespace(self.namespace)
        if self.by_gateway:
            await install(self.user)
        metadata = {"name": NAME, "namespace": self.namespace}
        spec = full_spec(self.mode, **QUICK)
        await self.user.create(
            {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
        )
        self._run(self._live())

    async def operator(
        self,
        seed: int = 0,
        hasty: Mapping[str, float] | None = None,
        *,
        peer: Operator | None = None,
    ) -> Operator:
        """One more process with a proxy of its own: of another installation, with a system namespace of its own, or of
        the one of the operator `peer`."""
        proxy, name = StreamProxy(self.connection, seed), f"{self.namespace}-{len(self.operators)}"
        if peer is None:
            await self._namespace(name)
        made = Operator(self, name, proxy, peer.system if peer else name, hasty or {})
        await proxy.start(made.config)
        self.operators.append(made)
        made.begin()
        self._run(made.look_after())
        return made

    async def wish(self, number: int, quality: float = 1.0) -> None:
        """The user wants another model; so good it is."""
        self.traffic.quality[revision(number)] = quality
        await patch(self.user, MODEL_DEPLOYMENT, self.namespace, NAME, {"spec": {"model": model(number)}})

    async def object(self) -> dict[str, Any]:
        """The ModelDeployment."""
        return await self.user.get(MODEL_DEPLOYMENT, self.namespace, NAME)

    async def serves(self, number: int) -> dict[str, Any]:
        """Wait until that model serves everybody and nothing else is left; the status then."""
        return await self.until(
            f"model {number} serving alone",
            lambda body: (
                body.get("phase") == "Healthy"
                and body["stable"]["revision"] == revision(number)
                and not body.get("previous")
                and not body.get("canary")
            ),
        )

    async def until(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a status; returns it. AssertionError when nothing has happened for PATIENCE, or after LIMIT.

        A process that ends and a status that changes have happened: each of twelve deaths costs the start of another
        process, which on a busy machine takes ten seconds, and no one patience fits any number of them.
        """
        began = last = time.monotonic()
        last_value: object = None
        while not condition(status := (await self.object()).get("status") or {}):
            for task in self._tasks:
                assert not task.done(), task.exception()
            now, happened = time.monotonic(), (status, [len(operator.codes) for operator in self.operators])
            if happened != last_value:
                last_value, last = happened, now
            if now - last >= PATIENCE or now - began >= LIMIT:
                logs = "\n".join(operator.output[-1500:] for operator in self.operators)
                raise AssertionError(f"no {what} after {now - began:.0f} s: {status}\n{logs}")
            await asyncio.sleep(TICK)
        return status

    async def until_answer(self, operator: Operator, path: str, sentence: str) -> None:
        """Wait until its probe server says so. AssertionError after PATIENCE."""
        deadline, answer = time.monotonic() + PATIENCE, ""
        while sentence not in answer:
            assert time.monotonic() < deadline, f"{path} says {answer!r}, not {sentence!r}"
            await asyncio.sleep(TICK)
            answer = await operator.ask(path)

    async def end_state(self) -> dict[str, Any]:
        """All there is, without what depends on when it was made, when it has stopped changing."""
        kinds = [HTTP_ROUTE] if self.by_gateway else []
        before, current = None, await state_of(self.user, self.namespace, *kinds)
        while before != current:
            await asyncio.sleep(2.0)
            before, current = current, await state_of(self.user, self.namespace, *kinds)
        return current

    async def end(self) -> None:
        """Everybody goes; the namespaces go with the API server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for operator in self.operators:
            if operator.process is not None and operator.process.poll() is None:
                operator.kill()
            await operator.proxy.stop()
        await self.user.close()
        del self.provider.traffic[self.namespace]

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(coroutine))

    async def _namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.user.http.request("POST", "/api/v1/namespaces", body=body)

    async def _live(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            routing = read(await self.user.find(CONFIG_MAP, self.namespace, f"{NAME}-routing"))
            if self.by_gateway:
                route = await self.user.find(HTTP_ROUTE, self.namespace, NAME)
                routing = replace(routing, route=read_route(route, NAME))
                await accept_routes(self.user, self.namespace)
            if routing.table and (not self.tables or self.tables[-1] != routing.table):
                self.tables.append(routing.table)
            self.traffic.shares = partial(shares, routing, datetime.now(UTC))
            await start_pods(self.user, self.namespace)
            now = time.monotonic()
            self.traffic.pass_time(now - last)
            last = now


@asynccontextmanager
async def live_rig(
    api_server: Path, folder: Path, mode: str = "service", namespace: str = ""
) -> AsyncIterator[LiveRig]:
    """A rig that ends with the block, with a ModelDeployment in it and no operator yet."""
    provider = Provider()
    await provider.start()
    rig = LiveRig(api_server, provider, folder, mode, namespace)
    try:
        await rig.create()
        yield rig
    finally:
        await rig.end()
        await provider.stop()
