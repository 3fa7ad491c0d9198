"""One gateway process: its HTTP interface, its tokeniser, the routing table that it follows, and its end."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable

import orjson
from starlette.requests import Request
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from learnloop_common.http_server import (
    DrainingServer,
    closing,
    encoding_problem,
    probes_config,
    run,
    serve_both,
    uvicorn_config,
)
from learnloop_common.settings import ConfigurationError
from learnloop_common.tls import with_scheme
from learnloop_gateway import chat_tokens, model_servers, replies, text_answers, token_answers
from learnloop_gateway.arms import Arms
from learnloop_gateway.conversation_routing import CHAT, Gateway, refused
from learnloop_gateway.recording import LanguageMetrics, OpenSessions, Recording
from learnloop_gateway.settings import ENV_TOKENISER, GatewaySettings, ServerSettings
from learnloop_sdk import http_client, outbox
from learnloop_serving import refusals, routing_table_in_force, server_metrics
from learnloop_serving.episodes import Episodes
from learnloop_serving.server import background_tasks, probes, read_seal

EPISODES = "/v1/episodes"
MODELS = "/v1/models"
MOST_BYTES = 8 * 2**20


def build_app(gateway: Gateway) -> ASGIApp:
    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        out = replies.Outgoing(send)
        try:
            methods = _methods(scope["path"])
            if scope["method"] not in methods:
                out.headers["allow"] = ", ".join(methods)
                raise replies.ApiError(405, f"{scope['method']} is not served here, {out.headers['allow']} is")
            if scope["method"] == "POST":
                await _post(gateway, scope, receive, out)
            else:
                await _get(gateway, scope["path"], out)
        except Exception as error:  # a request that fails must not end the gateway
            failure = refused(error)
            if out.started:
                return
            out.headers |= {"retry-after": str(failure.retry_after)} if failure.retry_after else {}
            await out.whole(failure.status, failure.to_json())

    routes = probes(gateway, "model server or routing table not there yet")
    return closing(Router(routes, redirect_slashes=False, default=api), gateway)


def _methods(path: str) -> tuple[str, ...]:
    """Methods that are served at a path; raises ApiError 404 where there are none."""
    if path == CHAT or (path.startswith(f"{EPISODES}/") and path.endswith("/end")):
        return ("POST",)
    if path == MODELS or path.startswith(f"{MODELS}/"):
        return "GET", "HEAD"
    raise replies.ApiError(404, f"{path[:200]}: nothing is served there")


async def _get(gateway: Gateway, path: str, out: replies.Outgoing) -> None:
    if path == MODELS:
        await out.whole(200, orjson.dumps({"object": "list", "data": gateway.models()}))
    else:
        result = next((model for model in gateway.models() if model["id"] == path[len(MODELS) + 1 :]), None)
        if result is None:
            raise replies.ApiError(
                404, f"model: {path[len(MODELS) + 1 :][:80]!r} is not served here", code="model_not_found"
            )
        await out.whole(200, orjson.dumps(result))


async def _post(gateway: Gateway, scope: Scope, receive: Receive, out: replies.Outgoing) -> None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    authorization = headers.get("authorization", "").encode("latin-1")
    if refusal := await gateway.callers.refusal(authorization):
        refusals.log_stranger(scope, refusal)
        gateway.metrics.strangers[refusal.reason].inc()
        raise replies.of_refusal(refusal)
    if problem := encoding_problem(scope["headers"]):
        raise replies.ApiError(415, problem, code="unsupported_encoding")
    path = scope["path"]
    body = await refusals.read_body(Request(scope, receive), MOST_BYTES)
    if path == CHAT:
        await _unless_gone(gateway.complete(headers, body, out), receive)
    else:
        await gateway.end(path[len(EPISODES) + 1 : -len("/end")], headers, body, out)


async def _unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Do `work` until it is done or the client disconnects."""
    answering = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not answering.done():
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    if not answering.cancelled():
        answering.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


log = logging.getLogger(__name__)
FLUSH_SECONDS = 8.0
CONNECTIONS = 4096


def model_server(server: ServerSettings) -> model_servers.ModelServer:
    return model_servers.ModelServer(server.url, server.key())


def token_upstream(server: ServerSettings, tokens: chat_tokens.ChatTokens) -> model_servers.TokenServer:
    connection = model_server(server)
    if server.kind == "llama.cpp":
        return model_servers.LlamaCpp(connection)
    adapter = (server.adapter, server.adapter_folder) if server.adapter is not None else None
    return model_servers.Vllm(connection, server.model, adapter, tuple(tokens.stops))


def read_tokens(settings: GatewaySettings) -> chat_tokens.ChatTokens | None:
    """Tokeniser and template; None for a server of text. Raises ConfigurationError."""
    if settings.tokeniser is None or settings.server.kind == "openai":
        return None
    try:
        tokens = chat_tokens.ChatTokens(settings.tokeniser)
    except chat_tokens.TokeniserError as error:
        raise ConfigurationError(f"{ENV_TOKENISER}: {error}") from None
    wanted = settings.model.template_sha256
    if wanted and tokens.template_sha256 != wanted:
        raise ConfigurationError(
            f"languageModel.templateSha256: {wanted}: the template in {settings.tokeniser} has "
            f"{tokens.template_sha256}: correct one of the two, nothing is learned from turns of another template"
        )
    return tokens


async def serve(settings: GatewaySettings, tls: ssl.SSLContext | None = None) -> int:
    """Serve until told to stop; returns the exit status. Raises ConfigurationError."""
    own = settings.serving
    tokens = read_tokens(settings)
    seal = read_seal(own)
    metrics = server_metrics.Metrics(own.model_deployment, own.revision, server_metrics.LANGUAGE_BUCKETS)
    language = LanguageMetrics(metrics.of)
    routing = routing_table_in_force.RoutingState(own.model_deployment, metrics)
    episodes = Episodes(own.model_deployment, own.revision, own.routing_mode, routing, metrics, seal)
    arms = Arms(own.model_deployment, own.revision, episodes, routing, seal, settings.agent)
    identity = http_client.Identity(own.namespace, own.token_file)
    http, data_url = http_client.Http(), with_scheme(own.data_url)
    send = outbox.Service(http, data_url, identity).deliver if data_url else None
    recording = Recording(settings.turns, settings.agent, own.model_deployment, send)
    sessions = OpenSessions(recording, idle_seconds=settings.idle_seconds, touched=arms.touched)
    fallback = stand_in = None
    if settings.fallback is not None:
        stand_in = model_servers.OpenAiChat(model_server(settings.fallback), settings.fallback.model)
        fallback = text_answers.Relaying(stand_in, recording, language)
    answering: token_answers.Answering | text_answers.Relaying
    if tokens is None:
        relayed = model_servers.OpenAiChat(model_server(settings.server), settings.server.model)
        upstream: model_servers.Upstream = relayed
        answering = text_answers.Relaying(relayed, recording, language)
    else:
        drawn = token_upstream(settings.server, tokens)
        upstream = drawn
        answering = token_answers.Answering(settings, tokens, drawn, recording, language)
    gateway = Gateway(settings, arms, episodes, upstream, answering, fallback, sessions, metrics, language)
    sessions.restore()
    app = build_app(gateway)
    config = uvicorn_config(app, own.host, own.port, connections=CONNECTIONS, tls=tls)
    probes = probes_config(app, own.host, own.probes_port, tls)
    endless = background_tasks(own, routing, metrics, episodes, seal) | {"conversations": sessions.sweep()}
    try:
        return await serve_both(
            DrainingServer(config, gateway), probes, endless=endless, passing={"model server": gateway.prepare()}
        )
    finally:
        await gateway.close()
        if stand_in is not None:
            await stand_in.close()
        await recording.flush(FLUSH_SECONDS)
        await http.close()


def main() -> int:
    """Entry point of `python -m learnloop_gateway`."""
    return run(GatewaySettings, serve)
