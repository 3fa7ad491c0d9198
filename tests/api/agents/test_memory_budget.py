"""A memory budget of a LearningAgent, on a real API server with the real data plane."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from learnloop_api import names
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.kinds import LEARNING_AGENT, REWARD_POLICY
from testing.operators.api_access import MERGE
from testing.operators.controller_passes import Operator
from testing.servers import data_plane_server

SECONDS = 30.0


@pytest.fixture(scope="module")
def data_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        data_plane_server.postgres() as dsn,
        data_plane_server.listening(dsn, tmp_path_factory.mktemp("artifacts"), index_check_seconds=0.2) as url,
    ):
        yield url


@pytest.fixture
async def operator(api_server: Path, namespace: str, data_url: str) -> AsyncIterator[Operator]:
    data = DataPlane(data_url)
    running = Operator(api_server, namespace, data)
    reward = {"components": [{"name": "solved", "type": "success", "weight": 1}]}
    await running.create("RewardPolicy", "solving", reward)
    await running.status(REWARD_POLICY, "solving", {"revision": "r1"})
    yield running
    await data.close()
    await running.kube.close()


async def remember(operator: Operator, url: str, texts: list[str], **more) -> None:
    memories = [{"agent_id": "la", "memory_type": "semantic", "content": {"text": text}, **more} for text in texts]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        headers = {names.HEADER_NAMESPACE: operator.namespace}
        answer = await client.post("/api/v1/memory/store/batch", json={"memories": memories}, headers=headers)
    assert answer.status_code == 201, answer.text


async def use(operator: Operator, url: str, wanted: Callable[[httpx.Response], bool]) -> httpx.Response:
    """The data plane's answer about the agent's budget, once it is as wanted."""
    headers, end = {names.HEADER_NAMESPACE: operator.namespace}, time.monotonic() + SECONDS
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            await operator.look(operator.agent, "la")
            answer = await client.get("/api/v1/agents/la/memory-budget", headers=headers)
            if wanted(answer):
                return answer
            assert time.monotonic() < end, answer.text
            await asyncio.sleep(0.2)


async def test_a_budget_of_the_spec_holds_at_the_data_plane_until_it_leaves_the_spec(operator, data_url):
    spec = {
        "rewardPolicyRef": {"name": "solving"},
        "task": {"observations": 4, "actions": 2, "external": {}},
        "memory": {"budget": {"memories": 20, "size": "1Mi"}},
    }
    await operator.create("LearningAgent", "la", spec)
    await remember(operator, data_url, [f"trifle {index}" for index in range(60)], importance=0.1)
    await remember(operator, data_url, [f"weighty {index}" for index in range(20)], importance=0.9)
    answer = await use(operator, data_url, lambda answer: answer.json().get("forgotten") == 60)
    assert answer.json()["memories"] == 20

    await operator.look(operator.agent, "la")  # what was forgotten since its last look reaches the status
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.agent, "la")
    assert not operator.writes, "a quiet agent costs no write"

    path = LEARNING_AGENT.path(operator.namespace, "la")
    await operator.kube.http.request("PATCH", path, body={"spec": {"memory": {"budget": None}}}, content_type=MERGE)
    await use(operator, data_url, lambda answer: answer.status_code == 404)


async def recalled(operator: Operator, url: str, agent: str, status: int = 200) -> set[str]:
    """The owners of the memories that the agent's recall with its group finds."""
    body = {"agent_id": agent, "context": "violin", "scope": "group"}
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        answer = await client.post(
            "/api/v1/memory/retrieve", json=body, headers={names.HEADER_NAMESPACE: operator.namespace}
        )
    assert answer.status_code == status, answer.text
    return {memory["agent_id"] for memory in answer.json().get("memories", ())}


async def test_agents_that_declare_a_group_recall_together_and_no_more_when_they_leave_it(operator, data_url):
    spec = {"rewardPolicyRef": {"name": "solving"}, "task": {"observations": 4, "actions": 2, "external": {}}}
    for name in ("la", "lb"):
        await operator.create("LearningAgent", name, spec | {"memory": {"group": "support"}})
    await remember(operator, data_url, ["the violin is in the left cupboard"])
    for name in ("la", "lb"):
        await operator.settle(operator.agent, name)
    assert await recalled(operator, data_url, "lb") == {"la"}
    path = LEARNING_AGENT.path(operator.namespace, "lb")
    await operator.kube.http.request("PATCH", path, body={"spec": {"memory": {"group": None}}}, content_type=MERGE)
    await operator.settle(operator.agent, "lb")
    await recalled(operator, data_url, "lb", status=422)
    assert await recalled(operator, data_url, "la") == {"la"}
