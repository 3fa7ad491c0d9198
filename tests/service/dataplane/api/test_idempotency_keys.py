"""Idempotency-Key: the same request is done once, whoever loses its answer."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.api import idempotency
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually, superuser, trajectory

STORE = {"agent_id": "a", "memory_type": "semantic", "content": {"text": "water boils at 100 degrees"}}


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


CREATES: list[tuple[str, dict[str, Any], int]] = [
    ("/api/v1/memory/store", STORE, 201),
    ("/api/v1/memory/store/batch", {"memories": [STORE, STORE]}, 201),
    ("/api/v1/memory/consolidate", {"agent_id": "a"}, 200),
    ("/api/v1/memory/snapshots", {"agent_id": "a", "name": "once"}, 201),
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


async def test_a_claim_whose_process_died_is_free_after_a_minute_and_a_key_is_forgotten_after_a_day(
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
    assert "being worked on" in busy["error"]["message"]
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


async def test_a_claim_holds_for_as_long_as_its_request_is_worked_on(
    api: Api, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consolidation may take minutes: the same key must not begin it a second time."""
    monkeypatch.setattr(idempotency, "RENEWALS", 200)
    held = await idempotency.claim(api.db, Identity("long", "it"), "k", "d")
    assert isinstance(held, idempotency.Claim)
    began = held.since
    async with held.renewed():

        async def renewed() -> bool:
            return held.since > began

        await eventually(renewed)
        async with superuser(dsn) as connection:
            in_row = await connection.fetchval("SELECT claimed_at FROM idempotency_keys WHERE namespace = 'long'")
        assert in_row > began
    async with superuser(dsn) as connection:
        in_row = await connection.fetchval("SELECT claimed_at FROM idempotency_keys WHERE namespace = 'long'")
    assert in_row == held.since, "the end of the request finds its own row"


async def test_a_process_that_was_stopped_for_long_does_not_end_the_claim_of_another(api: Api, dsn: str) -> None:
    first = await idempotency.claim(api.db, Identity("stopped", "it"), "k", "d")
    assert isinstance(first, idempotency.Claim)
    async with superuser(dsn) as connection:
        await connection.execute(
            "UPDATE idempotency_keys SET claimed_at = claimed_at - interval '2 minutes' WHERE namespace = 'stopped'"
        )
    second = await idempotency.claim(api.db, Identity("stopped", "it"), "k", "d")
    assert isinstance(second, idempotency.Claim)
    await first.release()
    await first.keep(201, "{}")
    async with superuser(dsn) as connection:
        row = await connection.fetchrow("SELECT claimed_at, status FROM idempotency_keys WHERE namespace = 'stopped'")
    assert (row["claimed_at"], row["status"]) == (second.since, None)
