"""Pulls messages from a stream, keeps them in progress, and explains why one is refused."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from learnloop_dataplane.nats.subjects import Code, RefusedMessage

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus

log = logging.getLogger(__name__)
BATCH = 64
MAX_FIELD = 60
MAX_DELIVER = 20
Handler = Callable[[Sequence[Msg]], Awaitable[None]]


def consumer_config(durable: str, filter_subjects: list[str], ack_wait: float) -> ConsumerConfig:
    """A delivery counts only when a process died with the message in hand: a database that is away is waited for with
    the batch kept in progress. So 20 deliveries, further and further apart, mean a message that kills its reader.
    Where it begins is said when it is made; see `pull_forever`."""
    backoff = [ack_wait, ack_wait, ack_wait * 2, ack_wait * 4, ack_wait * 8]
    return ConsumerConfig(
        durable_name=durable,
        ack_policy=AckPolicy.EXPLICIT,
        filter_subjects=filter_subjects,
        max_deliver=MAX_DELIVER,
        backoff=backoff,
        max_ack_pending=BATCH * 4,
    )


async def pull_forever(
    bus: "Bus", stream: str, config: ConsumerConfig, since: Callable[[], datetime], handle: Handler
) -> None:
    """Runs until cancelled. Whatever goes wrong, the streams and the consumer are put in place again and it goes on.

    Args:
        since: the arrival of the oldest message that a consumer begins with where there is none yet, or it was lost.
    """
    await bus.ready.wait()
    delay = 0.1
    while True:
        try:
            await bus.ensure()
            subscription = await _subscribe(bus.js, stream, config, since)
            delay = 0.1
            await _drain(subscription, handle)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a reader that stops is a queue that grows
            log.warning("%s: reading is interrupted, next attempt in %.1f s: %r", stream, delay, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 5.0)


async def _subscribe(
    js: JetStreamContext, stream: str, config: ConsumerConfig, since: Callable[[], datetime]
) -> JetStreamContext.PullSubscription:
    durable = config.durable_name or ""
    try:
        there = (await js.consumer_info(stream, durable)).config
    except NotFoundError:
        begin = config.evolve(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since())
    else:  # the server lets all be changed but the beginning
        begin = config.evolve(deliver_policy=there.deliver_policy, opt_start_time=there.opt_start_time)
    await js.add_consumer(stream, begin)
    return await js.pull_subscribe_bind(durable=durable, stream=stream)


async def _drain(subscription: JetStreamContext.PullSubscription, handle: Handler) -> None:
    try:
        while True:
            try:
                messages = await subscription.fetch(BATCH, timeout=2)
            except TimeoutError:  # of nats-py, or asyncio's own, which nats-py lets through
                # Nothing there. Asking also notices a consumer that is gone: its absence looks like silence.
                await subscription.consumer_info()
                continue
            await handle(messages)
    finally:
        try:
            await subscription.unsubscribe()
        except Exception:  # the connection is gone; so is the subscription
            log.debug("unsubscribe failed", exc_info=True)


async def keep(messages: Sequence[Msg]) -> None:
    """Tells NATS that these are being worked on; without NATS it goes on waiting for PostgreSQL."""
    for message in messages:
        with suppress(NatsError, OSError):
            await message.in_progress()


@asynccontextmanager
async def kept(messages: Sequence[Msg], interval: float) -> AsyncIterator[None]:
    """Keeps the messages in progress while something slow runs: a busy database must not look like a dead reader."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(interval)
            await keep(messages)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


_FIXES = {
    "missing": "add it",
    "extra_forbidden": "remove it: the schema has no such field",
    "json_invalid": "send one JSON object (RFC 8259)",
}


def invalid(namespace: str, subject: str, error: ValidationError) -> RefusedMessage:
    """The refusal of a body: the first faulty field, without its value, which may be private.

    Args:
        subject: the event's, without namespace and name; its schema is served under this name.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first = errors[0]
    # pydantic puts the types that it tried of a field among the fields, such as list[float].
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    field = ".".join(part[:MAX_FIELD] for part in path) or "body"
    fix = _FIXES.get(first["type"], "correct it")
    more = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    message = f"{field}: {first['msg'].removeprefix('Value error, ')}; {fix} and publish it under a new Nats-Msg-Id"
    code: Code = "json" if first["type"] == "json_invalid" else "schema"
    return RefusedMessage(namespace, code, f"{message}; schema: /api/v1/schemas/{subject}{more}")
