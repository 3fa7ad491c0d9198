"""`kubectl learnloop rewards`: one table of what episodes were worth, under what is suspected of their policy."""

import json

from learnloop_operator.cli.main import main
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


class Rig:
    """A cluster with one agent, its policy, and a data plane."""

    namespace = "team-a"

    def __init__(self, *answers) -> None:
        self.rewards, self.queries = list(answers), list[dict[str, str]]()

    def get(self, plural: str, name: str):
        agent = {"spec": {"rewardPolicyRef": {"name": "paying"}}}
        return {("learningagents", "walker"): agent, ("rewardpolicies", "paying"): POLICY}[plural, name]

    def token(self, account: str, audience: str) -> str:
        return "token"

    def forward(self, service: str):
        def send(method: str, path: str, query, headers, body, seconds: float) -> tuple[int, str]:
            assert (method, path) == ("GET", "/api/v1/rewards/history")
            self.queries.append(dict(query))
            return 200, json.dumps({"rewards": self.rewards, "next": None})

        return send


def printed(rig: Rig, *arguments: str) -> str:
    return typed(rig, "rewards", "walker", *arguments)


def test_the_suspicion_stands_above_the_rewards_and_a_missing_component_is_blank() -> None:
    rig = Rig(REWARD, OLDER)
    head, table = printed(rig, "--limit", "2").split("\n\n")
    assert head.splitlines() == ["policy     paying, revision abc", "suspicion  28% repeat; look at t1"]
    assert [line.split() for line in table.splitlines()] == [
        ["TIME", "TRAJECTORY", "REWARD", "RAW", "SURE", "DONE", "QUICK", "BROKEN"],
        ["2026-03-01", "12:00:00", "t1", "0.510", "0.800", "75%", "1", "0.25"],
        ["2026-03-01", "12:00:00", "t0", "-5.000", "0.800", "75%", "0", "no-leak"],
    ]
    assert rig.queries == [{"agent_id": "walker", "limit": "2"}]


def test_an_agent_without_rewards_says_so_and_a_limit_out_of_bounds_is_refused() -> None:
    assert printed(Rig()).endswith("no episode is rewarded yet")
    assert main(["rewards", "walker", "--limit", "0"]) == main(["progress", "walker", "--weeks", "105"]) == 2
    assert main(["console", "--port", "65536"]) == 2
