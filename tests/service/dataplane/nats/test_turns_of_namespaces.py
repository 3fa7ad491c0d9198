"""A namespace in a flood has its turn, and its neighbours have theirs before it goes on."""

from learnloop_api import events, names
from learnloop_dataplane.concurrency import background_loop
from learnloop_dataplane.nats.event_outbox import BATCH, EventOutbox

from ..conftest import Api, eventually, register

FLOOD = 3 * BATCH + 10
EXAMPLE = events.EVENTS[names.SUBJECT_MODEL_DEPLOYED][1]


async def flood(api: Api, namespace: str) -> None:
    async with api.db.tenant(namespace) as connection:
        await connection.execute(
            "INSERT INTO event_outbox (namespace, message_id, subject, payload) "
            "SELECT $1, $1 || '/flood/' || n, $2, '{}' FROM generate_series(1, $3) AS n",
            namespace,
            f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.walker",
            FLOOD,
        )


async def waiting(api: Api, namespace: str) -> int:
    async with api.db.tenant(namespace) as connection:
        query = "SELECT count(*) FROM event_outbox WHERE namespace = $1 AND published_at IS NULL"
        return int(await connection.fetchval(query, namespace))


async def test_a_flood_is_published_in_turns_and_to_its_end(guarded, cluster, monkeypatch):
    api, _ = guarded
    monkeypatch.setattr(background_loop, "TURN", BATCH)
    await register(api, cluster, "red", "cart")
    await flood(api, "blue")
    assert await EventOutbox(api.db, api.bus).run("blue") == BATCH, "one turn, whatever waits"
    assert await waiting(api, "blue") > 0
    await flood(api, "red")
    api.plane.shared.arrived("red")

    async def published() -> bool:
        return await waiting(api, "red") == 0

    await eventually(published, 20.0)
