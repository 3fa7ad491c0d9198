"""From a trajectory to a reward, a memory and the figures the operator reads."""

import pytest

from ..conftest import POLICY, Api, eventually, trajectory


async def _rewarded(api: Api, agent: str, count: int) -> dict:
    async def check() -> dict | None:
        stats = await api.call("GET", f"/api/v1/agents/{agent}/stats")
        return stats if stats["rewarded"] == count else None

    return await eventually(check)


async def test_a_trajectory_of_a_registered_agent_gets_its_reward(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/plain/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/walker", json={"reward_policy": "plain", "reward_policy_revision": "r1"})
    for index, value in enumerate((0.0, 10.0, 20.0)):
        answer = await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"t{index}", "walker", value))
        assert answer == {"trajectory_id": f"t{index}", "duplicate": False, "stored": True}
    stats = await _rewarded(api, "walker", 3)
    assert stats["trajectories"] == 3
    assert stats["recent_return_mean"] == stats["first_return_mean"] == 10.0
    assert stats["recent_success_rate"] == pytest.approx(2 / 3)
    history = (await api.call("GET", "/api/v1/rewards/history", params={"agent_id": "walker"}))["rewards"]
    by_id = {item["trajectory_id"]: item for item in history}
    assert by_id["t2"]["components"] == {"return": 2.0, "success": 1.0}
    assert by_id["t2"]["raw_reward"] == 1.5
    assert by_id["t0"]["reward"] == 0.0
    assert by_id["t2"]["reward"] > 0


async def test_the_same_trajectory_again_is_a_duplicate_and_not_counted(api: Api) -> None:
    await api.call("PUT", "/api/v1/agents/again", json={})
    first = await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("same", "again"))
    second = await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("same", "again"))
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert (await api.call("GET", "/api/v1/agents/again/stats"))["trajectories"] == 1


async def test_experience_from_before_the_registration_is_rewarded_afterwards(api: Api) -> None:
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("early", "late"))
    await api.call("GET", "/api/v1/agents/late/stats", 404)
    await api.call("PUT", "/api/v1/agents/late", json={"reward_policy": "slow", "reward_policy_revision": "r1"})
    await api.call("PUT", "/api/v1/rewards/policies/slow/revisions/r1", json=POLICY)
    assert (await _rewarded(api, "late", 1))["trajectories"] == 1


async def test_a_new_policy_revision_counts_for_new_episodes_only(api: Api) -> None:
    doubled: dict = {"components": [{"name": "only", "type": "environment", "weight": 1}]}
    doubled["normalisation"] = {"method": "none"}
    for revision, spec in (("r1", POLICY), ("r2", doubled)):
        await api.call("PUT", f"/api/v1/rewards/policies/moving/revisions/{revision}", json=spec)
        body = {"reward_policy": "moving", "reward_policy_revision": revision}
        await api.call("PUT", "/api/v1/agents/mover", json=body)
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"m-{revision}", "mover", 4.0))
        await _rewarded(api, "mover", int(revision[1]))
    history = (await api.call("GET", "/api/v1/rewards/history", params={"agent_id": "mover"}))["rewards"]
    assert [(item["trajectory_id"], item["reward_policy_revision"]) for item in history] == [
        ("m-r2", "r2"),
        ("m-r1", "r1"),
    ]
    assert history[0]["reward"] == 4.0


async def test_a_deleted_agent_starts_from_zero_when_it_comes_back(api: Api) -> None:
    await api.call("PUT", "/api/v1/agents/phoenix", json={})
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("p1", "phoenix"))
    await api.call("DELETE", "/api/v1/agents/phoenix", 204)
    await api.call("GET", "/api/v1/agents/phoenix/stats", 404)
    await api.call("PUT", "/api/v1/agents/phoenix", json={})
    stats = await api.call("GET", "/api/v1/agents/phoenix/stats")
    assert (stats["trajectories"], stats["recent_episodes"], stats["first_return_mean"]) == (0, 0, None)


async def test_the_baseline_is_the_mean_of_the_first_hundred_returns(api: Api) -> None:
    await api.call("PUT", "/api/v1/agents/grower", json={})
    for index in range(103):
        value = 1.0 if index < 100 else 99.0
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"g{index}", "grower", value))
    stats = await api.call("GET", "/api/v1/agents/grower/stats")
    assert (stats["trajectories"], stats["recent_episodes"], stats["first_return_mean"]) == (103, 100, 1.0)
    assert stats["recent_return_mean"] == pytest.approx((97 + 3 * 99) / 100)


async def test_an_episode_becomes_a_memory(api: Api) -> None:
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("e1", "thinker", task="balance the pole"))

    async def recalled() -> list | None:
        body = {"agent_id": "thinker", "context": "balance the pole", "k": 5}
        return (await api.call("POST", "/api/v1/memory/retrieve", json=body))["memories"]

    [memory] = await eventually(recalled)
    assert memory["memory_type"] == "episodic"
    assert memory["content"]["text"] == "balance the pole: succeeded with return 10 after 3 steps"
    assert memory["content"]["trajectory_id"] == "e1"


async def test_an_episode_of_text_becomes_a_memory_of_what_was_said_and_done(api: Api) -> None:
    turns = [
        {"role": "system", "content": "You remember: the customer likes violins."},
        {"role": "user", "content": "Why was my invoice 4711 charged twice?"},
    ]
    call = {"function": {"name": "look_up_invoice", "arguments": '{"number": 4711}'}}
    steps = [
        {"observation": {"messages": turns}, "action": {"content": None, "tool_calls": [call]}, "log_prob": -0.5},
        {
            "observation": {"messages": [{"role": "tool", "content": "two payments, one reversed on Monday"}]},
            "action": {"role": "assistant", "content": "The second payment was reversed on Monday."},
            "log_prob": -0.5,
        },
    ]
    body = trajectory("told", "clerk", task="support", steps=steps)
    stored = await api.call("POST", "/api/v1/trajectories", 202, json=body)
    assert not stored["duplicate"]

    async def recalled() -> list | None:
        body = {"agent_id": "clerk", "context": "invoices that were charged twice", "k": 5}
        return (await api.call("POST", "/api/v1/memory/retrieve", json=body))["memories"]

    [memory] = await eventually(recalled)
    assert memory["content"]["text"].splitlines() == [
        "support: succeeded",
        "user: Why was my invoice 4711 charged twice?",
        'assistant called look_up_invoice {"number": 4711}',
        "tool: two payments, one reversed on Monday",
        "assistant: The second payment was reversed on Monday.",
    ]


async def test_observations_come_newest_first(api: Api) -> None:
    for index in range(2):
        steps = [{"observation": [float(index), float(step)], "action": 0} for step in range(2)]
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"o{index}", "seer", steps=steps))
    text = [{"observation": "a page of text", "action": "click"}]
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("o2", "seer", steps=text))
    answer = await api.call("GET", "/api/v1/experience/observations", params={"agent": "seer", "limit": 3})
    assert answer == {"observations": [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]}


async def test_the_specifications_own_request_is_answered_by_the_default_components(api: Api) -> None:
    result = {"success": True, "steps": 20, "values": {"quality": 1.0, "feedback": -1.0}}
    answer = await api.call("POST", "/api/v1/rewards/calculate", json={"task_id": "x", "result": result})
    assert answer["components"] == {"completion": 1.0, "efficiency": 0.8, "quality": 1.0, "feedback": -1.0}
    assert answer["reward"] == answer["raw_reward"] == pytest.approx(0.4 + 0.2 * 0.8 + 0.15 - 0.25)
    assert (answer["task_id"], answer["reward_policy"]) == ("x", None)


async def test_rewards_come_page_by_page_each_once(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/paged/revisions/r1", json=POLICY)
    await api.call("PUT", "/api/v1/agents/earner", json={"reward_policy": "paged", "reward_policy_revision": "r1"})
    for index in range(5):
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"earned{index}", "earner"))

    async def page(limit: int, after: str | None = None):
        where = {"agent_id": "earner", "limit": limit, **({"after": after} if after else {})}
        return await api.call("GET", "/api/v1/rewards/history", params=where)

    async def all_there() -> bool:
        return len((await page(10))["rewards"]) == 5

    await eventually(all_there)
    ids, after = [], None
    for _ in range(3):
        answer = await page(2, after)
        ids += [reward["trajectory_id"] for reward in answer["rewards"]]
        after = answer["next"]
    assert (sorted(ids), after) == ([f"earned{index}" for index in range(5)], None)
    assert ids == [reward["trajectory_id"] for reward in (await page(10))["rewards"]]
    for wrong in ("x", "W10", "eyJhIjoxfQ", "WyIyMDI2LTAxLTAxIl0", "ä"):
        where = {"agent_id": "earner", "after": wrong}
        refused = await api.call("GET", "/api/v1/rewards/history", 422, params=where)
        assert (refused["error"]["field"], refused["error"]["value"]) == ("after", wrong)


async def test_calculate_keeps_nothing(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/ask/revisions/r1", json=POLICY)
    body = {"task_id": "x", "reward_policy": "ask", "result": {"episode_return": 30, "success": True}}
    answer = await api.call("POST", "/api/v1/rewards/calculate", json=body)
    assert (answer["components"], answer["raw_reward"]) == ({"return": 3.0, "success": 1.0}, 2.0)
    await api.call("POST", "/api/v1/rewards/calculate", 404, json=body | {"reward_policy": "nope"})


async def test_a_published_revision_never_changes(api: Api) -> None:
    path = "/api/v1/rewards/policies/fixed/revisions/r1"
    await api.call("PUT", path, json=POLICY)
    await api.call("PUT", path, json=POLICY)
    other = POLICY | {"normalisation": {"method": "none", "clip": 5}}
    refused = await api.call("PUT", path, 409, json=other)
    assert refused["error"]["field"] == "revision"


async def test_weights_that_do_not_add_up_are_refused_with_the_sum(api: Api) -> None:
    spec = {"components": [{"name": "a", "type": "success", "weight": 0.6}]}
    refused = await api.call("PUT", "/api/v1/rewards/policies/bad/revisions/r1", 422, json=spec)
    assert refused["error"]["field"] == "components"
    assert "add up to 0.6" in refused["error"]["message"]
