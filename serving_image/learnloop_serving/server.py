"""One server process: the HTTP interface of an arm, its policy, the routing table that it follows, and its end."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_api import names
from learnloop_common.http_server import (
    DrainingServer,
    Drains,
    closing,
    encoding_problem,
    probes_config,
    run,
    serve_both,
    uvicorn_config,
)
from learnloop_common.settings import ConfigurationError
from learnloop_serving import (
    episode_ids,
    inference_protocol,
    policy_loader,
    routing_table_in_force,
    server_metrics,
    shadow,
)
from learnloop_serving.arm import Arm
from learnloop_serving.episodes import Episodes
from learnloop_serving.refusals import Refusal, log_stranger, read_body, refused
from learnloop_serving.settings import Settings

PREFIX = "/v1/episodes"
MAX_BODY = {"open": 16_384, "act": 2_097_152, "end": 16_384}


def authenticated(app: ASGIApp, arm: Arm) -> ASGIApp:
    """`app` for requests of known callers. Probes, metrics and metadata are open to everybody; copies have a mark."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers", ())
        refusal = None
        if problem := encoding_problem(headers):
            refusal = Refusal(415, "InvalidInput", problem)
        elif scope["type"] == "http" and scope["method"] == "POST" and scope["path"] != shadow.PATH:
            authorization = next((value for key, value in headers if key == b"authorization"), b"")
            if refusal := await arm.callers.refusal(authorization):
                log_stranger(scope, refusal)
                arm.metrics.strangers[refusal.reason].inc()
        if refusal:
            await refused(refusal, inference=scope["path"].startswith("/v2"))(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def build_app(arm: Arm) -> ASGIApp:
    """The whole server as one ASGI application."""
    routes = [
        *_episode_routes(arm),
        *inference_protocol.oip_routes(arm),
        _shadow_route(arm),
        *probes(arm, "policy or routing table not loaded"),
    ]
    return closing(authenticated(Router(routes, redirect_slashes=False), arm), arm)


def _episode_routes(arm: Arm) -> list[Route]:
    def handler(verb: str) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                body = await read_body(request, MAX_BODY[verb])
            except Refusal as refusal:
                return refused(refusal)
            episode_id = request.path_params.get("episode_id", "")
            return await arm.answer(verb, episode_id, request.headers.get(names.HEADER_ARM), body)

        return handle

    paths = {"open": PREFIX, "act": f"{PREFIX}/{{episode_id}}/act", "end": f"{PREFIX}/{{episode_id}}/end"}
    return [Route(path, handler(verb), methods=["POST"]) for verb, path in paths.items()]


MAX_COPIES = 4_194_304


def _shadow_route(arm: Arm) -> Route:
    """POST /v1/shadow: copies of stable's decisions, for `arm`."""

    async def copies(request: Request) -> Response:
        try:
            body = await read_body(request, MAX_COPIES)
            batch = arm.episodes.shadow.read(body, request.headers.get(names.HEADER_MARK, ""))
            await arm.on_policy_thread(arm.episodes.shadow.take, arm.episodes.loaded(), batch)
        except Refusal as refusal:
            return refused(refusal)
        return Response(status_code=202)

    return Route(shadow.PATH, copies, methods=["POST"])


class Probed(Drains, Protocol):
    """A server whose probes are asked."""

    metrics: server_metrics.Metrics

    @property
    def ready(self) -> bool:
        """May this pod get requests?"""


def probes(arm: Probed, missing: str) -> list[Route]:
    """Liveness, readiness and metrics; `missing`: the status of a server that is not ready yet."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        if arm.ready:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "draining" if arm.draining else missing}, 503)

    async def metrics(_: Request) -> Response:
        return Response(arm.metrics.render(), media_type=arm.metrics.content_type)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


log = logging.getLogger(__name__)
CONNECTIONS = 2048


async def serve(settings: Settings, tls: ssl.SSLContext | None = None) -> int:
    """Serve until told to stop; returns the exit status, 1 when the policy could not be loaded.

    Raises:
        ConfigurationError: the key of the episodes cannot be used.
    """
    seal = read_seal(settings)
    metrics = server_metrics.Metrics(settings.model_deployment, settings.revision)
    routing = routing_table_in_force.RoutingState(settings.model_deployment, metrics)
    episodes = Episodes(settings.model_deployment, settings.revision, settings.routing_mode, routing, metrics, seal)
    arm = Arm(settings, episodes, metrics)
    app = build_app(arm)
    config = uvicorn_config(app, settings.host, settings.port, connections=CONNECTIONS, tls=tls)
    probes = probes_config(app, settings.host, settings.probes_port, tls)
    endless = background_tasks(settings, routing, metrics, episodes, seal) | {"shadow copies": episodes.mirror.run()}
    try:
        return await serve_both(
            DrainingServer(config, arm), probes, endless=endless, passing={"model": _load(settings, arm)}
        )
    finally:
        arm.pool.shutdown(wait=False, cancel_futures=True)


def background_tasks(
    settings: Settings,
    routing: routing_table_in_force.RoutingState,
    metrics: server_metrics.Metrics,
    episodes: Episodes,
    seal: episode_ids.Seal,
) -> dict[str, Coroutine[Any, Any, None]]:
    """Tasks that every server of an arm runs until it ends."""
    followed = settings.routing_file
    tasks = {
        "routing table": routing_table_in_force.follow_file(followed, routing)
        if followed is not None
        else routing_table_in_force.ConfigMapWatch(settings, routing, metrics).follow(),
        "canary reachability": episodes.reach.run(),
    }
    if settings.episode_key_file is not None:
        tasks["episode key"] = episode_ids.follow_key(settings.episode_key_file, seal)
    return tasks


def read_seal(settings: Settings) -> episode_ids.Seal:
    """The key of the episodes; raises ConfigurationError."""
    try:
        return episode_ids.Seal.read(settings.episode_key_file)
    except ValueError as error:
        raise ConfigurationError(f"{names.ENV_EPISODE_KEY_FILE}: {error}") from error


async def _load(settings: Settings, arm: Arm) -> None:
    """Load and install the policy; raises ModelError."""
    start = time.monotonic()
    policy = await policy_loader.load_policy(settings)
    arm.install(policy, await asyncio.to_thread(policy_loader.measure, policy))
    arm.metrics.model_load_seconds.set(time.monotonic() - start)
    log.info(
        "policy %s loaded in %.2f s: %s observations, %d actions",
        settings.revision,
        time.monotonic() - start,
        policy.observations or "any number of",
        policy.actions,
    )


def main() -> int:
    """Entry point of `python -m learnloop_serving`."""
    return run(Settings, serve)
