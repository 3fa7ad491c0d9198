"""A RewardPolicy from its manifest to the rewards, and what they say of it back in its status: a real API server and a
real data plane."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from learnloop_api import names
from learnloop_dataplane.rewards import reward_hacking
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.kinds import REWARD_POLICY
from learnloop_sdk import Learnloop
from testing.operators.api_access import MERGE
from testing.operators.controller_passes import Operator
from testing.servers import data_plane_server

SECONDS = 150.0
EPISODES = 120
SUSPECTED = "RewardHackingSuspected"


@pytest.fixture(scope="module")
def data_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        patch.object(reward_hacking, "FRESH_SECONDS", 1.0),  # else the first answer holds for a minute
        data_plane_server.postgres() as dsn,
        data_plane_server.listening(dsn, tmp_path_factory.mktemp("artifacts"), sweep_seconds=0.2) as url,
    ):
        yield url


@pytest.fixture
async def operator(api_server: Path, namespace: str, data_url: str) -> AsyncIterator[Operator]:
    data = DataPlane(data_url)
    running = Operator(api_server, namespace, data)
    yield running
    await data.close()
    await running.kube.close()


def suspicion(status: dict) -> dict:
    return next((item for item in status.get("conditions", ()) if item["type"] == SUSPECTED), {})


async def pay(operator: Operator) -> dict:
    """An agent under a policy of defaults; the published policy's status."""
    await operator.create("RewardPolicy", "paying", {})
    published = await operator.settle(operator.rewards, "paying")
    task = {"observations": 1, "actions": 2, "external": {}}
    await operator.create("LearningAgent", "mover", {"rewardPolicyRef": {"name": "paying"}, "task": task})
    await operator.settle(operator.agent, "mover")
    return published


async def play(operator: Operator, url: str, count: int, first: int = 0) -> list[str]:
    """Episodes of an agent that found out that one and the same move pays, again and again; their ids."""
    ids = []
    async with Learnloop("mover", data_url=url, namespace=operator.namespace) as loop:
        for number in range(first, first + count):
            async with loop.episode("move", external=True) as episode:
                episode.record(1, 1.0, terminated=True, observation=[0.0 if number % 2 else float(number)])
                episode.outcome(True)
                ids.append(episode.trajectory_id)
        assert await loop.flush(SECONDS) == 0
    return ids


async def rewarded(operator: Operator, url: str) -> list[dict]:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        headers = {names.HEADER_NAMESPACE: operator.namespace}
        answer = await client.get("/api/v1/rewards/history?agent_id=mover&limit=1000", headers=headers)
    return answer.json()["rewards"]


async def test_rewards_of_a_published_policy_and_the_suspicion_they_raise_with_the_three_worst_reach_the_status(
    operator: Operator, data_url: str
) -> None:
    published = await pay(operator)
    ids = await play(operator, data_url, EPISODES)

    status = await operator.until(
        operator.rewards, "paying", lambda status: suspicion(status).get("status") == "True", SECONDS
    )
    finding = suspicion(status)
    assert (status["agents"], finding["reason"]) == (1, "DuplicateTrajectories")
    worst = finding["message"].partition("look at trajectories ")[2].split(", ")
    assert len(worst) == 3
    assert set(worst) <= set(ids)
    rewards = await rewarded(operator, data_url)
    assert {item["reward_policy_revision"] for item in rewards} == {published["revision"]}
    assert set(rewards[0]["components"]) == {"completion", "efficiency", "quality", "feedback"}

    for _ in range(2):
        await operator.look(operator.rewards, "paying")
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rewards, "paying")
    assert not operator.writes, "a suspicion that stays costs no write"


async def test_a_dry_run_tells_in_the_status_what_a_change_would_do_and_publishes_nothing(operator, data_url):
    published = await pay(operator)
    await play(operator, data_url, 20)
    for _ in range(int(SECONDS / 0.2)):
        if len(await rewarded(operator, data_url)) == 20:
            break
        await asyncio.sleep(0.2)
    change = {"dryRun": True, "components": [{"name": "quick", "type": "efficiency", "weight": 1, "scale": 10}]}
    path = REWARD_POLICY.path(operator.namespace, "paying")
    await operator.kube.http.request("PATCH", path, body={"spec": change}, content_type=MERGE)
    status = await operator.until(operator.rewards, "paying", lambda status: "dryRun" in status, SECONDS)
    assert status["dryRun"]["trajectories"] == 20
    assert status["dryRun"]["message"].startswith("over 20 episodes one of the policies gives all the same reward")
    assert status["revision"] == published["revision"]


async def test_bias_between_groups_reaches_the_status_and_holds_a_biased_revision_back(operator, data_url):
    published = await pay(operator)
    async with Learnloop("mover", data_url=data_url, namespace=operator.namespace) as loop:
        for number in range(2 * 15):
            metadata = {"language": "english" if number % 2 else "german"}
            async with loop.episode("move", external=True, metadata=metadata) as episode:
                episode.record(1, 1.0, terminated=True, observation=[float(number)])
                episode.outcome(True, tone=0.9 if number % 2 else 0.2)
        assert await loop.flush(SECONDS) == 0
    rule = {"groupBy": ["metadata.language"], "minimumEpisodes": 10, "blockPublishing": True}
    biased = {"components": [{"name": "tone", "type": "outcome", "key": "tone", "weight": 1}], "bias": rule}
    path = REWARD_POLICY.path(operator.namespace, "paying")
    await operator.kube.http.request("PATCH", path, body={"spec": biased}, content_type=MERGE)
    status = await operator.until(operator.rewards, "paying", lambda status: status["phase"] == "Blocked", SECONDS)
    [condition] = [item for item in status["conditions"] if item["type"] == "BiasSuspected"]
    assert (condition["status"], condition["reason"]) == ("True", "RewardGap")
    assert "english earns 0.7 more than german for the same outcome" in condition["message"]
    assert status["revision"] == published["revision"], "what was in force stays in force"

    fair = {"components": [{"name": "done", "type": "success", "weight": 1}]}
    await operator.kube.http.request("PATCH", path, body={"spec": fair}, content_type=MERGE)
    status = await operator.until(operator.rewards, "paying", lambda status: status["phase"] == "Published", SECONDS)
    [condition] = [item for item in status["conditions"] if item["type"] == "BiasSuspected"]
    assert (condition["status"], condition["reason"]) == ("False", "NothingFound")
    assert status["revision"] != published["revision"]
