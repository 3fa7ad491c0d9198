"""What goes through the outbox: written once, published at least once, seen once."""

import json
from collections.abc import Callable
from os import getpid
from pathlib import Path

import nats as nats_client
import pytest

from learnloop_api import events, names

from ..conftest import START_SECONDS, Api, Nats, eventually, running, settings

EXAMPLE = events.EVENTS[names.SUBJECT_MODEL_DEPLOYED][1]
PATH = "/api/v1/models/walker/deployed"


async def test_what_is_told_while_nats_is_away_is_published_once_when_it_is_back(
    migrated: Callable[[str], str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, port: int
) -> None:
    server = Nats(tmp_path_factory.mktemp("nats-outbox"), port).start()
    async with running(**settings(migrated(f"outbox_{getpid()}"), tmp_path, nats_url=server.url)) as api:
        server.kill()
        assert (await api.call("PUT", PATH, json=EXAMPLE))["new"] is True
        assert (await api.call("PUT", PATH, json=EXAMPLE))["new"] is False
        ended = {**events.EVENTS[names.SUBJECT_TRAINING_STATUS][1], "phase": "done"}
        for _ in range(2):
            await api.call("PUT", f"/api/v1/training/runs/{ended['job']}/heartbeat", json=ended)
        server.start()

        async def published() -> bool:
            async with api.db.tenant("team-a") as connection:
                return bool(await connection.fetchval("SELECT bool_and(published_at IS NOT NULL) FROM event_outbox"))

        await eventually(published)
        # Published again, as after a crash between the acknowledgement and the mark: the stream has it once.
        async with api.db.tenant("team-a") as connection:
            await connection.execute("UPDATE event_outbox SET published_at = NULL")
        await eventually(published)
        client = await nats_client.connect(server.url, connect_timeout=20)
        js = client.jetstream(timeout=START_SECONDS)
        message = await js.get_last_msg("RL_TRAINING", f"{names.SUBJECT_MODEL_DEPLOYED}.team-a.walker")
        assert json.loads(message.data or b"")["revision"] == EXAMPLE["revision"]
        last = await js.get_last_msg("RL_TRAINING", f"{names.SUBJECT_TRAINING_STATUS}.team-a.{ended['job']}")
        assert json.loads(last.data or b"")["phase"] == "done"
        assert (await js.stream_info("RL_TRAINING")).state.messages == 2
        await client.close()
    server.kill()


async def test_what_served_when_is_on_record_and_another_namespace_does_not_see_it(api: Api) -> None:
    later = {**EXAMPLE, "revision": "99ffee00", "deployed_at": "2026-02-01T12:00:00Z"}
    again = {**EXAMPLE, "deployed_at": "2026-02-02T12:00:00Z"}
    news = [(await api.call("PUT", PATH, json=body))["new"] for body in (EXAMPLE, again, later, later, again)]
    assert news == [True, False, True, False, True], "told twice is one change; served again is another"
    told = (await api.call("GET", PATH))["deployed"]
    assert [item["revision"] for item in told] == [EXAMPLE["revision"], "99ffee00", EXAMPLE["revision"]]
    pages, after = [], ""
    for _ in range(2):
        page = await api.call("GET", f"{PATH}?limit=2{after}")
        pages, after = pages + page["deployed"], f"&after={page['next']}"
    assert (pages, page["next"]) == (told, None)
    assert (await api.call("GET", PATH, namespace="team-b"))["deployed"] == []
    refused = await api.call("PUT", "/api/v1/models/other/deployed", 409, json=EXAMPLE)
    assert refused["error"]["field"] == "model_deployment"
