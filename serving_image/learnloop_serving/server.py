"""One server process: load the policy, follow the routing table, serve, drain."""

import asyncio
import logging
import ssl
import time
from collections.abc import Coroutine
from typing import Any

from learnloop_api import names
from learnloop_common.http_server import DrainingServer, probes_config, run, serve_both, uvicorn_config
from learnloop_common.settings import ConfigurationError
from learnloop_serving.app import Arm, build_app
from learnloop_serving.episodes import Episodes
from learnloop_serving.loader import load_policy, measure
from learnloop_serving.metrics import Metrics
from learnloop_serving.routing_table import ConfigMapWatch, RoutingState, follow_file
from learnloop_serving.server_seal import Seal, follow_key
from learnloop_serving.settings import Settings

log = logging.getLogger(__name__)
CONNECTIONS = 2048


async def serve(settings: Settings, tls: ssl.SSLContext | None = None) -> int:
    """Serve until told to stop; returns the exit status, 1 when the policy could not be loaded.

    Raises:
        ConfigurationError: the key of the episodes cannot be used.
    """
    seal = read_seal(settings)
    metrics = Metrics(settings.model_deployment, settings.revision)
    routing = RoutingState(settings.model_deployment, metrics)
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
    settings: Settings, routing: RoutingState, metrics: Metrics, episodes: Episodes, seal: Seal
) -> dict[str, Coroutine[Any, Any, None]]:
    """Tasks that every server of an arm runs until it ends."""
    followed = settings.routing_file
    tasks = {
        "routing table": follow_file(followed, routing)
        if followed is not None
        else ConfigMapWatch(settings, routing, metrics).follow(),
        "canary reachability": episodes.reach.run(),
    }
    if settings.episode_key_file is not None:
        tasks["episode key"] = follow_key(settings.episode_key_file, seal)
    return tasks


def read_seal(settings: Settings) -> Seal:
    """The key of the episodes; raises ConfigurationError."""
    try:
        return Seal.read(settings.episode_key_file)
    except ValueError as error:
        raise ConfigurationError(f"{names.ENV_EPISODE_KEY_FILE}: {error}") from error


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
    return run(Settings, serve)
