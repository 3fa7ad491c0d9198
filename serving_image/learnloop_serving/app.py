"""The HTTP face of one arm. FastAPI carries the contract; the three episode verbs take a short cut past it.

The short cut: routing, dependency solving and response classes of a framework cost several times what a small policy
needs for its answer. So `/v1/episodes…` is answered from the raw ASGI scope with pre-encoded bytes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_api import names
from learnloop_api.wire.routing import (
    ActRequest,
    ActResponse,
    EndEpisode,
    OpenedEpisode,
    OpenEpisode,
    Override,
    ServingError,
)
from learnloop_common.acting.policy import Policy, PolicyError
from learnloop_common.http_server import ADVICE, encoding_of
from learnloop_serving.episodes import Episodes
from learnloop_serving.inference_protocol import oip_routes
from learnloop_serving.metrics import Metrics
from learnloop_serving.refusal import Apart, Callers, Refusal
from learnloop_serving.server_seal import Opening
from learnloop_serving.settings import Settings
from learnloop_serving.shadow import PATH as SHADOW_PATH
from learnloop_serving.shadow import shadow_routes

log = logging.getLogger(__name__)
PREFIX = "/v1/episodes"
ARM_HEADER = names.HEADER_ARM.encode()
MAX_BODY = {"open": 16_384, "act": 2_097_152, "end": 16_384}
SLOW_POLICY_SECONDS = 0.005
Fault = Literal["nobody", "arm"] | Apart
"""Who a request speaks of: nobody but this arm, this arm that failed, or no arm at all, and why."""
NEW = Opening("")
"""The episode of a request that is about to open it."""


class Arm:
    """Everything one server process holds, and the verbs of the episodes API as (status, body)."""

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
        """May this pod get traffic?"""
        return self.episodes.ready and not self.draining

    def install(self, policy: Policy, seconds_per_run: float) -> None:
        """Start serving `policy`; one that is slow runs beside the event loop so that probes are still answered."""
        self.offload = seconds_per_run > SLOW_POLICY_SECONDS
        self.episodes.policy = policy

    async def beside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run `work` on the one policy thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    async def answer(self, verb: str, episode_id: str, arm: str | None, body: bytes) -> tuple[int, bytes]:
        """One episode verb, measured; never raises. Nothing is measured of episodes that no server of this
        ModelDeployment opened."""
        opening = NEW if verb == "open" else self.episodes.ids.read(episode_id)
        if opening is None:
            self.metrics.unproven[verb].inc()
            return 404, _refused(_unknown(episode_id))
        start = time.perf_counter()
        status, answer, fault = await self._result(verb, opening, arm, body)
        self._count(verb, opening, fault, time.perf_counter() - start)
        return status, answer

    def _count(self, verb: str, opening: Opening, fault: Fault, seconds: float) -> None:
        """Count a request as evidence of this arm, unless its caller is at fault, a person decided, or its episode
        failed before."""
        if fault not in ("nobody", "arm"):
            self.metrics.apart[verb, fault].inc()
            return
        if fault == "arm" and verb == "act" and not self.episodes.fails_first(opening):
            self.metrics.apart["act", "again"].inc()
            return
        if fault == "arm":
            self.metrics.failed(verb)
        self.metrics.observe[verb](seconds)

    async def _result(self, verb: str, opening: Opening, arm: str | None, body: bytes) -> tuple[int, bytes, Fault]:
        """Status, body, and who is at fault."""
        try:
            if verb == "act" and (override := self.episodes.by_person(opening)) is not None:
                return 200, self._fixed(override), "overridden"
            if verb == "act":
                self.episodes.count_decision(opening)
            return 200, await self._do(verb, opening, arm, body), "nobody"
        except Refusal as refusal:
            return refusal.status, _refused(refusal), refusal.apart or "nobody"
        except PolicyError as error:
            log.error("policy failed: %s", error)
            return 500, _refused(Refusal(500, "PolicyError", str(error))), "arm"
        except Exception:  # whatever a policy does to us, the caller gets a refusal and the server lives on
            log.exception("%s failed", verb)
            return 500, _refused(Refusal(500, "PolicyError", "internal error, see the server's log")), "arm"

    def _fixed(self, override: Override) -> bytes:
        """The action that a person has ordered, whatever was observed: it is certain, so its log-probability is 0."""
        action = override.choice if override.choice is not None else override.numbers
        fields = {"action": action, "log_prob": 0.0, "exploration": False, "revision": self.settings.revision}
        return orjson.dumps(fields | {"override": "fixed"})

    async def _do(self, verb: str, opening: Opening, arm: str | None, body: bytes) -> bytes:
        if verb == "act":
            if self.offload:
                decision = await self.beside(self.episodes.act, opening, arm, body)
            else:
                decision = self.episodes.act(opening, arm, body)
            value = b"" if decision.q_value is None else b',"q_value":%b' % orjson.dumps(decision.q_value)
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


def _refused(refusal: Refusal) -> bytes:
    fields: dict[str, Any] = {"reason": refusal.reason, "message": refusal.message[:1000]}
    return orjson.dumps(fields | ({"retry_after": refusal.retry_after} if refusal.retry_after else {}))


class EpisodesShortCut:
    """ASGI: answers POST /v1/episodes…, hands everything else on."""

    def __init__(self, inner: ASGIApp, arm: Arm) -> None:
        self._inner = inner
        self._arm = arm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(PREFIX):
            await self._inner(scope, receive, send)
            return
        verb, episode_id = _verb(scope["path"])
        if not verb:
            await self._inner(scope, receive, send)
            return
        body = await _read(receive, MAX_BODY[verb])
        if body is None:
            message = f"body: longer than {MAX_BODY[verb]} bytes, the most {verb} takes"
            status, answer = 413, _refused(Refusal(413, "TooLarge", message))
        else:
            arm = next((value.decode("latin-1") for key, value in scope["headers"] if key == ARM_HEADER), None)
            status, answer = await self._arm.answer(verb, episode_id, arm, body)
        await _say(send, status, answer, close=body is None or self._arm.draining)


class KnownCallers:
    """ASGI: hands on what known callers send. Probes, metrics and descriptions are for everybody, and copies between
    servers carry a seal of their own."""

    def __init__(self, inner: ASGIApp, arm: Arm) -> None:
        self._inner = inner
        self._arm = arm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "http" and (encoding := encoding_of(scope["headers"])):
            text = f"Content-Encoding: {encoding!r} is not taken: {ADVICE}"
            await _say(send, 415, _refused(Refusal(415, "InvalidInput", text)), close=True)
            return
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] != SHADOW_PATH:
            authorization = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
            if refusal := await self._arm.callers.refusal(authorization):
                self._arm.metrics.strangers[refusal.reason].inc()
                await _say(send, refusal.status, _refused(refusal), close=True)
                return
        await self._inner(scope, receive, send)


async def _say(send: Send, status: int, answer: bytes, close: bool) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    if status == 429:
        headers.append((b"retry-after", b"%d" % orjson.loads(answer).get("retry_after", 1)))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _verb(path: str) -> tuple[str, str]:
    """("open"|"act"|"end"|"", episode id) of a path."""
    if path == PREFIX:
        return "open", ""
    head, _, verb = path[len(PREFIX) + 1 :].rpartition("/")
    return (verb, head) if verb in ("act", "end") and path[len(PREFIX)] == "/" and head else ("", "")


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The request body; None when it is longer than `limit` bytes or the client went away."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body if len(body) <= limit else None
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            return None
    return b"".join(parts)


def build_app(arm: Arm) -> ASGIApp:
    """The whole server as one ASGI application."""
    app = FastAPI(title="learnloop policy server", version="v1", redoc_url=None)
    app.include_router(oip_routes(arm))
    app.include_router(shadow_routes(arm))
    _add_probes(app, arm)
    _document_episodes(app, arm)
    return KnownCallers(EpisodesShortCut(app, arm), arm)


def _add_probes(app: FastAPI, arm: Arm) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        if arm.ready:
            return JSONResponse({"status": "ok"})
        missing = "draining" if arm.draining else "policy or routing table not loaded"
        return JSONResponse({"status": missing}, 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(arm.metrics.render(), media_type=arm.metrics.content_type)


def _document_episodes(app: FastAPI, arm: Arm) -> None:
    """The same verbs as routes: they give /openapi.json its schemas, the short cut answers before them."""
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"model": ServingError} for status in (400, 403, 404, 409, 410, 413, 415, 421, 429, 500, 503)
    }

    def handler(verb: str) -> Callable[..., Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            episode_id = request.path_params.get("episode_id", "")
            header = request.headers.get(names.HEADER_ARM)
            status, body = await arm.answer(verb, episode_id, header, await request.body())
            return Response(body, status, media_type="application/json")

        return handle

    for verb, path, takes, gives in (
        ("open", PREFIX, OpenEpisode, OpenedEpisode),
        ("act", f"{PREFIX}/{{episode_id}}/act", ActRequest, ActResponse),
        ("end", f"{PREFIX}/{{episode_id}}/end", EndEpisode, None),
    ):
        schema = {"requestBody": {"content": {"application/json": {"schema": takes.model_json_schema()}}}}
        app.add_api_route(
            path,
            handler(verb),
            methods=["POST"],
            name=verb,
            summary=takes.__doc__,
            responses=refusals | ({200: {"model": gives}} if gives else {}),
            openapi_extra=schema,
        )
