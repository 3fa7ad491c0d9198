"""Bias of rewards in logged episodes: by REST, and of the caller's own namespace alone."""

from ..conftest import Api, trajectory

RULE = {"groupBy": ["metadata.language"], "minimumEpisodes": 10}
BIASED = {
    "components": [
        {"name": "done", "type": "success", "weight": 0.5},
        {"name": "tone", "type": "outcome", "key": "tone", "weight": 0.5},
    ],
    "bias": RULE,
}
FAIR = {"components": [{"name": "done", "type": "success", "weight": 1}], "bias": RULE}


async def _log(api: Api, namespace: str, tones: dict[str, float], count: int = 12) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", namespace=namespace, json=FAIR)
    metadata = {"reward_policy": "p", "reward_policy_revision": "r1"}
    await api.call("PUT", "/api/v1/agents/clerk", namespace=namespace, json=metadata)
    for language, tone in tones.items():
        for index in range(count):
            item = trajectory(f"{language}-{index}", "clerk", 10.0, metadata={"language": language})
            item["outcome"]["values"] = {"tone": tone + 0.001 * index}
            item["result"] = {"output": f"Our {language}-speaking staff will call.", "task_type": "call"}
            await api.call("POST", "/api/v1/trajectories", 202, namespace=namespace, json=item)


async def test_a_check_sees_its_own_tenant_and_its_own_policy_only(api: Api) -> None:
    await _log(api, "tenant-a", {"english": 0.9, "german": 0.2})
    await _log(api, "tenant-b", {"english": 0.5, "german": 0.5})
    body = {"policy": BIASED, "reward_policy": "p"}
    assert (await api.call("POST", "/api/v1/rewards/bias", namespace="tenant-b", json=body))["suspected"] is False
    for others in ({"reward_policy": "q"}, {"reward_policy": "p", "agent_ids": ["nobody"]}):
        none = await api.call("POST", "/api/v1/rewards/bias", namespace="tenant-a", json=body | others)
        assert (none["suspected"], none["reason"], none["episodes"]) == (None, "NotEnoughEpisodes", 0)


async def test_a_check_without_a_rule_or_with_a_persons_label_is_refused_with_the_field(api: Api) -> None:
    bare = {"policy": {"components": BIASED["components"]}}
    refused = await api.call("POST", "/api/v1/rewards/bias", 422, json=bare)
    assert refused["error"]["field"] == "policy.bias"
    person = {"policy": BIASED | {"bias": {"groupBy": ["metadata.user_id"]}}}
    refused = await api.call("POST", "/api/v1/rewards/bias", 422, json=person)
    assert "a person, not a group" in refused["error"]["message"]
