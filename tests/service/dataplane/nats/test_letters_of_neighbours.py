"""A namespace that floods the dead letters loses its own, and takes nobody else's."""

import asyncio

import nats as client_of_nats

from learnloop_api import names
from learnloop_dataplane.nats.streams import DEAD_LETTERS, LETTERS_EACH, ensure_streams
from testing.servers.nats_server import Nats

BODY = b"x" * 2048
FLOOD = 10_000
"""20 MiB of letters into a stream of 16 MiB."""


async def test_a_flood_of_one_namespace_evicts_no_letter_of_another(nats: Nats) -> None:
    client = await client_of_nats.connect(nats.url)
    js = client.jetstream()
    await ensure_streams(js, 2**20)
    await js.purge_stream(DEAD_LETTERS)
    subjects = {tenant: f"{names.SUBJECT_DEAD_LETTER}.{tenant}.trajectory" for tenant in ("quiet", "loud")}
    for _ in range(10):
        await js.publish(subjects["quiet"], BODY)
    for _ in range(FLOOD // 500):
        await asyncio.gather(*[await js.publish_async(subjects["loud"], BODY) for _ in range(500)])
    found = (await js.stream_info(DEAD_LETTERS, subjects_filter=">")).state.subjects or {}
    assert found[subjects["quiet"]] == 10
    assert found[subjects["loud"]] == LETTERS_EACH
    await js.purge_stream(DEAD_LETTERS)
    await client.close()
