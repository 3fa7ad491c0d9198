"""The relay holds a bounded part of what tenants publish while JetStream acknowledges nothing."""

import asyncio
from unittest.mock import AsyncMock, Mock

from learnloop_api import names
from learnloop_dataplane.nats.connection import MAX_MESSAGE
from learnloop_dataplane.nats.relay import PENDING_BYTES, Relay


async def test_large_messages_that_are_not_acknowledged_hold_the_next_ones_back() -> None:
    acknowledged = asyncio.Event()

    async def request(*_: object, **__: object) -> Mock:
        await acknowledged.wait()
        return Mock(data=b"{}")

    own, tenants = Mock(request=request, is_connected=True), Mock(subscribe=AsyncMock(), flush=AsyncMock())
    tenants.publish = AsyncMock()
    relay = Relay(Mock(), Mock())
    await relay.listen(own, tenants)
    take = tenants.subscribe.await_args_list[0].kwargs["cb"]
    subject, reply = f"{names.SUBJECT_TRAJECTORY}.red.walker", f"{names.nats_inbox('red')}.1"
    message = Mock(subject=subject, reply=reply, data=bytes(MAX_MESSAGE), headers=None)
    for _ in range(PENDING_BYTES // MAX_MESSAGE):
        await take(message)
    waiting = asyncio.create_task(take(message))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    acknowledged.set()
    await asyncio.wait_for(waiting, 5)
    await asyncio.sleep(0.05)
    assert tenants.publish.await_count == PENDING_BYTES // MAX_MESSAGE + 1
