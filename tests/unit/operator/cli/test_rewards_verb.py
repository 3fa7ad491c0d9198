"""`kubectl learnloop rewards`: one table of what episodes were worth, under what is suspected of their policy."""

from learnloop_operator.cli.main import main
from testing.browsers.console_server import WrittenCluster
from testing.command_line import typed

REWARD = {
    "trajectory_id": "t1",
    "computed_at": "2026-03-01T12:00:00.123Z",
    "reward": 0.51,
    "raw_reward": 0.8,
    "confidence": 0.75,
    "components": {"done": 1.0, "quick": 0.25},
    "violated": [],
}
OLDER = {**REWARD, "trajectory_id": "t0", "components": {"done": 0.0}, "violated": ["no-leak"], "reward": -5.0}
POLICY = {
    "metadata": {"name": "paying"},
    "status": {
        "revision": "abc",
        "conditions": [{"type": "RewardHackingSuspected", "status": "True", "message": "28% repeat; look at t1"}],
    },
}


def cluster(*rewards) -> WrittenCluster:
    """With one agent, its policy, and a data plane."""
    made = WrittenCluster(records={"/api/v1/rewards/history": {"rewards": rewards, "next": None}})
    made.objects["learningagents", "walker"] = {"spec": {"rewardPolicyRef": {"name": "paying"}}}
    made.objects["rewardpolicies", "paying"] = POLICY
    return made


def test_the_suspicion_stands_above_the_rewards_and_a_missing_component_is_blank() -> None:
    plane = cluster(REWARD, OLDER)
    head, table = typed(plane, "rewards", "walker", "--limit", "2").split("\n\n")
    assert head.splitlines() == ["policy     paying, revision abc", "suspicion  28% repeat; look at t1"]
    assert [line.split() for line in table.splitlines()] == [
        ["TIME", "TRAJECTORY", "REWARD", "RAW", "SURE", "DONE", "QUICK", "BROKEN"],
        ["2026-03-01", "12:00:00", "t1", "0.510", "0.800", "75%", "1", "0.25"],
        ["2026-03-01", "12:00:00", "t0", "-5.000", "0.800", "75%", "0", "no-leak"],
    ]
    assert plane.requests == [("GET", "/api/v1/rewards/history", {"agent_id": "walker", "limit": "2"}, None)]


def test_an_agent_without_rewards_says_so_and_a_limit_out_of_bounds_is_refused() -> None:
    assert typed(cluster(), "rewards", "walker").endswith("no episode is rewarded yet")
    assert main(["rewards", "walker", "--limit", "0"]) == main(["progress", "walker", "--weeks", "105"]) == 2
    assert main(["console", "--port", "65536"]) == 2
