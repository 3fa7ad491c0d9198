"""One server process: load the policy, follow the routing table, serve, drain."""

import asyncio
import logging
import ssl
import sys
import time

import uvicorn
import uvloop
from starlette.types import ASGIApp

from learnloop_api import names
from learnloop_common import process_end
from learnloop_common.http.draining_server import DrainingServer
from learnloop_common.http.probes_port import serve_both
from learnloop_common.tls.pod_certificate import NotIssued, own_context
from learnloop_serving.app import Arm, build_app
from learnloop_serving.arms.routing_table import ConfigMapWatch, RoutingState, follow_file
from learnloop_serving.arms.server_seal import Seal, follow_key
from learnloop_serving.episodes import Episodes
from learnloop_serving.loader import load_policy
from learnloop_serving.metrics import Metrics
from learnloop_serving.probes import probes_config
from learnloop_serving.settings import ConfigurationError, Settings, read_settings
from learnloop_serving.uniform_policies import measure
from learnloop_serving.uvicorn_config import uvicorn_config

log = logging.getLogger(__name__)
CONNECTIONS = 2048


async def serve(settings: Settings, tls: ssl.SSLContext | None = None) -> int:
    """Serve until told to stop; returns the exit status, 1 when the policy could not be loaded.

    Raises:
        ConfigurationError: the key of the episodes cannot be used.
    """
    try:
        seal = Seal.read(settings.episode_key_file)
    except ValueError as error:
        raise ConfigurationError(f"{names.ENV_EPISODE_KEY_FILE}: {error}") from error
    metrics = Metrics(settings.model_deployment, settings.revision)
    routing = RoutingState(settings.model_deployment, metrics)
    episodes = Episodes(settings.model_deployment, settings.revision, settings.routing_mode, routing, metrics, seal)
    arm = Arm(settings, episodes, metrics)
    app = build_app(arm)
    server = DrainingServer(_config(settings, app, tls), arm)
    endless = {
        "routing table": follow_file(settings.routing_file, routing)
        if settings.routing_file is not None
        else ConfigMapWatch(settings, routing, metrics).follow(),
        "shadow copies": episodes.mirror.run(),
        "canary reachability": episodes.reach.run(),
    }
    if settings.episode_key_file is not None:
        endless["episode key"] = follow_key(settings.episode_key_file, seal)
    try:
        return await serve_both(
            server, probes_config(app, settings, tls), endless=endless, passing={"model": _load(settings, arm)}
        )
    finally:
        arm.pool.shutdown(wait=False, cancel_futures=True)


def _config(settings: Settings, app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn_config(app, settings.host, settings.port, connections=CONNECTIONS, tls=tls, drain_seconds=10)


async def _load(settings: Settings, arm: Arm) -> None:
    """Load and install the policy; raises ModelError."""
    start = time.monotonic()
    policy = await load_policy(settings)
    arm.install(policy, await asyncio.to_thread(measure, policy))
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
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = read_settings()
        try:
            tls = own_context()
        except (NotIssued, ValueError, OSError) as error:
            raise ConfigurationError(f"no certificate to serve with: {error}") from error
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(settings, tls))
    except ConfigurationError as error:
        process_end.leave(str(error))
        return 1
