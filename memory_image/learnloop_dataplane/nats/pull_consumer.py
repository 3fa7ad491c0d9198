"""One durable pull consumer: fetch a batch, hand it over, for ever."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from learnloop_dataplane.nats.connection import Bus

log = logging.getLogger(__name__)
BATCH = 64
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
    bus: Bus, stream: str, config: ConsumerConfig, since: Callable[[], datetime], handle: Handler
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
        except Exception as error:  # a reader that stops is a queue that grows for ever
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
