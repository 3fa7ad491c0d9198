"""The bench's peer in pieces: Argo Rollouts with the bench's router rolls back what Prometheus says is bad.

Real: Argo Rollouts, its plugin, the API server. Played: pods, a gateway, Prometheus.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.rollback import argo
from bench.rollback.weights import Weights
from bench.rollback.world import NAMESPACE, run
from learnloop_operator.kube.fenced_client import KubeClient
from testing.operators.api_access import from_kubeconfig
from testing.operators.gateway_api import install

SERVED = {"uri": "uniform://discrete/2?observations=4", "sha256": ""}
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
SECONDS = 60.0


class Answers:
    """A Prometheus that has one opinion of everything."""

    def __init__(self) -> None:
        self.percent, self.asked = 100.0, list[str]()

    async def query(self, request: web.Request) -> web.Response:
        self.asked.append(str((await request.post()).get("query", "")))
        sample = {"metric": {}, "value": [time.time(), str(self.percent)]}
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/api/v1/query", self.query)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def pods_run(kube: KubeClient) -> None:
    """Every ReplicaSet has the pods that it wants."""
    while True:
        for item in (await kube.http.request("GET", SETS))["items"]:
            count, seen = item["spec"]["replicas"], item["metadata"]["generation"]
            names = ("replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas")
            wanted = {**dict.fromkeys(names, count), "observedGeneration": seen}
            if {key: (item.get("status") or {}).get(key, 0) for key in wanted} != wanted:
                path = f"{SETS}/{item['metadata']['name']}/status"
                merge = "application/merge-patch+json"
                await kube.http.request("PATCH", path, body={"status": wanted}, content_type=merge)
        await asyncio.sleep(0.1)


async def test_a_canary_that_prometheus_calls_bad_has_no_weight_within_seconds(
    bare_api_server: Path, tmp_path: Path
) -> None:
    kubectl = [str(bare_api_server.parent / "bin" / "kubectl"), "--kubeconfig", str(bare_api_server)]
    kube, answers = KubeClient(from_kubeconfig(bare_api_server)), Answers()
    await install(kube)
    run([*kubectl, "create", "namespace", NAMESPACE])
    weights = Weights(kube, NAMESPACE)
    background = [asyncio.create_task(weights.run()), asyncio.create_task(pods_run(kube))]

    def apply(*objects: dict[str, Any]) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        run([*kubectl, "apply", "-n", NAMESPACE, "--server-side", "--force-conflicts", "-f", "-"], document)

    try:
        async with answers.served() as url, argo.running(kubectl, str(bare_api_server), tmp_path) as log:
            try:
                apply(*argo.objects(url, 0), *argo.server(SERVED, 0, 0, "i"))
                await argo.in_phase(kubectl, 0, "Healthy")
                apply(argo.server(SERVED, 0, 1, "i")[1])
                await weights.until(lambda: weights.route.get("argo-0") == argo.WEIGHT, SECONDS, "a canary")
                await asyncio.sleep(2.5)
                assert len(answers.asked) >= 2, "asked every second"
                assert weights.route["argo-0"] == argo.WEIGHT, "a good one keeps its weight"
                answers.percent, began = 50.0, time.monotonic()
                done = await weights.until(lambda: weights.route.get("argo-0") == 0, SECONDS, "weight 0")
                print(f"weight 0 after {done - began:.2f} s")
                assert done - began <= 10.0
                await argo.in_phase(kubectl, 0, "Degraded")
            except BaseException:
                print(log.read_text(errors="replace")[-3000:])
                raise
    finally:
        for task in background:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await kube.close()
