import asyncio
import json
from collections.abc import Callable

import pytest

from learnloop_common.circuit_breaker import Breaker
from learnloop_sdk import Learnloop, LearnloopError, StepResult, execute_with_learning, outbox
from testing.servers.recording_server import DataPlane

Make = Callable[..., Learnloop]


async def test_people_judge_an_episode_by_the_id_it_is_recorded_under(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    async with loop.episode(external=True) as episode:
        episode.record(1, observation=[0.0])
        episode_id = episode.trajectory_id
        await loop.people.feedback(episode_id, "customer-17", thumbs="up")
    played = await execute_with_learning(
        loop, lambda _: StepResult(7, terminated=True), act=lambda *_: 1, revision="own"
    )
    await loop.flush(60)
    await loop.people.feedback(played.trajectory_id, "anna@example.org", stars=2)
    assert await loop.flush(60) == 0
    recorded = {json.loads(body)["trajectory_id"] for body in data_plane.bodies()}
    opinions = [json.loads(body) for body in data_plane.bodies("/api/v1/feedback")]
    assert {opinion["trajectory_id"] for opinion in opinions} == recorded
    assert opinions[0] == {"trajectory_id": episode_id, "user_id": "customer-17", "thumbs": "up"}
    assert opinions[1]["stars"] == 2
    assert "anna" not in opinions[1]["user_id"]


async def test_an_opinion_waits_for_the_data_plane_and_the_last_one_counts(learn, free_port, monkeypatch):
    monkeypatch.setattr(outbox, "Breaker", lambda **_: Breaker(first_rest=0.05))
    loop = learn(data_url=f"http://127.0.0.1:{free_port}")
    for thumbs in ("up", "down"):
        await loop.people.feedback("t", "anna", thumbs=thumbs)
    assert await loop.flush(0) == 1
    server = DataPlane(free_port)
    assert await loop.close(30) == 0
    assert [json.loads(body)["thumbs"] for body in server.bodies("/api/v1/feedback")] == ["down"]
    server.shutdown()
    server.server_close()


async def test_an_opinion_needs_one_scale(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    for wrong in ({}, {"thumbs": "up", "stars": 3}, {"stars": 6}):
        with pytest.raises(LearnloopError):
            await loop.people.feedback("t", "anna", **wrong)


async def judged(port: int, learn: Make, opinions: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests of a service that takes its time for the first opinion, and was away before."""
    verdicts: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(next(line[15:] for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"))
            body = json.loads(await reader.readexactly(length))
            if not verdicts:
                first.set()
                await asyncio.sleep(0.3)
            verdicts.append(body["thumbs"])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    monkeypatch.setattr(outbox, "Breaker", lambda **_: Breaker(first_rest=0.05))
    first = asyncio.Event()
    loop = learn(data_url=f"http://127.0.0.1:{port}")
    await loop.people.feedback("t", "anna", thumbs=opinions[0])
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with asyncio.timeout(60):
        await first.wait()
        for opinion in opinions[1:]:
            await loop.people.feedback("t", "anna", thumbs=opinion)
        assert await loop.close(30) == 0
    server.close()
    return verdicts


async def test_an_opinion_that_changes_while_the_former_one_is_sent_is_not_lost(learn, free_port, monkeypatch):
    assert await judged(free_port, learn, ["up", "down"], monkeypatch) == ["up", "down"]
    several = await judged(free_port, learn, ["up", "down", "up", "down"], monkeypatch)
    assert several[-1] == "down", "the last of several changes arrives last"


async def test_of_opinions_given_at_the_same_time_the_last_one_counts(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    thumbs = ["up", "down"] * 10
    await asyncio.gather(*(loop.people.feedback("t", "anna", thumbs=one) for one in thumbs))
    assert await loop.flush(60) == 0
    assert json.loads(data_plane.bodies("/api/v1/feedback")[-1])["thumbs"] == "down"
