"""The Gateway API's own judgement of weights (conformance/utils/weight), while learnloop moves them from 10 to 100 %.

For real: etcd, the API server, the operator, Contour and Envoy. Played: kubelets and the arms' pods, which answer with
the name of their Service. At each weight 500 requests go through the gateway, as HTTPRouteWeight sends them, up to ten
times; each share may be off by 5 %.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.judges.cases import Suite, finish
from bench.operator.control_plane import control_plane
from cluster.addons import envoy
from cluster.addons.gateway import CONTOUR_MODULE, CRD_FOLDER, CRD_MODULE
from cluster.addresses import CONTEXT
from go_programs import go_build
from learnloop_api import names
from learnloop_api.wire.routing import arm_name
from learnloop_operator.kube import errors
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT, SERVICE
from testing.operators.api_access import patch
from testing.operators.crash_rig import NAME, revision
from testing.operators.operator_processes import LiveRig, live_rig
from testing.servers.child_process import running
from testing.servers.ports import held_port

MODULE = go_build.Module(
    "gateway-weight", {"weight": "learnloop.dev/bench/gateway-weight"}, sources=Path(__file__).parent / "go_modules"
)
VERSION = "v1.4.0"
API, CONTROLLER = "gateway.networking.k8s.io/v1", "projectcontour.io/gateway-controller"
WEIGHTS = (10, 25, 50)
CONTOURS_OFFSET = 8000
"""Envoy listens so far above the port of the Gateway's listener."""


def main() -> int:
    """1 when a share is not its weight's."""
    suite = Suite("Gateway API, HTTPRouteWeight's judgement", VERSION)
    go_build.ensure(MODULE, MODULE.programs)
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder, control_plane() as kubeconfig:
        kubectl = [str(kubeconfig.parent / "bin" / "kubectl"), "--kubeconfig", str(kubeconfig)]
        contour = go_build.module_folder(go_build.GATEWAY, CONTOUR_MODULE) / "examples" / "contour" / "01-crds.yaml"
        for file in (go_build.module_folder(go_build.GATEWAY, CRD_MODULE) / CRD_FOLDER, contour):
            subprocess.run([*kubectl, "apply", "--server-side", "-f", file], check=True, stdout=sys.stderr)
        # The proxy before the operator has the administrator's certificate, and forwards no token.
        subprocess.run(
            [*kubectl, "config", "set-context", "--current", f"--user={CONTEXT}-admin"], check=True, stdout=sys.stderr
        )
        asyncio.run(_judge(kubeconfig, Path(folder), suite))
    return finish(suite)


async def _judge(kubeconfig: Path, folder: Path, suite: Suite) -> None:
    stable, canary = arm_name(NAME, revision(0)), arm_name(NAME, revision(1))
    async with live_rig(kubeconfig, folder, "gateway") as world, _gateway(world, kubeconfig, folder) as url:
        steps = [*({"weight": weight, "minEpisodes": 6, "pause": True} for weight in WEIGHTS), {"weight": 100}]
        await patch(world.user, MODEL_DEPLOYMENT, world.namespace, NAME, {"spec": {"rollout": {"steps": steps}}})
        operator = await world.operator()
        await world.serves(0)
        await _weighed(suite, url, {stable: 1.0})
        await world.wish(1)
        for number, weight in enumerate(WEIGHTS):
            await world.until(f"{weight} %", lambda status, weight=weight: _waits_at(status, weight))  # type: ignore[misc]
            await _weighed(suite, url, {stable: 1.0 - weight / 100, canary: weight / 100})
            approval = {names.ANNOTATION_APPROVE: f"{revision(1)} at {number} by judge"}
            await patch(world.user, MODEL_DEPLOYMENT, world.namespace, NAME, {"metadata": {"annotations": approval}})
        await world.serves(1)
        await _weighed(suite, url, {canary: 1.0})
        assert operator.codes == [], operator.output[-2000:]


def _waits_at(status: Mapping[str, Any], weight: int) -> bool:
    return status.get("phase") == "Paused" and status.get("weight") == weight


async def _weighed(suite: Suite, url: str, shares: Mapping[str, float]) -> None:
    words = [
        str(MODULE.cache() / "weight"),
        url,
        "policy.example",
        *(f"{name}={share}" for name, share in shares.items()),
    ]
    judge = await asyncio.create_subprocess_exec(*words, stderr=subprocess.PIPE)
    _, text = await judge.communicate()
    with suite.case(json.dumps(shares)):
        assert judge.returncode == 0, text.decode()[-600:]


@asynccontextmanager
async def _gateway(world: LiveRig, kubeconfig: Path, folder: Path) -> AsyncIterator[str]:
    """Contour and Envoy with the world's Gateway, and pods behind its Services; the address that users ask."""
    with ExitStack() as stack:
        port, xds, stats, health, metrics = (stack.enter_context(held_port()) for _ in range(5))
        listener = {"name": "http", "protocol": "HTTP", "port": port - CONTOURS_OFFSET}
        metadata = {"name": "edge", "namespace": world.namespace}
        for path, kind, about, spec in (
            ("gatewayclasses", "GatewayClass", {"name": "judge"}, {"controllerName": CONTROLLER}),
            (
                f"namespaces/{world.namespace}/gateways",
                "Gateway",
                metadata,
                {"gatewayClassName": "judge", "listeners": [listener]},
            ),
        ):
            body = {"apiVersion": API, "kind": kind, "metadata": about, "spec": spec}
            await world.user.http.request("POST", f"/apis/{API}/{path}", body=body)
        settings, bootstrap = folder / "contour.yaml", folder / "envoy.json"
        settings.write_text(json.dumps({"gateway": {"gatewayRef": metadata}, "accesslog-level": "disabled"}))
        contour = str(go_build.ensure(go_build.GATEWAY, go_build.GATEWAY.programs)["contour"])
        addresses = ["--xds-address=127.0.0.1", f"--xds-port={xds}"]
        made = [contour, "bootstrap", str(bootstrap), f"--admin-address={folder}/admin.sock", *addresses]
        environment = os.environ | {"CONTOUR_NAMESPACE": world.namespace}
        await asyncio.to_thread(subprocess.run, made, check=True, env=environment, stdout=sys.stderr)
        serve = [contour, "serve", f"--kubeconfig={kubeconfig}", "--insecure", *addresses, f"--config-path={settings}"]
        serve += ["--disable-leader-election", f"--stats-port={stats}", f"--health-port={health}"]
        serve += [f"--http-port={metrics}", "--http-address=127.0.0.1", "--health-address=127.0.0.1"]
        unused = ("extensionservices", "tlsroutes", "grpcroutes", "tcproutes", "backendtlspolicies")
        serve += [f"--disable-feature={name}" for name in unused]
        stack.enter_context(running(serve, folder / "contour.log", environment))
        proxy = [str(envoy.program()), "-c", str(bootstrap), "--service-cluster", "judge", "--service-node", "judge"]
        stack.enter_context(running([*proxy, "--disable-hot-restart", "-l", "warning"], folder / "envoy.log"))
        pods = asyncio.create_task(_pods(world))
        try:
            yield f"http://127.0.0.1:{port}/v1/episodes"
        finally:
            pods.cancel()
            await asyncio.gather(pods, return_exceptions=True)


async def _pods(world: LiveRig) -> None:
    """A server for each arm's Service, which answers with its name, and the EndpointSlice that leads there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_other:
        any_other.connect(("192.0.2.1", 9))  # sends nothing; slices may not have the loopback
        here = any_other.getsockname()[0]
    runners: dict[str, web.AppRunner] = {}
    try:
        while True:
            for service in await world.user.list(SERVICE, world.namespace):
                name = service["metadata"]["name"]
                if name not in runners:
                    runners[name] = await _serve(name, here)
                    await _slice(world, service, runners[name].addresses[0])
            await asyncio.sleep(0.2)
    finally:
        for runner in runners.values():
            await runner.cleanup()


async def _serve(name: str, here: str) -> web.AppRunner:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, here, 0).start()
    return runner


async def _slice(world: LiveRig, service: Mapping[str, Any], address: tuple[str, int]) -> None:
    name = service["metadata"]["name"]
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address[0]], "conditions": {"ready": True}}],
        "ports": [{"name": service["spec"]["ports"][0].get("name"), "port": address[1], "protocol": "TCP"}],
    }
    path = f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices"
    with suppress(errors.Conflict):  # of an arm that was there before
        await world.user.http.request("POST", path, body=body)


if __name__ == "__main__":
    sys.exit(main())
