import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop_sdk import Learnloop, Recall, outbox
from testing.servers.recording_server import DataPlane

Make = Callable[..., Learnloop]


async def test_memories_are_stored_and_recalled(learn: Make, data_plane) -> None:
    answer = {"memories": [{"content": {"a": 1}}, {"content": {"b": 2}}], "retrieval_id": "r-1", "plan": {}}
    data_plane.answers["/api/v1/memory/retrieve"] = (200, json.dumps(answer).encode())
    loop = learn(data_url=data_plane.url)
    assert await loop.memory.store({"text": "hello"}, importance=0.7, origin="mail/anna@example.org")
    recall = await loop.memory.retrieve({"task": "t"}, k=2, memory_types=["episodic"])
    assert recall == Recall(answer["memories"], "r-1")
    stored, question = (json.loads(body) for _, body, _ in data_plane.posts)
    assert stored.pop("idempotency_key")
    assert stored == {
        "agent_id": "cart",
        "memory_type": "episodic",
        "content": {"text": "hello"},
        "importance": 0.7,
        "origin": "mail/<EMAIL>",
    }
    assert question == {"agent_id": "cart", "context": {"task": "t"}, "k": 2, "memory_types": ["episodic"]}


async def test_an_agent_recalls_with_its_group(learn: Make, data_plane) -> None:
    answer = {"memories": [{"content": {"a": 1}, "agent_id": "till"}], "retrieval_id": "r-1"}
    data_plane.answers["/api/v1/memory/retrieve"] = (200, json.dumps(answer).encode())
    loop = learn(data_url=data_plane.url)
    recall = await loop.memory.retrieve({"task": "t"}, scope="group")
    assert recall.memories[0]["agent_id"] == "till"
    [question] = (json.loads(body) for _, body, _ in data_plane.posts)
    assert (question["agent_id"], question["scope"]) == ("cart", "group")


async def test_the_nearest_experience_of_a_state_is_none_where_nothing_answers(learn: Make, data_plane) -> None:
    nearest = [{"action": 1, "reward": 0.5, "distance": 0.1}]
    data_plane.answers["/api/v1/experience/similar"] = (200, json.dumps({"experiences": nearest}).encode())
    assert await learn(data_url=data_plane.url).get_similar_experiences([1, 0.5], k=3) == nearest
    [question] = (json.loads(body) for _, body, _ in data_plane.posts)
    assert question == {"agent_id": "cart", "state": [1.0, 0.5], "k": 3}
    data_plane.answers["/api/v1/experience/similar"] = (422, b"{}")
    loop = learn(data_url=data_plane.url)
    assert await loop.get_similar_experiences([1.0]) == []
    assert loop.counters.memory_failures == 1


async def test_a_question_leaves_the_process_redacted(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    await loop.memory.retrieve({"task": "mail anna@example.org", "login": {"password": "abc"}})
    [question] = (json.loads(body) for _, body, _ in data_plane.posts)
    assert question["context"] == {"task": "mail <EMAIL>", "login": {"password": "<SECRET>"}}


async def test_a_recall_goes_with_the_trajectory(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":[],"retrieval_id":"r-9"}')
    loop = learn(data_url=data_plane.url)
    async with loop.episode(external=True) as episode:
        await episode.recall({"task": "t"})
        episode.record(1, observation=[0.0])
    await loop.flush(60)
    assert json.loads(data_plane.bodies()[0])["retrieval_ids"] == ["r-9"]


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (200, b"not json"), (200, b"[]"), (404, b"{}")])
async def test_a_confused_memory_service_costs_memories_only(learn, data_plane, status, body):
    data_plane.answers["/api/v1/memory/retrieve"] = (status, body)
    loop = learn(data_url=data_plane.url)
    assert await loop.memory.retrieve({}) == Recall(degraded=["unavailable"])
    assert loop.counters.memory_failures == 1


@pytest.mark.parametrize(("status", "open_for_others"), [(500, True), (503, False)])
async def test_a_service_that_fails_on_one_request_is_open_for_others(learn, data_plane, status, open_for_others):
    data_plane.answers["/api/v1/memory/store"] = (status, b"{}")
    loop = learn(data_url=data_plane.url)
    assert not await loop.memory.store({"text": "x"})
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":[]}')
    assert ((await loop.memory.retrieve({})).degraded == []) is open_for_others


async def test_no_memories_and_no_service_are_two_things(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":[],"retrieval_id":"r","degraded":["embedder"]}')
    assert (await learn(data_url=data_plane.url).memory.retrieve({})).degraded == ["embedder"]
    assert (await learn().memory.retrieve({})).degraded == ["unavailable"]


async def test_a_dead_memory_service_is_not_waited_for_at_every_call(learn: Make, free_port: int) -> None:
    loop = learn(data_url=f"http://127.0.0.1:{free_port}")
    for _ in range(5):
        assert await loop.memory.retrieve({}) == Recall(degraded=["unavailable"])
    assert not await loop.memory.store({})
    assert loop.counters.memory_failures == 1


async def test_what_is_stored_while_the_service_is_away_comes_later_and_once(learn, free_port, tmp_path):
    loop = learn(data_url=f"http://127.0.0.1:{free_port}", spool_directory=tmp_path)
    assert not await loop.memory.store({"text": "mail anna@example.org"}, user_id="anna@example.org")
    assert await loop.flush(0) == 1
    assert await loop.close(0) == 1
    server = DataPlane(free_port)
    async with learn(data_url=server.url, spool_directory=tmp_path) as again:
        assert await again.close(30) == 0
    (body,) = (json.loads(body) for body in server.bodies("/api/v1/memory/store"))
    assert body["content"] == {"text": "mail <EMAIL>"}
    assert body["user_id"].startswith("sha256:")
    assert body["idempotency_key"]
    server.shutdown()
    server.server_close()


async def test_a_server_that_dawdles_holds_an_agent_up_for_two_seconds_and_then_not_at_all(learn: Make) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.2)

    server = await asyncio.start_server(drip, "127.0.0.1")
    loop = learn(data_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "TIMEOUT", 0.5)
        async with asyncio.timeout(30):
            for _ in range(20):
                assert (await loop.memory.retrieve({})).degraded == ["unavailable"]
    assert loop.counters.memory_failures <= 3, "the breaker answers"
    server.close()


async def test_what_is_no_json_is_the_agents_mistake_and_does_not_stop_it(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    assert not await loop.memory.store({"value": float("nan")})
    assert not await loop.memory.store({"value": object()})
    assert (await loop.flush(0), data_plane.posts) == (0, [])
    assert await loop.memory.store({"value": 1.0}), "the breaker is for the service's failures"


async def test_odd_answers_are_cut_to_shape(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":[1,{"a":1},{"b":1}],"retrieval_id":5}')
    assert await learn(data_url=data_plane.url).memory.retrieve({}, k=1) == Recall([{"a": 1}])
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":5}')
    assert await learn(data_url=data_plane.url).memory.retrieve({}) == Recall()


async def test_the_namespaces_own_service_never_sees_the_token_for_the_data_plane(
    learn: Make, data_plane, free_port: int, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("for-the-data-plane")
    files = {"token_file": tmp_path / "token", "memory_token_file": tmp_path / "memory-token"}
    loop = learn(data_url=f"http://127.0.0.1:{free_port}", memory_url=data_plane.url, **files)
    assert await loop.memory.store({"text": "hello"})
    (tmp_path / "memory-token").write_text("for-the-memory-service")
    assert await loop.memory.store({"text": "hello"})
    same = learn(data_url=data_plane.url, memory_url=data_plane.url, **files)
    assert await same.memory.store({"text": "hello"})
    shown = [headers.get("authorization") for _, _, headers in data_plane.posts]
    assert shown == [None, "Bearer for-the-memory-service", "Bearer for-the-data-plane"]
