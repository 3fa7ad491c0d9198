"""Rewards of stored episodes: the parts of a policy that need the database."""

import pytest

from ..conftest import Api, eventually, trajectory


async def _history(api: Api, agent: str, count: int) -> list[dict]:
    async def check() -> list[dict] | None:
        rewards = (await api.call("GET", "/api/v1/rewards/history", params={"agent_id": agent}))["rewards"]
        return rewards[::-1] if len(rewards) == count else None

    return await eventually(check)


async def _use(api: Api, agent: str, spec: dict) -> None:
    await api.call("PUT", f"/api/v1/rewards/policies/{agent}/revisions/r1", json=spec)
    await api.call("PUT", f"/api/v1/agents/{agent}", json={"reward_policy": agent, "reward_policy_revision": "r1"})


async def test_scale_confidence_and_broken_constraints_are_kept_across_batches(api: Api) -> None:
    spec = {
        "components": [
            {"name": "return", "type": "environment", "weight": 0.8},
            {"name": "stars", "type": "feedback", "weight": 0.2},
        ],
        "normalisation": {"method": "minmax"},
        "constraints": [{"name": "crash", "key": "collisions"}],
    }
    await _use(api, "ranked", spec)
    for index, value in enumerate((1.0, 3.0, 2.0, 9.0)):
        body = trajectory(f"k{index}", "ranked", value)
        if index == 3:
            body["outcome"]["values"] = {"collisions": 1.0, "feedback": 1.0}
        await api.call("POST", "/api/v1/trajectories", 202, json=body)
        rewards = await _history(api, "ranked", index + 1)
    assert [item["reward"] for item in rewards] == pytest.approx([0.0, 1.0, 0.5, -1.0])
    assert [item["violated"] for item in rewards] == [[], [], [], ["crash"]]
    assert [item["confidence"] for item in rewards] == pytest.approx([0, 0.8 * (1 - 2**-0.5), 0.8 * (1 - 3**-0.5), 0.5])


async def test_a_policy_that_looks_at_steps_gets_them(api: Api) -> None:
    spec = {
        "components": [{"name": "calm", "type": "smoothness", "weight": 1}],
        "shaping": {"observation": 3, "weight": 1, "discount": 1},
        "normalisation": {"method": "none"},
    }
    await _use(api, "calm", spec)
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("calm-1", "calm"))
    [reward] = await _history(api, "calm", 1)
    assert (reward["components"], reward["reward"]) == ({"calm": 1.0}, 3.0)  # the fourth number goes from 0 to 2


@pytest.mark.parametrize(
    ("method", "last", "largest", "step"),
    [("final", 4.0, 4.0, 1), ("uniform", 2.0, 2.0, 0), ("environment", 1.0, 3.0, 0)],
)
async def test_how_a_reward_was_divided_stays_when_its_steps_are_gone(api, method, last, largest, step):
    agent = f"divided-{method}"
    spec = {"components": [{"name": "return", "type": "environment", "weight": 1}], "credit": {"method": method}}
    await _use(api, agent, spec | {"normalisation": {"method": "none"}})
    body = trajectory(agent, agent, 4.0)
    body["steps"] = [body["steps"][0] | {"reward": reward} for reward in (3.0, 1.0)]
    await api.call("POST", "/api/v1/trajectories", 202, json=body | {"task": "cross the room"})
    await _history(api, agent, 1)
    async with api.db.tenant("team-a") as connection:
        await connection.execute("DELETE FROM trajectories WHERE agent_id = $1", agent)
    [entry] = await _history(api, agent, 1)
    assert (entry["task_id"], entry["credit_assigned"]) == ("cross the room", 4.0)
    assert entry["metadata"]["episode_id"] == body["episode_id"]
    step_credit = {"method": method, "steps": 2, "last": last, "largest": largest, "largest_step": step}
    assert entry["metadata"]["credit"] == step_credit
    await api.call("GET", f"/api/v1/rewards/credits/{agent}", 404)


async def test_a_reward_of_no_number_is_refused_with_field_value_and_fix(api: Api) -> None:
    content = b'{"reward_policy": "x", "result": {"values": {"quality": NaN}}}'
    headers = {"content-type": "application/json"}
    refused = await api.call("POST", "/api/v1/rewards/calculate", 422, content=content, headers=headers)
    assert refused["error"]["field"] == "result.values.quality"
    assert refused["error"]["value"] == "nan"
    assert "finite number; correct it" in refused["error"]["message"]


async def test_a_count_of_tokens_is_a_measurement_and_no_secret(api: Api) -> None:
    spec = {
        "components": [{"name": "short", "type": "outcome", "key": "output_tokens", "weight": 1, "scale": 1000}],
        "normalisation": {"method": "none"},
        "constraints": [{"name": "no-rambling", "key": "output_tokens", "maximum": 4000, "rewardAtMost": -1}],
    }
    await _use(api, "talker", spec)
    for identity, tokens in (("brief", 500), ("rambling", 5000)):
        body = trajectory(identity, "talker")
        body["outcome"] |= {"values": {"output_tokens": tokens}}
        await api.call("POST", "/api/v1/trajectories", 202, json=body)
    rewards = {reward["trajectory_id"]: reward for reward in await _history(api, "talker", 2)}
    assert rewards["brief"]["components"] == {"short": 0.5}
    assert (rewards["rambling"]["reward"], rewards["rambling"]["violated"]) == (-1, ["no-rambling"])


async def test_a_measurement_under_a_secrets_name_is_missing_and_holds_nothing_up(api: Api) -> None:
    spec = {
        "components": [{"name": "odd", "type": "outcome", "key": "password", "weight": 1}],
        "normalisation": {"method": "none"},
    }
    await _use(api, "odd", spec)
    body = trajectory("odd-1", "odd")
    body["outcome"]["values"] = {"password": 5.0}
    await api.call("POST", "/api/v1/trajectories", 202, json=body)
    [reward] = await _history(api, "odd", 1)
    assert (reward["reward"], reward["confidence"]) == (0.0, 0.0)


async def test_the_credit_of_each_step_adds_up_to_the_reward(api: Api) -> None:
    spec = {
        "components": [{"name": "return", "type": "environment", "weight": 1}],
        "normalisation": {"method": "none", "clip": 100},
        "credit": {"method": "discounted", "discount": 0.5},
        "shaping": {"observation": 3, "weight": 2, "discount": 1},
    }
    await _use(api, "payee", spec)
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("pay-1", "payee"))
    [reward] = await _history(api, "payee", 1)
    answer = await api.call("GET", "/api/v1/rewards/credits/pay-1")
    assert (answer["reward"], answer["shaping"]) == (reward["reward"], [2.0, 2.0, 0.0]) == (14.0, [2.0, 2.0, 0.0])
    assert answer["credits"] == pytest.approx([2, 4, 8])
    await api.call("GET", "/api/v1/rewards/credits/pay-2", 404)
    await api.call("GET", "/api/v1/rewards/credits/pay-1", 404, namespace="team-b")
