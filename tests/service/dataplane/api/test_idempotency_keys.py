"""Idempotency-Key: the same request is done once, whoever loses its answer."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from learnloop_dataplane.api import idempotency
from testing.servers.token_issuer import Cluster

from ..conftest import Api, superuser, trajectory

STORE = {"agent_id": "a", "memory_type": "semantic", "content": {"text": "water boils at 100 degrees"}}


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


CREATES: list[tuple[str, dict[str, Any], int]] = [
    ("/api/v1/memory/store", STORE, 201),
    ("/api/v1/memory/store/batch", {"memories": [STORE, STORE]}, 201),
    ("/api/v1/memory/consolidate", {"agent_id": "a"}, 200),
    ("/api/v1/trajectories", trajectory("once"), 202),
    ("/api/v1/feedback", {"trajectory_id": "once", "user_id": "anna", "thumbs": "up"}, 200),
    ("/api/v1/erasure", {"user_id": "nobody"}, 200),
]


@pytest.mark.parametrize(("path", "body", "status"), CREATES, ids=[path for path, _, _ in CREATES])
async def test_the_same_request_again_has_the_same_answer_and_another_one_is_refused(
    api: Api, path: str, body: dict[str, Any], status: int
) -> None:
    key = keyed(path.strip("/").replace("/", "."))
    first = await api.call("POST", path, status, json=body, headers=key)
    again = await api.client.post(path, json=body, headers={**key, "x-learnloop-namespace": "team-a"})
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (status, first, "true")
    refused = await api.call("POST", path, 409, json={**body, "more": 1}, headers=key)
    assert refused["error"]["field"] == "idempotency-key"
    assert "another request" in refused["error"]["message"]


async def test_two_memories_without_a_key_are_two_and_with_one_they_are_one(api: Api) -> None:
    for _ in range(2):
        await api.call("POST", "/api/v1/memory/store", 201, namespace="count", json=STORE)
        await api.call("POST", "/api/v1/memory/store", 201, namespace="count", json=STORE, headers=keyed("k"))
    found = await api.call("GET", "/api/v1/memory/entries?agent_id=a", namespace="count")
    assert len(found["memories"]) == 3


async def test_a_key_is_its_namespaces_own_and_a_refused_request_may_be_corrected_under_it(api: Api) -> None:
    wrong = {**STORE, "importance": 7}
    await api.call("POST", "/api/v1/memory/store", 422, namespace="n1", json=wrong, headers=keyed("same"))
    one = await api.call("POST", "/api/v1/memory/store", 201, namespace="n1", json=STORE, headers=keyed("same"))
    other = await api.call("POST", "/api/v1/memory/store", 201, namespace="n2", json=STORE, headers=keyed("same"))
    assert one["id"] != other["id"]
    await api.call("POST", "/api/v1/memory/store", 422, namespace="n1", json=STORE, headers=keyed("no spaces"))


async def test_a_key_is_its_callers_own_and_an_agent_never_hears_what_an_administrator_was_answered(
    guarded: Api, cluster: Cluster
) -> None:
    body = {"user_id": "anna"}
    cluster.rights["system:serviceaccount:red:admin"] = {"delete people"}

    async def erase(account: str) -> Any:
        headers = {"Authorization": f"Bearer {cluster.token('red', account)}", **keyed("one")}
        return await guarded.client.post("/api/v1/erasure", json=body, headers=headers)

    done, again, other = await erase("admin"), await erase("admin"), await erase("agent")
    assert (done.status_code, again.headers.get("idempotency-replayed")) == (200, "true")
    assert other.status_code == 403
    assert "may not delete people" in other.json()["error"]["message"]


async def test_of_ten_at_once_one_is_done_and_the_others_wait_or_hear_its_answer(api: Api) -> None:
    async def send() -> Any:
        headers = {**keyed("storm"), "x-learnloop-namespace": "storm"}
        return await api.client.post("/api/v1/memory/store", json=STORE, headers=headers)

    answers = await asyncio.gather(*(send() for _ in range(10)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    found = await api.call("GET", "/api/v1/memory/entries?agent_id=a", namespace="storm")
    assert len(found["memories"]) == 1


async def test_a_claim_whose_process_died_is_free_after_minutes_and_a_key_is_forgotten_after_a_day(
    api: Api, dsn: str
) -> None:
    await api.call("POST", "/api/v1/memory/store", 201, namespace="dead", json=STORE, headers=keyed("old"))

    async def age(seconds: float, status: int | None) -> None:
        async with superuser(dsn) as connection:
            await connection.execute(
                "UPDATE idempotency_keys SET status = $2, claimed_at = now() - $1::interval WHERE namespace = 'dead'",
                timedelta(seconds=seconds),
                status,
            )

    await age(1, None)
    busy = await api.call("POST", "/api/v1/memory/store", 409, namespace="dead", json=STORE, headers=keyed("old"))
    assert "is under way" in busy["error"]["message"]
    await age(idempotency.CLAIM_SECONDS + 1, None)
    await api.call("POST", "/api/v1/memory/store", 201, namespace="dead", json=STORE, headers=keyed("old"))
    await age(90_000, 201)
    await api.privacy.retention.run()
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM idempotency_keys WHERE namespace = 'dead'") == 0


async def test_the_texts_that_forgetting_answers_are_kept_under_no_key(api: Api, dsn: str) -> None:
    await api.call("POST", "/api/v1/memory/store", 201, namespace="texts", json=STORE)
    forget = {"agent_id": "a", "budget": 0}
    for forgotten in (1, 0):
        done = await api.call("POST", "/api/v1/memory/forget", namespace="texts", json=forget, headers=keyed("f"))
        assert done["forgotten"] == forgotten
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM idempotency_keys WHERE namespace = 'texts'") == 0


async def test_a_process_that_was_stopped_for_long_does_not_end_the_claim_of_another(
    api: Api, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, reached, go_on = "/api/v1/memory/store", asyncio.Event(), asyncio.Event()
    store = api.memory.writes.store

    async def slow(*arguments: Any, **more: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await store(*arguments, **more)

    monkeypatch.setattr(api.memory.writes, "store", slow)
    first = asyncio.create_task(api.call("POST", at, 201, namespace="stopped", json=STORE, headers=keyed("k")))
    await reached.wait()
    async with superuser(dsn) as connection:
        await connection.execute(
            "UPDATE idempotency_keys SET claimed_at = claimed_at - interval '1 hour' WHERE namespace = 'stopped'"
        )
    reached.clear()
    second = asyncio.create_task(api.call("POST", at, 201, namespace="stopped", json=STORE, headers=keyed("k")))
    await reached.wait()
    go_on.set()
    await first
    answer = await second
    again = await api.call("POST", at, 201, namespace="stopped", json=STORE, headers=keyed("k"))
    assert again == answer, "the claim that was taken over keeps nothing"
