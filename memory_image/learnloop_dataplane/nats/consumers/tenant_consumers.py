"""Lets tenants pull from durable consumers, without a word of theirs reaching JetStream.

A tenant's program speaks JetStream's API in its namespace's domain. This process hears it in the tenants' account, and
pulls in its own, on an inbox of its own. It passes each message on to the inbox of the program, with a subject at which
to acknowledge. Nothing is remembered of that: any replica takes the acknowledgement. A message that is lost on its way
is given out again when its time to be acknowledged is over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.consumers import consumer_limits
from learnloop_dataplane.nats.consumers.consumer_limits import TooMuch
from learnloop_dataplane.nats.consumers.consumer_names import (
    ConsumerGroup,
    numbers_of,
    streams_ack,
    tenants_ack,
    told_of,
)
from learnloop_dataplane.nats.consumers.consumer_orders import ConsumerRequest, Orders, refusal
from learnloop_dataplane.nats.consumers.status_message import send_status
from learnloop_dataplane.nats.relay import answerable
from learnloop_dataplane.nats.subjects import valid_namespace

log = logging.getLogger(__name__)
QUEUE = "learnloop"
HEARD = "$JS.*.API.CONSUMER.>"
ACKS = "$JS.*.ACK.>"
ACK_BYTES = 256
ACK_WORDS = (b"", b"+ACK", b"-NAK", b"+WPI", b"+TERM")
"""What an acknowledgement may begin with. `+NXT` is not among them: it has JetStream send the next message."""
PULLS_EACH = 32
"""Requests for messages of one namespace that wait at this process; each waits for 30 s at most."""
ORDERS_EACH = 8
PENDING_BYTES = 16 * 2**20
STATUS, DESCRIPTION = "Status", "Description"
HEARTBEAT = "100"


class TenantConsumers:
    """From the tenants' account to the streams and back, beside other replicas that do the same.

    Args:
        metrics: count what is refused.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._orders = Orders()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulls: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._own: Client | None = None
        self._tenants: Client | None = None

    async def listen(self, own: Client, tenants: Client) -> None:
        """From now on, also after reconnections.

        Raises:
            nats.errors.Error: the server does not take the subscriptions.
        """
        self._own, self._tenants = own, tenants
        await tenants.subscribe(HEARD, queue=QUEUE, cb=self._heard, pending_bytes_limit=PENDING_BYTES)
        await tenants.subscribe(ACKS, queue=QUEUE, cb=self._acknowledged, pending_bytes_limit=PENDING_BYTES)
        await tenants.flush()

    async def _heard(self, message: Msg) -> None:
        _, namespace, _, _, rest = message.subject.split(".", 4)
        if not valid_namespace(namespace) or not answerable(message.reply, namespace):
            self._metrics.relay_refused(namespace, "reply")
            return
        asked = ConsumerRequest.read(rest)
        if asked is None or asked.problem():
            problem = asked.problem() if asked else f"CONSUMER.{rest[:64]} is not offered to tenants"
            if asked and asked.verb == "NEXT":
                await self._status(message.reply, 409, problem)
            else:
                await self._answer(message.reply, refusal(400, problem))
            return
        if asked.verb == "NEXT":
            told = f"{PULLS_EACH} requests of namespace {namespace} wait for messages; ask for more at once"
            if not self._begin(self._pulls, PULLS_EACH, namespace, lambda: self._pull(message, namespace, asked)):
                await self._status(message.reply, 409, told)
            return
        order = self._begin(self._asked, ORDERS_EACH, namespace, lambda: self._order(message, namespace, asked))
        if not order:
            told = (
                f"{ORDERS_EACH} requests of namespace {namespace} about consumers wait for their answer; wait as well"
            )
            await self._answer(message.reply, refusal(429, told))

    def _begin(self, under_way: Counter[str], most: int, namespace: str, work: Callable[[], Awaitable[None]]) -> bool:
        if under_way[namespace] >= most:
            self._metrics.relay_refused(namespace, "in_hand")
            return False
        under_way[namespace] += 1

        async def done() -> None:
            try:
                await work()
            except (NatsError, TimeoutError, OSError) as error:
                log.info("NATS: what %s asked of a consumer is lost, it will ask again: %s", namespace, error)
            finally:
                under_way[namespace] -= 1
                if not under_way[namespace]:
                    del under_way[namespace]

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _order(self, message: Msg, namespace: str, asked: ConsumerRequest) -> None:
        assert self._own is not None
        await self._answer(message.reply, await self._orders.answer(self._own, namespace, asked, message.data))

    async def _pull(self, message: Msg, namespace: str, asked: ConsumerRequest) -> None:
        assert self._own is not None
        try:
            request = consumer_limits.pull(orjson.loads(message.data) if message.data else {})
        except (TooMuch, ValueError) as error:
            await self._status(message.reply, 400, f"Bad Request - {error}")
            return
        group = ConsumerGroup(namespace, asked.stream, asked.name)
        inbox = self._own.new_inbox()
        subscription = await self._own.subscribe(inbox)
        try:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{group.stream}.{group.consumer}"
            await self._own.publish(subject, orjson.dumps(request), reply=inbox)
            async with asyncio.timeout(request.get("expires", 0) / consumer_limits.SECOND + 5):
                left = request["batch"]
                while left:
                    left -= await self._passed_on(await subscription.next_msg(60), group, message.reply, left)
        finally:
            if not self._own.is_closed:
                await subscription.unsubscribe()

    async def _passed_on(self, found: Msg, group: ConsumerGroup, reply: str, left: int) -> int:
        """How many of those that are left come no more, this one counted."""
        assert self._tenants is not None
        status = (found.headers or {}).get(STATUS)
        if status:
            await self._status(reply, int(status), (found.headers or {}).get(DESCRIPTION, ""))
            return 0 if status == HEARTBEAT else left
        if (numbers := numbers_of(group, found.reply)) is None:
            log.warning("NATS: %r acknowledges nothing of %s", found.reply[:256], group)
            return left
        headers = {**(found.headers or {}), **told_of(group, found.subject, numbers)}
        await self._tenants.publish(reply, found.data, reply=tenants_ack(group, numbers), headers=headers)
        return 1

    async def _acknowledged(self, message: Msg) -> None:
        assert self._own is not None
        known = streams_ack(message.subject)
        if known is None or len(message.data) > ACK_BYTES or message.data.split(b" ", 1)[0] not in ACK_WORDS:
            self._metrics.relay_refused(message.subject.split(".")[1], "acknowledgement")
            return
        group, subject = known
        try:
            if not message.reply:
                await self._own.publish(subject, message.data)
            elif answerable(message.reply, group.namespace):
                self._begin(self._asked, PULLS_EACH * 2, group.namespace, lambda: self._confirm(message, subject))
            else:
                self._metrics.relay_refused(group.namespace, "reply")
        except (NatsError, OSError) as error:
            log.info("NATS: an acknowledgement is lost, its message comes again: %s", error)

    async def _confirm(self, message: Msg, subject: str) -> None:
        assert self._own is not None
        answer = await self._own.request(subject, message.data, timeout=4)
        await self._answer(message.reply, answer.data)

    async def _answer(self, reply: str, data: bytes) -> None:
        assert self._tenants is not None
        try:
            await self._tenants.publish(reply, data)
        except (NatsError, OSError) as error:
            log.info("NATS: an answer is lost, it will be asked for again: %s", error)

    async def _status(self, reply: str, code: int, sentence: str) -> None:
        assert self._tenants is not None
        await send_status(self._tenants, reply, code, sentence)
