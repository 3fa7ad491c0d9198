"""Recall over a group or a namespace: one ranking for all agents, and nothing of any other namespace."""

import json

from learnloop_dataplane.recall import memory_groups, recall

from ..conftest import Api, eventually, running, settings
from .test_recall import ask, indexed, store


async def join(api: Api, agent: str, group: str | None, namespace: str = "team-a") -> None:
    await api.call("PUT", f"/api/v1/agents/{agent}", namespace=namespace, json={"memory_group": group})


async def refused(api: Api, agent: str, **changes) -> str:
    body = {"agent_id": agent, "context": "violin"} | changes
    answer = await api.call("POST", "/api/v1/memory/retrieve", 422, json=body)
    return json.dumps(answer)


def hits(answer: dict) -> list[tuple[str, str]]:
    return [(memory["agent_id"], memory["content"]["text"]) for memory in answer["memories"]]


async def test_the_agents_of_a_group_recall_from_one_another_and_nobody_else_does(api: Api) -> None:
    await store(api, "ann", ["the violin is in the left cupboard", "lunch is at noon"])
    await store(api, "ben", ["the violin has a broken string", "the bus was late"])
    await store(api, "carl", ["a violin is played in the hall"])
    await join(api, "ann", "band")
    await join(api, "ben", "band")
    await join(api, "carl", "audience")
    answer = await ask(api, "ann", "where is the violin", scope="group", k=2)
    assert {agent for agent, _ in hits(answer)} == {"ann", "ben"}
    assert (answer["plan"], answer["searched"]) == ("exact", 4)
    assert {agent for agent, _ in hits(await ask(api, "ann", "violin"))} == {"ann"}, "by default, only its own"
    assert {agent for agent, _ in hits(await ask(api, "carl", "violin", scope="group"))} == {"carl"}
    assert "is in no group" in await refused(api, "dora", scope="group")
    await join(api, "ben", None)
    assert {agent for agent, _ in hits(await ask(api, "ann", "violin", scope="group"))} == {"ann"}
    assert "is in no group" in await refused(api, "ben", scope="group")


async def test_a_group_of_the_same_name_in_another_namespace_is_another_group(api: Api) -> None:
    await store(api, "one", ["the safe opens with seven"])
    body = {"agent_id": "two", "memory_type": "semantic", "content": {"text": "the safe opens with nine"}}
    await api.call("POST", "/api/v1/memory/store", 201, namespace="team-b", json=body)
    await join(api, "one", "crew")
    await join(api, "two", "crew", namespace="team-b")
    for scope in ("group", "namespace"):
        own = hits(await ask(api, "one", "how does the safe open", scope=scope, k=100))
        foreign = hits(await ask(api, "two", "how does the safe open", namespace="team-b", scope=scope, k=100))
        assert "nine" not in json.dumps(own)
        assert foreign == [("two", "the safe opens with nine")]


async def test_one_ranking_over_all_is_that_of_one_agent_with_all_the_memories(api: Api) -> None:
    texts = [
        f"{place} {thing} {n}" for n, place in enumerate(("harbour", "tower")) for thing in ("lamp", "kettle", "saw")
    ]
    await store(api, "whole", texts)
    await store(api, "half-a", texts[::2])
    await store(api, "half-b", texts[1::2])
    for agent in ("half-a", "half-b"):
        await join(api, agent, "halves")
    await indexed(api, "whole", 6)
    alone = await ask(api, "whole", "the kettle of the tower", k=6)
    shared = await ask(api, "half-a", "the kettle of the tower", k=6, scope="group")
    assert [memory["content"] for memory in shared["memories"]] == [memory["content"] for memory in alone["memories"]]


async def test_the_same_sessions_name_at_two_agents_is_two_sessions(api: Api) -> None:
    await store(api, "left", ["we open the orchard gate", "left turn follows"], session_id="s")
    await store(api, "right", ["nothing of note", "right turn follows"], session_id="s")
    for agent in ("left", "right"):
        await join(api, agent, "pair")
    memories = (await ask(api, "left", "orchard gate", scope="group", k=4))["memories"]
    scores = {memory["content"]["text"]: memory["score"] for memory in memories}
    assert scores["left turn follows"] > 0 == scores["right turn follows"]


async def test_of_too_many_memories_each_agents_best_are_ranked_together(api, monkeypatch):
    for agent in ("big-a", "big-b", "big-c"):
        await store(api, agent, [f"{agent} saw crate {number}" for number in range(60)])
        await join(api, agent, "big")
        await indexed(api, agent, 60)
    exact = await ask(api, "big-a", "crate 7 of big-c", scope="group", k=3)
    monkeypatch.setattr(recall, "MOST_TOGETHER", 100)
    merged = await ask(api, "big-a", "crate 7 of big-c", scope="group", k=3)
    assert (exact["plan"], merged["plan"]) == ("exact", "chosen")
    assert merged["searched"] == exact["searched"] == 180
    assert hits(merged)[0] == hits(exact)[0] == ("big-c", "big-c saw crate 7")
    most = await ask(api, "big-a", "what did big-c see", scope="group", k=50)
    assert {agent for agent, _ in hits(most)} == {"big-c"}
    contents = ["Always name the colour of a crate.", "You no longer need to name the colour."]
    await store(api, "big-a", contents, speaker="user")
    monkeypatch.setattr(recall, "OWN_BEST", 1)
    [hit] = (await ask(api, "big-a", "which colour has the crate", scope="group", k=1))["memories"]
    assert (hit["content"]["text"], hit["why"]) == (contents[0], "words")
    monkeypatch.setattr(memory_groups, "MOST_MEMBERS", 2)
    assert "more than 2 agents" in await refused(api, "big-a", scope="group")


async def test_an_erased_person_and_an_erased_agent_are_in_nobodys_answer(api: Api) -> None:
    await join(api, "desk-1", "desks")
    await join(api, "desk-2", "desks")
    await store(api, "desk-1", ["the caller of line three likes tea"], user_id="erika")
    await store(api, "desk-1", ["line three was repaired"])
    await store(api, "desk-2", ["line two is free"])
    assert len(hits(await ask(api, "desk-2", "line three", scope="group"))) == 3
    await api.call("POST", "/api/v1/erasure", json={"user_id": "erika"})
    recalled = hits(await ask(api, "desk-2", "line three", scope="group"))
    assert ("desk-1", "line three was repaired") in recalled
    assert "tea" not in json.dumps(recalled)
    await api.call("POST", "/api/v1/erasure", json={"agent_id": "desk-1"})
    assert hits(await ask(api, "desk-2", "line three", scope="group")) == [("desk-2", "line two is free")]
    await api.call("PUT", "/api/v1/users/otto/opt-out", 204)
    body = {"agent_id": "desk-1", "memory_type": "semantic", "content": {"text": "otto calls"}, "user_id": "otto"}
    stored = await api.call("POST", "/api/v1/memory/store", json=body)
    assert stored["stored"] is False


async def test_feedback_on_a_groups_answer_credits_the_memory_whoever_has_it_and_teaches_who_asked(api: Api) -> None:
    await join(api, "asker", "helpers")
    await join(api, "owner", "helpers")
    [identity] = await store(api, "owner", ["the spare key hangs behind the clock"])
    await store(api, "asker", ["the door is blue"])
    await indexed(api, "owner", 1)
    answer = await ask(api, "asker", "where is the spare key", scope="group")
    assert answer["memories"][0]["id"] == identity
    taught = await api.call(
        "POST", "/api/v1/memory/feedback", json={"retrieval_id": answer["retrieval_id"], "helpful": [identity]}
    )
    assert taught == {"agent_id": "asker", "duplicate": False}
    async with api.db.tenant("team-a") as connection:
        worth = "SELECT outcome FROM memory_index WHERE agent_id = 'owner' AND memory_id = $1"
        assert await connection.fetchval(worth, identity) > 0


async def test_a_memory_services_agents_are_in_the_groups_that_the_operators_file_names(dsn, tmp_path):
    file = tmp_path / "budgets.json"
    agents = {"filed-a": {"group": "filed", "memories": 1000}, "filed-b": {"group": "filed"}}
    file.write_text(json.dumps({"namespace": "team-a", "agents": agents}))
    values = settings(dsn, tmp_path, agent_budgets_file=str(file), index_check_seconds=0.2)
    async with running(**values) as api:
        await store(api, "filed-a", ["the anchor is painted red"])
        await store(api, "filed-b", ["the anchor is heavy"])

        await eventually(lambda: api.memory.budgets._file.groups("team-a"))
        assert {agent for agent, _ in hits(await ask(api, "filed-b", "anchor", scope="group"))} == {
            "filed-a",
            "filed-b",
        }
