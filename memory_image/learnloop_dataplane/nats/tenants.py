"""The tenants' side of a NATS server that has accounts: who may connect, and what becomes of what they publish."""

from contextlib import suppress

from nats.aio.client import Client
from nats.errors import Error as NatsError

from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.nats.auth_callout import ACCOUNT, AuthCallout
from learnloop_dataplane.nats.connection import connected
from learnloop_dataplane.nats.relay import Relay, isolated


class TenantConnection:
    """A second connection, to the account in which tenants publish."""

    def __init__(self, config: Config, callout: AuthCallout, relay: Relay) -> None:
        self._config = config
        self._callout = callout
        self._relay = relay
        self._client: Client | None = None

    async def serve(self, own: Client) -> None:
        """From now on tenants are let in and heard, also after reconnections.

        Args:
            own: connected to the account that has the streams.

        Raises:
            nats.errors.Error, OSError: not at this moment.
            ConfigError: the server would answer tenants by itself.
        """
        await self.close()
        self._client = await connected(self._config, self._config.nats_tenants_user)
        if not await isolated(self._client):
            raise ConfigError(
                f"user {self._config.nats_tenants_user} of NATS reaches JetStream, so every tenant would; "
                f"give it an account {ACCOUNT} without JetStream, as the chart's nats.conf does"
            )
        await self._relay.listen(own, self._client)
        await self._callout.listen(own)

    async def close(self) -> None:
        """Hears no tenant any more."""
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            with suppress(NatsError, OSError, TimeoutError):
                await client.close()
