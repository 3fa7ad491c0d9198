"""A memory budget from the LearningAgent to the real data plane and back into the status, on a real API server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from learnloop_api import names
from learnloop_operator.data_plane import DataPlane
from learnloop_operator.kube.kinds import LEARNING_AGENT, REWARD_POLICY
from testing.operators.controller_passes import MERGE, Operator
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


async def remember(operator: Operator, url: str, texts: list[str], **more: Any) -> None:
    memories = [{"agent_id": "la", "memory_type": "semantic", "content": {"text": text}, **more} for text in texts]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        headers = {names.HEADER_NAMESPACE: operator.namespace}
        answer = await client.post("/api/v1/memory/store/batch", json={"memories": memories}, headers=headers)
    assert answer.status_code == 201, answer.text


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((item for item in status["conditions"] if item["type"] == "MemoryBudget"), {})


async def test_a_budget_reaches_the_data_plane_and_its_use_the_status(operator: Operator, data_url: str) -> None:
    spec = {
        "rewardPolicyRef": {"name": "solving"},
        "task": {"observations": 4, "actions": 2, "external": {}},
        "memory": {"budget": {"memories": 20, "size": "1Mi"}},
    }
    await operator.create("LearningAgent", "la", spec)
    await remember(operator, data_url, [f"trifle {index}" for index in range(60)], importance=0.1)
    await remember(operator, data_url, [f"weighty {index}" for index in range(20)], importance=0.9)
    status = await operator.until(
        operator.agent, "la", lambda status: (status.get("memory") or {}).get("forgotten") == 60, SECONDS
    )
    assert (status["memory"]["memories"], status["memory"]["used"]) == (20, "100%")
    assert condition(status)["status"] == "True"

    for _ in range(2):  # what was seen is on record
        await operator.look(operator.agent, "la")
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.agent, "la")
    assert not operator.writes, "a quiet agent costs no write"

    await remember(operator, data_url, [f"pinned {index}" for index in range(21)], pinned=True)
    status = await operator.until(
        operator.agent, "la", lambda status: condition(status).get("reason") == "PinnedAboveBudget", SECONDS
    )
    assert condition(status)["message"].startswith("21 pinned memories alone exceed spec.memory.budget.memories")

    path = LEARNING_AGENT.path(operator.namespace, "la")
    await operator.kube.http.request("PATCH", path, body={"spec": {"memory": {"budget": None}}}, content_type=MERGE)
    status = await operator.until(operator.agent, "la", lambda status: not condition(status), SECONDS)
    assert "memory" not in status
    async with httpx.AsyncClient(base_url=data_url, trust_env=False) as client:
        headers = {names.HEADER_NAMESPACE: operator.namespace}
        gone = await client.get("/api/v1/agents/la/memory-budget", headers=headers)
    assert gone.status_code == 404


async def recalled(operator: Operator, url: str, agent: str, status: int = 200) -> set[str]:
    """Whose memories the agent's recall with its group finds."""
    body = {"agent_id": agent, "context": "violin", "scope": "group"}
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        answer = await client.post(
            "/api/v1/memory/retrieve", json=body, headers={names.HEADER_NAMESPACE: operator.namespace}
        )
    assert answer.status_code == status, answer.text
    return {memory["agent_id"] for memory in answer.json().get("memories", ())}


async def test_agents_that_declare_a_group_recall_together_and_no_more_when_they_leave_it(
    operator: Operator, data_url: str
) -> None:
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
