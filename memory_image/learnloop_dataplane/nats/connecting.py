"""How this process connects to NATS, and which servers it takes."""

import logging
from typing import Any

import nats
from nats.aio.client import Client

from learnloop_common.key_lines import KeyLines
from learnloop_common.tls.contexts import client_context
from learnloop_dataplane.config import Config
from learnloop_dataplane.successive_logins import newest_login

log = logging.getLogger(__name__)
OLDEST = (2, 12)
"""Before it the server reads an acknowledgement as an order: JSON with fields it does not know."""


class TooOld(Exception):
    """The server is older than OLDEST."""


async def connected(config: Config, user: str | None) -> Client:
    """A connection that is kept for ever.

    Args:
        user: one of the server's configuration; None where it asks for none.

    Raises:
        nats.errors.Error, OSError: not at this moment.
        TooOld: names the version and the one that is needed.
    """
    options: dict[str, Any] = {}
    if user:
        name, password = user, ""
        if config.nats_password:
            name, password = newest_login(user, KeyLines.parse(config.nats_password.get_secret_value()))
        options = {"user": name, "password": password}
    client = await nats.connect(
        (config.nats_url or "").split(","),
        name="learnloop-memory",
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.25,
        connect_timeout=2,
        ping_interval=10,
        max_outstanding_pings=2,
        error_cb=_log_error,
        # Where the server asks for none it is not used.
        tls=client_context(),
        **options,
    )
    try:
        refuse_old(client)
    except TooOld:
        await client.close()
        raise
    return client


def refuse_old(client: Client) -> None:
    """Raises TooOld when the server that this client is connected to is; a cluster may have several."""
    version = client.connected_server_version
    if (version.major, version.minor) < OLDEST:
        raise TooOld(
            f"NATS is version {version.major}.{version.minor}.{version.patch}, and learnloop needs "
            f"{OLDEST[0]}.{OLDEST[1]} or newer; upgrade the server (in the chart: nats.image)"
        )


async def _log_error(error: Exception) -> None:
    log.info("NATS: %s", str(error)[:300])
