"""Pulls messages from a stream, keeps them in hand, and explains why one is refused."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from learnloop_common.redaction.redactor import is_secret_name
from learnloop_dataplane.nats.subjects import RefusedMessage
from learnloop_dataplane.strict_json import TOO_MANY, TOO_WIDE

if TYPE_CHECKING:
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


async def keep(messages: Sequence[Msg]) -> None:
    """Tells NATS that these are being worked on; an absent NATS is no reason to stop waiting for PostgreSQL."""
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


MAX_VALUE = 60
# Written by people or about them: of such texts a letter's headers say only how long they are.
_FREE_TEXT = frozenset({"task", "metadata", "observation", "action", "note", "reason"})
_FIXES = {
    "missing": "add it",
    "extra_forbidden": "take it out: the schema knows no such field",
    "json_invalid": "send one JSON object (RFC 8259) under a new Nats-Msg-Id",
}
_CORRECT = "correct it"
_ABSENT: Any = object()


def invalid(namespace: str, subject: str, error: ValidationError, data: bytes) -> RefusedMessage:
    """The refusal of a body.

    Args:
        subject: the event's, without namespace and name; its schema is served under this name.
        error: what the reader of `data` said.
    """
    found: Any = error.errors(include_url=False, include_input=False, include_context=False)
    kind, told = found[0]["type"], _said(found[0])
    if kind in (TOO_WIDE, TOO_MANY):  # reading it once more would cost what the reader saved
        return RefusedMessage(namespace, "schema", f"body: {told}; publish it under a new Nats-Msg-Id")
    again = f"{_FIXES.get(kind, _CORRECT)} and publish it under a new Nats-Msg-Id"
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as broken:
        told = told if kind == "json_invalid" else f"Invalid JSON: {broken}"
        return RefusedMessage(namespace, "json", f"body: {told}; {_FIXES['json_invalid']}")
    places = [_reached(body, item["loc"]) for item in found]
    first = places[0][0]
    # A field of several types has one complaint for each of them; the one that came furthest is about the type meant.
    path, value = max((place for place in places if place[0][: len(first)] == first), key=lambda place: len(place[0]))
    said = list(dict.fromkeys(_said(item) for item, place in zip(found, places, strict=True) if place[0] == path))
    where = ".".join(str(part)[:MAX_VALUE] for part in path) or "body"
    known = kind != "extra_forbidden"
    shown = "" if value is _ABSENT else f" is {described(value, path, known=known)}"
    reason = f"{where}{shown}: {' / '.join(said[:4])}; {again}; schema: /api/v1/schemas/{subject}"
    return RefusedMessage(namespace, "schema", reason)


def _said(item: Any) -> str:
    return str(item["msg"]).removeprefix("Value error, ")


def _reached(body: Any, where: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """The part of a complaint's place that is in the body or missing there, and what stands there.

    pydantic adds to a place which of several types it was trying; those names are no fields.
    """
    path: list[str | int] = []
    here = body
    for number, part in enumerate(where):
        if isinstance(here, dict) and part in here:
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif isinstance(here, dict) and number == len(where) - 1:
            return [*path, part], _ABSENT
        else:
            continue
        path.append(part)
    return path, here


def described(value: Any, path: Sequence[str | int], *, known: bool = True) -> str:
    """What stands in a field, in a few words without secrets.

    Args:
        known: the schema has this field; of any other a text says how long it is only.
    """
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if any(is_secret_name(str(part)) for part in path):
        return "a secret"
    if isinstance(value, str):
        private = not known or not path or not _FREE_TEXT.isdisjoint(map(str, path))
        return f"a text of {len(value)} characters" if private or len(value) > MAX_VALUE else repr(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and (not known or "metadata" in path):
        return "a number"  # a person's number is a person's name
    return orjson.dumps(value).decode()[:MAX_VALUE]
