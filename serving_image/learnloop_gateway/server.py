"""One gateway process: read the tokeniser, follow the routing table, wait for the model server, serve, drain."""

import logging
import ssl

from learnloop_common.http_server import DrainingServer, probes_config, run, serve_both, uvicorn_config
from learnloop_common.settings import ConfigurationError
from learnloop_common.tls.contexts import with_scheme
from learnloop_gateway.app import build_app
from learnloop_gateway.arms import Arms
from learnloop_gateway.chat_template import ChatTokens, TokeniserError
from learnloop_gateway.gateway import Gateway
from learnloop_gateway.model_servers import LlamaCpp, OpenAiChat, TokenServer, Upstream, Vllm
from learnloop_gateway.recording import LanguageMetrics, OpenSessions, Recording
from learnloop_gateway.settings import ENV_TOKENISER, GatewaySettings, ServerSettings
from learnloop_gateway.text_turns import Relaying
from learnloop_gateway.token_turns import Answering
from learnloop_gateway.upstream import ModelServer
from learnloop_sdk.http_client import Http, Identity
from learnloop_sdk.outbox import Service
from learnloop_serving.episodes import Episodes
from learnloop_serving.metrics import LANGUAGE_BUCKETS, Metrics
from learnloop_serving.routing_table import RoutingState
from learnloop_serving.server import background_tasks, read_seal

log = logging.getLogger(__name__)
FLUSH_SECONDS = 8.0
CONNECTIONS = 4096


def model_server(server: ServerSettings) -> ModelServer:
    """The connection to a server."""
    return ModelServer(server.url, server.key())


def token_upstream(server: ServerSettings, tokens: ChatTokens) -> TokenServer:
    """A server of tokens."""
    connection = model_server(server)
    if server.kind == "llama.cpp":
        return LlamaCpp(connection)
    adapter = (server.adapter, server.adapter_folder) if server.adapter is not None else None
    return Vllm(connection, server.model, adapter, tuple(tokens.stops))


def read_tokens(settings: GatewaySettings) -> ChatTokens | None:
    """Tokeniser and template; None for a server of text. Raises ConfigurationError."""
    if settings.tokeniser is None or settings.server.kind == "openai":
        return None
    try:
        tokens = ChatTokens(settings.tokeniser)
    except TokeniserError as error:
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
    metrics = Metrics(own.model_deployment, own.revision, LANGUAGE_BUCKETS)
    language = LanguageMetrics(metrics.of)
    routing = RoutingState(own.model_deployment, metrics)
    episodes = Episodes(own.model_deployment, own.revision, own.routing_mode, routing, metrics, seal)
    arms = Arms(own.model_deployment, own.revision, episodes, routing, seal, settings.agent)
    identity = Identity(own.namespace, own.token_file)
    http, data_url = Http(), with_scheme(own.data_url)
    send = Service(http, data_url, identity).deliver if data_url else None
    recording = Recording(settings.turns, settings.agent, own.model_deployment, send)
    sessions = OpenSessions(recording, idle_seconds=settings.idle_seconds, touched=arms.touched)
    fallback = stand_in = None
    if settings.fallback is not None:
        stand_in = OpenAiChat(model_server(settings.fallback), settings.fallback.model)
        fallback = Relaying(stand_in, recording, language)
    answering: Answering | Relaying
    if tokens is None:
        relayed = OpenAiChat(model_server(settings.server), settings.server.model)
        upstream: Upstream = relayed
        answering = Relaying(relayed, recording, language)
    else:
        drawn = token_upstream(settings.server, tokens)
        upstream = drawn
        answering = Answering(settings, tokens, drawn, recording, language)
    gateway = Gateway(settings, arms, episodes, upstream, answering, fallback, sessions, metrics, language)
    sessions.restore()
    app = build_app(gateway)
    config = uvicorn_config(app, own.host, own.port, connections=CONNECTIONS, tls=tls, drain_seconds=10)
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
