"""What the ranker learns through the service: from feedback and from the rewards of episodes."""

from typing import Any
from uuid import uuid4

import pytest

from learnloop_dataplane.memories.indexer import Indexer
from learnloop_dataplane.ranking.relevance_signals import STATIC

from ..conftest import POLICY, Api, eventually, trajectory
from ..recall.test_recall import ask, store


async def give(api: Api, status: int = 200, **body: Any) -> Any:
    return await api.call("POST", "/api/v1/memory/feedback", status, json=body)


async def test_what_helped_comes_to_the_top(api: Api) -> None:
    ids = await store(api, "tutor", [f"hint about the maze number {index}" for index in range(30)])
    wanted = ids[7]
    for _ in range(12):
        answer = await ask(api, "tutor", "maze hint", k=30)
        await give(api, retrieval_id=answer["retrieval_id"], helpful=[wanted])
    # Of an answer's places only the last may be given to an explored memory: the first three of ten never are.
    first = (await ask(api, "tutor", "maze hint", k=10))["memories"][:3]
    top = {memory["id"]: memory for memory in first}
    assert top[wanted]["signals"]["utility"] > 3
    state = await api.call("GET", "/api/v1/memory/ranker?agent_id=tutor")
    assert state["feedbacks"] == 12
    assert state["weights"]["utility"] > STATIC["utility"]


async def test_what_helped_counts_before_it_is_indexed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Indexer, namespace: str) -> int:
        del self, namespace
        return 0

    monkeypatch.setattr(Indexer, "_batch", nothing)
    ids = await store(api, "hasty", [f"hint about the maze number {index}" for index in range(8)])
    for _ in range(3):
        answer = await ask(api, "hasty", "maze hint", k=8)
        await give(api, retrieval_id=answer["retrieval_id"], helpful=[ids[5]])
    found = {memory["id"]: memory for memory in (await ask(api, "hasty", "maze hint", k=8))["memories"]}
    assert found[ids[5]]["signals"]["utility"] > 1


async def test_a_recall_teaches_once(api: Api) -> None:
    await store(api, "once", ["a", "b"])
    answer = await ask(api, "once", "a")
    first = await give(api, retrieval_id=answer["retrieval_id"], reward=1.0)
    again = await give(api, retrieval_id=answer["retrieval_id"], reward=1.0)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["feedbacks"] == again["feedbacks"] == 1


async def test_feedback_that_cannot_be_is_refused(api: Api) -> None:
    await store(api, "strict", ["a"])
    answer = await ask(api, "strict", "a")
    await give(api, 404, retrieval_id=str(uuid4()), reward=1.0)
    refused = await give(api, 422, retrieval_id=answer["retrieval_id"], helpful=[str(uuid4())])
    assert refused["error"]["field"] == "helpful"
    assert (await give(api, 422, retrieval_id=answer["retrieval_id"]))["error"]["field"] == "reward"
    body = {"retrieval_id": answer["retrieval_id"], "reward": 1.0}
    await api.call("POST", "/api/v1/memory/feedback", 404, namespace="team-b", json=body)


async def test_the_reward_of_an_episode_reaches_the_memories_it_recalled(api: Api) -> None:
    [identity] = await store(api, "learner", ["go left at the fork"])
    await api.call("PUT", "/api/v1/rewards/policies/rp/revisions/1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/learner", json={"reward_policy": "rp", "reward_policy_revision": "1"})
    for index, (returned, recalls) in enumerate([(1.0, 0), (9.0, 1), (1.0, 0), (9.0, 1)]):
        retrieval_ids = [(await ask(api, "learner", "fork"))["retrieval_id"]] if recalls else []
        body = trajectory(f"learn-{index}", "learner", returned, retrieval_ids=retrieval_ids)
        await api.call("POST", "/api/v1/trajectories", 202, json=body)

    async def credited() -> bool:
        async with api.db.tenant("team-a") as connection:
            taught = await connection.fetchval("SELECT count(*) FROM recall_log WHERE reward IS NOT NULL")
            helped = await connection.fetchval("SELECT helped FROM memory_use WHERE memory_id = $1", identity)
        return taught >= 2 and helped is not None

    await eventually(credited)


async def test_the_recalls_of_an_episode_teach_together_and_once(api: Api) -> None:
    await store(api, "pair", [f"turn {index} of the maze" for index in range(6)])
    await api.call("PUT", "/api/v1/rewards/policies/rp/revisions/1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/pair", json={"reward_policy": "rp", "reward_policy_revision": "1"})
    for index in range(2):
        ids = [(await ask(api, "pair", "maze", k=2))["retrieval_id"] for _ in range(2)]
        body = trajectory(f"pair-{index}", "pair", float(index), retrieval_ids=[*ids, ids[0]])
        await api.call("POST", "/api/v1/trajectories", 202, json=body)

    async def settled() -> bool:
        async with api.db.tenant("team-a") as connection:
            count = "SELECT count(*) FROM recall_log WHERE agent_id = 'pair' AND settled_at IS NOT NULL"
            return bool(await connection.fetchval(count) == 4)

    await eventually(settled)
    state = await api.call("GET", "/api/v1/memory/ranker?agent_id=pair")
    assert state["feedbacks"] == 2
