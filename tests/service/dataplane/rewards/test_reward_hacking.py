"""Signs of reward hacking, read from the stored rewards."""

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_dataplane.rewards.reward_hacking import FEWEST

from ..conftest import Api, eventually, trajectory

SPEC = RewardPolicySpec.model_validate(
    {
        "components": [
            {"name": "done", "type": "success", "weight": 0.5},
            {"name": "quick", "type": "efficiency", "weight": 0.5, "scale": 10},
        ],
        "constraints": [
            {"name": "short", "key": "length", "maximum": 400, "rewardAtMost": 0.1},
            {"name": "liked", "key": "feedback", "maximum": 2, "rewardAtMost": 0.1},
        ],
    }
)


async def test_the_signs_are_read_from_the_stored_rewards_of_one_tenant(api: Api) -> None:
    policy = {"reward_policy": "gamed", "reward_policy_revision": "r1"}
    path = "/api/v1/rewards/policies/gamed/revisions/r1"
    for namespace, copies in (("team-a", 2), ("team-b", FEWEST)):
        await api.call("PUT", path, namespace=namespace, json=SPEC.to_kube())
        await api.call("PUT", "/api/v1/agents/gamer", namespace=namespace, json=policy)
        for index in range(copies):
            body = trajectory(f"g{index:03}", "gamer")
            body["outcome"] |= {"values": {"feedback": 1.0}}
            await api.call("POST", "/api/v1/trajectories", 202, namespace=namespace, json=body)

    async def rewarded(namespace: str, episodes: int) -> bool:
        stats = await api.call("GET", "/api/v1/agents/gamer/stats", namespace=namespace)
        return stats["rewarded"] == episodes

    await eventually(lambda: rewarded("team-a", 2))
    await eventually(lambda: rewarded("team-b", FEWEST))
    foreign = await api.call("GET", f"{path}/signals", namespace="team-b")
    assert (foreign["suspected"], foreign["reason"], foreign["rewards"]) == (True, "DuplicateTrajectories", FEWEST)
    assert len(RewardSignals.model_validate(foreign).worst) == 3, "what the operator reads of it"
    assert (foreign["unrecorded"], foreign["recorded"]) == (["length (constraint short)"], ["feedback"])
    ours = await api.call("GET", f"{path}/signals")
    assert ours["unrecorded"] == [], "two episodes tell nothing"
    assert (ours["suspected"], ours["reason"], ours["rewards"]) == (None, "NotEnoughRewards", 2)
    await api.call("GET", "/api/v1/rewards/policies/gamed/revisions/r9/signals", 404)
