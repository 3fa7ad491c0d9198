"""The earnings of each revision's episodes, counted by the data plane."""

import pytest

from ..conftest import Api, eventually, trajectory

SPEC = {
    "components": [{"name": "return", "type": "environment", "weight": 1, "scale": 10}],
    "normalisation": {"method": "zscore"},
    "constraints": [{"name": "crash", "key": "collisions", "rewardAtMost": -1}],
}


async def _outcomes(api: Api, namespace: str = "team-a", **query) -> dict[str, dict]:
    parameters = {"seconds": 3600, "revision": ["aaaa", "bbbb"], **query}
    body = await api.call("GET", "/api/v1/models/walk/outcomes", namespace=namespace, params=parameters)
    return {item.pop("revision"): item for item in body["revisions"]}


async def _play(api: Api, identity: str, revision: str, value: float, **outcome) -> None:
    body = trajectory(identity, "walker", value, model_deployment="walk", policy_revision=revision)
    body["outcome"] |= outcome
    await api.call("POST", "/api/v1/trajectories", 202, json=body)


async def test_raw_rewards_and_opinions_are_counted_for_each_revision(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/walk/revisions/r1", json=SPEC)
    await api.call("PUT", "/api/v1/agents/walker", json={"reward_policy": "walk", "reward_policy_revision": "r1"})
    for index, value in enumerate((5.0, 7.0)):
        await _play(api, f"a{index}", "aaaa", value)
    await _play(api, "b0", "bbbb", 4.0)
    await _play(api, "b1", "bbbb", 90.0, values={"collisions": 1.0})
    await _play(api, "b2", "bbbb", 9.0, status="withdrawn")
    for person, trajectory_id, stars in (("ann", "a0", 5), ("bob", "a0", 3), ("ann", "a1", 1)):
        feedback = {"trajectory_id": trajectory_id, "user_id": person, "stars": stars}
        await api.call("POST", "/api/v1/feedback", json=feedback)

    async def all_rewarded() -> dict[str, dict] | None:
        outcomes = await _outcomes(api)
        return outcomes if [outcomes[key]["rewarded"] for key in ("aaaa", "bbbb")] == [2, 2] else None

    outcomes = await eventually(all_rewarded)
    assert outcomes["aaaa"]["reward_sum"] == pytest.approx(1.2)
    assert (outcomes["aaaa"]["rated"], outcomes["aaaa"]["feedback_sum"]) == (2, pytest.approx(0.5 - 1.0))
    assert outcomes["bbbb"]["episodes"] == 2
    assert outcomes["bbbb"]["reward_sum"] <= 0.4 - 1.0, "a broken constraint counts with no more than its reward"
    assert outcomes["bbbb"]["rated"] == 0
    others = await _outcomes(api, "team-b")
    assert [item["episodes"] for item in others.values()] == [0, 0]
    await api.call("GET", "/api/v1/models/walk/outcomes", 422, params={"seconds": 1, "revision": "a" * 65})


async def test_an_episode_before_the_window_and_a_feedback_value_of_the_agents_own_count_for_nothing(api: Api) -> None:
    await _play(api, "old", "cccc", 5.0, values={"feedback": 1.0})
    outcomes = await _outcomes(api, revision=["cccc"])
    assert (outcomes["cccc"]["episodes"], outcomes["cccc"]["rated"]) == (1, 0)
    async with api.db.tenant("team-a") as connection:
        await connection.execute("UPDATE trajectories SET received_at = now() - interval '2 hours' WHERE seq > 0")
    assert (await _outcomes(api, revision=["cccc"]))["cccc"]["episodes"] == 0


async def test_a_question_out_of_bounds_is_refused_with_the_field(api: Api) -> None:
    for query, field in (({"seconds": 0}, "seconds"), ({"revision": []}, "revision"), ({"revision": ["a b"]}, "revis")):
        parameters = {"seconds": 60, "revision": ["aaaa"], **query}
        refused = await api.call("GET", "/api/v1/models/walk/outcomes", 422, params=parameters)
        assert field in refused["error"]["field"]
