"""Events of the outbox: written once, published at least once, seen once."""

import json
from collections.abc import Callable
from functools import partial
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
        beat = events.EVENTS[names.SUBJECT_TRAINING_STATUS][1]
        ended = {name: value for name, value in beat.items() if name not in ("status", "progress")} | {"phase": "done"}
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


async def test_a_rollback_is_published_once_with_the_proof_of_its_artifact_and_stays_listed(api: Api) -> None:
    call = partial(api.call, namespace="team-d")
    example = {**EXAMPLE, "model_deployment": "pacer"}
    taken = {**example, "event": "rolled_back", "revision": "bad0bad0", "reason": "ReturnWorse", "sha256": "1" * 64}
    serves, path = "/api/v1/models/pacer/deployed", "/api/v1/models/pacer/rolled-back"
    await call("PUT", serves, json=example)
    news = [(await call("PUT", path, json=body))["new"] for body in (taken, taken)]
    later = {**taken, "deployed_at": "2026-02-03T12:00:00Z"}
    assert [*news, (await call("PUT", path, json=later))["new"]] == [True, False, True]
    assert (await call("PUT", serves, json=example))["new"] is False, "a rollback changes nothing of what serves"
    listed = (await call("GET", "/api/v1/models"))["models"]
    assert [item["model_deployment"] for item in listed] == ["pacer"]
    assert listed[0]["serving"]["revision"] == EXAMPLE["revision"]
    assert (listed[0]["rolled_back"]["reason"], listed[0]["serving"]["validation"]) == ("ReturnWorse", None)
    await call("PUT", serves.replace("pacer", "runner"), json={**EXAMPLE, "model_deployment": "runner"})
    page = await call("GET", "/api/v1/models?limit=1")
    rest = await call("GET", f"/api/v1/models?limit=1&after={page['next']}")
    assert [page["models"][0]["model_deployment"], rest["models"][0]["model_deployment"]] == ["pacer", "runner"]
    refused = await call("PUT", serves, 409, json=taken)
    assert refused["error"]["field"] == "event"
    await call("DELETE", "/api/v1/models/runner", 204)
    assert len((await call("GET", "/api/v1/models"))["models"]) == 1
    assert (await api.call("GET", "/api/v1/models", namespace="team-e"))["models"] == []


async def test_an_artifact_keeps_its_proof_in_the_news_when_its_run_has_made_another_update(api: Api) -> None:
    figures = {"episodes": 8, "mean": 7.0, "iqm": 7.0, "ci_low": 6.0, "ci_high": 8.0}
    proof = {"artifact_sha256": "2" * 64, "evaluation": figures, "baseline": figures, "difference": None}
    example = {**EXAMPLE, "model_deployment": "keeper", "sha256": "2" * 64}
    async with api.db.tenant("team-k") as connection:
        made = "INSERT INTO training_runs (namespace, job, proof) VALUES ('team-k', 'keeper-1', $1)"
        await connection.execute(made, json.dumps(proof))
    await api.call("PUT", "/api/v1/models/keeper/deployed", json=example, namespace="team-k")
    async with api.db.tenant("team-k") as connection:
        later = json.dumps(proof | {"artifact_sha256": "3" * 64})
        await connection.execute("UPDATE training_runs SET proof = $1", later)
    taken = {**example, "event": "rolled_back", "revision": "bad0bad0", "reason": "ReturnWorse"}
    await api.call("PUT", "/api/v1/models/keeper/rolled-back", json=taken, namespace="team-k")
    [listed] = (await api.call("GET", "/api/v1/models", namespace="team-k"))["models"]
    for news in (listed["serving"], listed["rolled_back"]):
        assert (news["validation"]["job"], news["validation"]["evaluation"]["mean"]) == ("keeper-1", 7.0)


async def test_a_run_is_told_from_queued_to_its_verdict_and_each_of_it_once(api: Api) -> None:
    queued = {
        **events.EVENTS[names.SUBJECT_TRAINING_STATUS][1],
        "phase": "queued",
        "status": "queued",
        "job_uid": "u1",
        "progress": 0,
    }
    path = "/api/v1/training/runs/walker-7/status"
    judged = {**queued, "phase": "rejected", "status": "failed", "error": {"reason": "GatesFailed", "message": "no"}}
    other = {**queued, "job_uid": "u2"}
    news = [(await api.call("PUT", path, json=body))["new"] for body in (queued, queued, judged, judged, other)]
    assert news == [True, False, True, False, True], "a job of the same name is another one"
    async with api.db.tenant("team-a") as connection:
        rows = await connection.fetch("SELECT payload FROM event_outbox WHERE message_id LIKE '%/status/walker-7/%'")
    assert sorted(json.loads(row["payload"])["phase"] for row in rows) == ["queued", "queued", "rejected"]


async def test_a_run_that_ran_since_is_told_as_queued_again_and_once(api: Api) -> None:
    event = events.EVENTS[names.SUBJECT_TRAINING_STATUS][1]
    beat = {name: value for name, value in event.items() if name not in ("status", "progress")} | {"job": "walker-8"}
    queued = {**event, "job": "walker-8", "phase": "queued", "status": "queued", "job_uid": "u1"}
    path, news = "/api/v1/training/runs/walker-8", list[bool]()
    for second in range(3):
        news += [(await api.call("PUT", f"{path}/status", json=queued))["new"] for _ in range(2)]
        at = f"2026-01-31T12:00:0{second}Z"
        await api.call("PUT", f"{path}/heartbeat", json={**beat, "phase": "training", "at": at})
    assert news == [True, False] * 3


async def test_what_served_when_is_on_record_and_another_namespace_does_not_see_it(api: Api) -> None:
    later = {**EXAMPLE, "revision": "99ffee00", "deployed_at": "2026-02-01T12:00:00Z"}
    again = {**EXAMPLE, "deployed_at": "2026-02-02T12:00:00Z"}
    news = [(await api.call("PUT", PATH, json=body))["new"] for body in (EXAMPLE, again, later, later, again)]
    assert news == [True, False, True, False, True], "told twice is one change; served again is another"
    deployed = (await api.call("GET", PATH))["deployed"]
    assert [item["revision"] for item in deployed] == [EXAMPLE["revision"], "99ffee00", EXAMPLE["revision"]]
    pages, after = [], ""
    for _ in range(2):
        page = await api.call("GET", f"{PATH}?limit=2{after}")
        pages, after = pages + page["deployed"], f"&after={page['next']}"
    assert (pages, page["next"]) == (deployed, None)
    assert (await api.call("GET", PATH, namespace="team-b"))["deployed"] == []
    refused = await api.call("PUT", "/api/v1/models/other/deployed", 409, json=EXAMPLE)
    assert refused["error"]["field"] == "model_deployment"
