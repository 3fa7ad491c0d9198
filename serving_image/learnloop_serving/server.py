"""One server process: the HTTP interface of an arm, its policy, the routing table that it follows, and its end."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_api import names
from learnloop_api.wire.routing import Override
from learnloop_common.acting.policy import Policy, PolicyError, written
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
from learnloop_serving import episode_ids, inference_protocol, policy_loader, routing_table, shadow
from learnloop_serving.callers_and_refusals import Apart, Callers, Refusal, log_stranger, read_body, refused
from learnloop_serving.episodes import Episodes
from learnloop_serving.server_metrics import Metrics
from learnloop_serving.settings import Settings

PREFIX = "/v1/episodes"
MAX_BODY = {"open": 16_384, "act": 2_097_152, "end": 16_384}
SLOW_POLICY_SECONDS = 0.005
Outcome = Literal["fine", "arm"] | Apart
"""Outcome of a request: evidence for this arm, against it, or the reason why it is not evidence."""
NEW = episode_ids.Opening("")
"""The episode of a request that opens one."""


class Arm:
    """State of one server process, and the verbs of the episodes API."""

    def __init__(self, settings: Settings, episodes: Episodes, metrics: Metrics) -> None:
        self.settings = settings
        self.episodes = episodes
        self.metrics = metrics
        self.callers = Callers(settings.caller_keys, settings.served_namespaces)
        self.draining = False
        self.drain_seconds = settings.drain_seconds
        self.offload = False
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self._revision_json = orjson.dumps(settings.revision)

    @property
    def ready(self) -> bool:
        """May this pod get requests?"""
        return self.episodes.ready and not self.draining

    def install(self, policy: Policy, seconds_per_run: float) -> None:
        """Start serving `policy`; a slow one runs on a thread of its own, so that probes are still answered."""
        self.offload = seconds_per_run > SLOW_POLICY_SECONDS
        self.episodes.policy = policy

    async def beside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run `work` on the one policy thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    async def answer(self, verb: str, episode_id: str, arm: str | None, body: bytes) -> Response:
        """Answer a verb and measure it; never raises. Episodes of other ModelDeployments are not measured."""
        opening = NEW if verb == "open" else self.episodes.ids.read(episode_id)
        if opening is None:
            self.metrics.unproven[verb].inc()
            return refused(_unknown(episode_id))
        start = time.perf_counter()
        answer, outcome = await self._result(verb, opening, arm, body)
        self._count(verb, opening, outcome, time.perf_counter() - start)
        return answer

    def _count(self, verb: str, opening: episode_ids.Opening, outcome: Outcome, seconds: float) -> None:
        """Count a request as evidence of this arm, unless its caller is at fault, a person decided, or its episode
        failed before."""
        if outcome not in ("fine", "arm"):
            self.metrics.apart[verb, outcome].inc()
            return
        if outcome == "arm" and verb == "act" and not self.episodes.fails_first(opening):
            self.metrics.apart["act", "again"].inc()
            return
        if outcome == "arm":
            self.metrics.failed(verb)
        self.metrics.observe[verb](seconds)

    async def _result(
        self, verb: str, opening: episode_ids.Opening, arm: str | None, body: bytes
    ) -> tuple[Response, Outcome]:
        try:
            if verb == "act" and (override := self.episodes.by_person(opening)) is not None:
                return _json(self._fixed(override)), "overridden"
            if verb == "act":
                self.episodes.count_decision(opening)
            return _json(await self._do(verb, opening, arm, body)), "fine"
        except Refusal as refusal:
            return refused(refusal), refusal.apart or "fine"
        except PolicyError as error:
            log.error("policy failed: %s", error)
            return refused(Refusal(500, "PolicyError", str(error))), "arm"
        except Exception:  # a policy must not end the server
            log.exception("%s failed", verb)
            return refused(Refusal(500, "PolicyError", "internal error, see the server's log")), "arm"

    def _fixed(self, override: Override) -> bytes:
        """The action that a person has ordered, whatever was observed: it is certain, so its log-probability is 0."""
        action = override.choice if override.choice is not None else override.numbers
        fields = {"action": action, "log_prob": 0.0, "exploration": False, "revision": self.settings.revision}
        return orjson.dumps(fields | {"override": "fixed"})

    async def _do(self, verb: str, opening: episode_ids.Opening, arm: str | None, body: bytes) -> bytes:
        if verb == "act":
            if self.offload:
                decision = await self.beside(self.episodes.act, opening, arm, body)
            else:
                decision = self.episodes.act(opening, arm, body)
            value = b"" if decision.q_value is None else b',"q_value":%b' % orjson.dumps(decision.q_value)
            if decision.memory is not None:
                value += b',"memory":"%b"' % written(decision.memory).encode()
            if decision.intervened is not None:
                value += b',"intervened":%b' % (b"true" if decision.intervened else b"false")
            return b'{"action":%b,"log_prob":%b,"exploration":%b,"revision":%b%b}' % (
                orjson.dumps(decision.action),
                orjson.dumps(decision.log_prob),
                b"true" if decision.drawn else b"false",
                self._revision_json,
                value,
            )
        if verb == "open":
            return self.episodes.open(body).model_dump_json().encode()
        return b'{"counted":true}' if self.episodes.end(opening, arm, body) else b'{"counted":false}'


def _unknown(episode_id: str) -> Refusal:
    message = f"episode_id: {episode_id[:128]!r} was opened by no server of this ModelDeployment: open an episode first"
    return Refusal(404, "UnknownEpisode", message)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


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
        shadow.shadow_route(arm),
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


class Probed(Drains, Protocol):
    """A server whose probes are asked."""

    metrics: Metrics

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
    metrics = Metrics(settings.model_deployment, settings.revision)
    routing = routing_table.RoutingState(settings.model_deployment, metrics)
    episodes = Episodes(settings.model_deployment, settings.revision, settings.routing_mode, routing, metrics, seal)
    arm = Arm(settings, episodes, metrics)
    app = build_app(arm)
    config = uvicorn_config(app, settings.host, settings.port, connections=CONNECTIONS, tls=tls, drain_seconds=10)
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
    routing: routing_table.RoutingState,
    metrics: Metrics,
    episodes: Episodes,
    seal: episode_ids.Seal,
) -> dict[str, Coroutine[Any, Any, None]]:
    """Tasks that every server of an arm runs until it ends."""
    followed = settings.routing_file
    tasks = {
        "routing table": routing_table.follow_file(followed, routing)
        if followed is not None
        else routing_table.ConfigMapWatch(settings, routing, metrics).follow(),
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
