"""Takes what tenants publish on NATS into the streams, so that the server itself never answers a tenant.

JetStream sends its acknowledgement to whatever reply subject a publisher names, with the server's own rights: a purge
of a stream, another tenant's subject or an event that only the data plane may claim would do. So tenants have a NATS
account without JetStream (see the chart's configuration), where this process alone reads what they publish. It
publishes that in its own account, answers in theirs, and answers on an inbox of the publisher's namespace only.
"""

import asyncio
import logging
from collections import Counter
from contextlib import suppress

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError, NoRespondersError

from learnloop_api import names
from learnloop_common.http_server import LogThrottle
from learnloop_dataplane.concurrency.limits import EpisodeRate
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError, ConfigError
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats import auth_callout, connection, event_outbox

log = logging.getLogger(__name__)
QUEUE = "learnloop"
TAKEN = (names.SUBJECT_TRAJECTORY, names.SUBJECT_TRAINING_REQUEST)
MAX_REPLY = 256
IN_HAND = 256
"""Messages of one namespace that wait for their acknowledgement; the SDK sends 64 together."""
WAIT_SECONDS = 5.0
PENDING_BYTES = 64 * 2**20
"""Bound on messages that nats-py buffers before it drops them unacknowledged, and on those that the relay has published
and JetStream has not acknowledged: at the bound the relay waits."""
MESSAGE_ID = "Nats-Msg-Id"


class Relay:
    """From the tenants' account into the data plane's own; replicas share the messages.

    Args:
        metrics: count what is refused.
        rate: episodes a second of each namespace.
    """

    def __init__(self, metrics: Metrics, rate: EpisodeRate) -> None:
        self._metrics, self._rate, self._refusals = metrics, rate, LogThrottle()
        self._in_hand: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._own: Client | None = None
        self._tenants: Client | None = None

    async def listen(self, own: Client, tenants: Client) -> None:
        """From now on, also after reconnections.

        Args:
            own: connected to the account that has the streams.
            tenants: connected to the tenants' account.

        Raises:
            nats.errors.Error: the server does not take the subscriptions.
        """
        self._own, self._tenants = own, tenants
        for subject in TAKEN:
            await tenants.subscribe(f"{subject}.>", queue=QUEUE, cb=self._take, pending_bytes_limit=PENDING_BYTES)
        await tenants.flush()

    async def _take(self, message: Msg) -> None:
        prefix = next(prefix for prefix in TAKEN if message.subject.startswith(f"{prefix}."))
        namespace = message.subject.removeprefix(f"{prefix}.").partition(".")[0]
        if not event_outbox.valid_namespace(namespace) or not answerable(message.reply, namespace):
            # Without an answer: no subject to send it to.
            self._refused(namespace, "reply", f"{message.reply[:MAX_REPLY]!r} is not an inbox of the publisher")
            return
        if self._in_hand[namespace] >= IN_HAND:
            why = f"{IN_HAND} messages of namespace {namespace} wait for their acknowledgement; wait for some of them"
            self._refused(namespace, "in_hand", why)
            await self._answer(message.reply, _error(429, why))
            return
        if prefix == names.SUBJECT_TRAJECTORY:
            try:
                self._rate.admit(namespace)
            except ApiError as error:
                self._refused(namespace, "over_quota", error.message)
                await self._answer(message.reply, _error(429, error.message))
                return
        self._in_hand[namespace] += 1
        self._bytes += len(message.data)
        task = asyncio.create_task(self._forward(message, namespace))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        while self._bytes > PENDING_BYTES:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def _refused(self, namespace: str, why: str, sentence: str) -> None:
        self._metrics.count("relay_refusals", namespace, why)
        if (end := self._refusals.due(namespace, why)) is not None:
            log.warning("NATS: a message of %r is refused: %s%s", namespace, sentence, end)

    async def _forward(self, message: Msg, namespace: str) -> None:
        assert self._own is not None
        identity = (message.headers or {}).get(MESSAGE_ID)
        # Of the publisher's headers none but this goes on: others are orders to JetStream.
        headers = {MESSAGE_ID: event_outbox.tenants_id(namespace, message.subject, identity)} if identity else None
        try:
            answer = (await self._own.request(message.subject, message.data, WAIT_SECONDS, headers=headers)).data
        except NoRespondersError:
            answer = _error(503, "no stream; send it again")
        except (NatsError, TimeoutError, OSError) as error:
            log.info("NATS: an event of %s is not taken: %s", namespace, error)
            answer = _error(503, "the data plane has lost NATS; send it again")
        finally:
            self._in_hand[namespace] -= 1
            self._bytes -= len(message.data)
        await self._answer(message.reply, answer)

    async def _answer(self, reply: str, data: bytes) -> None:
        assert self._tenants is not None
        try:
            await self._tenants.publish(reply, data)
        except (NatsError, OSError) as error:
            log.info("NATS: an answer is lost, its message will be sent again: %s", error)


def answerable(reply: str, namespace: str) -> bool:
    """May a publisher of this namespace be answered there? On its own inboxes, and nowhere else."""
    inbox = f"{names.nats_inbox(namespace)}."
    plain = reply.isascii() and reply.isprintable() and not any(sign in reply for sign in " *>")
    return reply.startswith(inbox) and len(reply) <= MAX_REPLY and plain and all(reply.split("."))


def _error(code: int, description: str) -> bytes:
    return orjson.dumps({"error": {"code": code, "description": description}, "stream": ""})


async def isolated(tenants: Client) -> bool:
    """Has the tenants' account no JetStream? Then no answer of a server's can be turned into an order."""
    try:
        answer = await tenants.request("$JS.API.INFO", b"", timeout=1)
    except (TimeoutError, NatsError):
        return True
    return "error" in orjson.loads(answer.data)


class TenantConnection:
    """A second connection, to the account in which tenants publish."""

    def __init__(self, config: Config, callout: auth_callout.AuthCallout, relay: Relay) -> None:
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
        self._client = await connection.connected(self._config, auth_callout.TENANTS_USER)
        if not await isolated(self._client):
            raise ConfigError(
                f"user {auth_callout.TENANTS_USER} of NATS reaches JetStream, so every tenant would; "
                f"give it an account {auth_callout.ACCOUNT} without JetStream, as the chart's nats.conf does"
            )
        await self._relay.listen(own, self._client)
        await self._callout.listen(own)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            with suppress(NatsError, OSError, TimeoutError):
                await client.close()
