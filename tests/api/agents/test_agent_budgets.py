"""Budgets of a MemoryService's agents on a real API server: one ConfigMap, written when one of them changes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_api.wire.memory_budget import BUDGETS_KEY
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kinds import CONFIG_MAP, DEPLOYMENT, LEARNING_AGENT, REWARD_POLICY
from learnloop_operator.reconcile.memory_service import MemoryServiceController
from testing.operators.api_access import MERGE, patch
from testing.operators.controller_passes import Operator
from testing.operators.operator_processes import PATIENCE, LiveRig, live_rig


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    running = Operator(api_server, namespace)
    await running.create("RewardPolicy", "solving", {"components": [{"name": "won", "type": "success", "weight": 1}]})
    await running.status(REWARD_POLICY, "solving", {"revision": "r1"})
    yield running
    await running.kube.close()


@pytest.fixture
def controller(operator: Operator) -> MemoryServiceController:
    return MemoryServiceController(operator.services)


def spec(**budget) -> dict:
    return {
        "rewardPolicyRef": {"name": "solving"},
        "task": {"observations": 4, "actions": 2, "external": {}},
        "memory": {"serviceRef": {"name": "mem"}, **({"budget": budget} if budget else {})},
    }


async def agent(operator: Operator, name: str, **budget) -> None:
    await operator.create("LearningAgent", name, spec(**budget))


async def change(operator: Operator, name: str, memory: dict) -> None:
    path = LEARNING_AGENT.path(operator.namespace, name)
    await operator.kube.http.request("PATCH", path, body={"spec": {"memory": memory}}, content_type=MERGE)


async def written(operator: Operator) -> dict:
    config_map = await operator.kube.get(CONFIG_MAP, operator.namespace, "mem-budgets")
    read = json.loads(config_map["data"][BUDGETS_KEY])
    assert read["namespace"] == operator.namespace
    return dict(read["agents"])


async def test_every_change_of_an_agents_budget_is_one_write_and_no_pod_restarts(operator, controller):
    await agent(operator, "first", memories=100)
    await agent(operator, "second", size="2Mi")
    await agent(operator, "unlimited")
    await operator.create("MemoryService", "mem", {"storage": {}})
    await operator.settle(controller, "mem")
    assert await written(operator) == {"first": {"memories": 100}, "second": {"bytes": 2 * 2**20}}
    await operator.settle(operator.agent, "first")
    assert not any("memory-budget" in name for name in operator.data.agents), "the data plane gets nothing"

    await operator.settle(controller, "mem")
    pods = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    operator.writes.clear()
    await operator.settle(controller, "mem")
    assert not operator.writes, "nothing at rest"
    for memory, now in (({"budget": {"memories": 50}}, {"memories": 50}), ({"budget": None}, None)):
        await change(operator, "first", memory)
        operator.writes.clear()
        await operator.settle(controller, "mem")
        assert (await written(operator)).get("first") == now
        assert dict(operator.writes) == {"apply ConfigMap": 1}

    await operator.kube.delete(LEARNING_AGENT.ref(operator.namespace, "second"))
    await operator.settle(controller, "mem")
    assert await written(operator) == {}
    after = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    assert after["metadata"]["generation"] == pods["metadata"]["generation"], "the pods' template is as it was"


async def test_a_group_reaches_the_pods_as_a_budget_does(operator, controller):
    await operator.create("MemoryService", "mem", {"storage": {}})
    await agent(operator, "first", memories=100)
    await agent(operator, "second")
    await operator.settle(controller, "mem")
    pods = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    for name in ("first", "second"):
        await change(operator, name, {"group": "support"})
    operator.writes.clear()
    await operator.settle(controller, "mem")
    assert await written(operator) == {"first": {"memories": 100, "group": "support"}, "second": {"group": "support"}}
    assert operator.writes["apply ConfigMap"] == 1
    await change(operator, "second", {"group": None})
    await operator.settle(controller, "mem")
    assert list(await written(operator)) == ["first"]
    after = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    assert after["metadata"]["generation"] == pods["metadata"]["generation"], "the pods' template is as it was"


async def test_an_agent_that_leaves_for_the_installation_takes_its_line_along(operator, controller):
    await operator.create("MemoryService", "mem", {"storage": {}})
    await agent(operator, "mover", memories=100)
    await operator.settle(controller, "mem")
    assert list(await written(operator)) == ["mover"]
    await change(operator, "mover", {"serviceRef": None})
    await operator.settle(controller, "mem")
    assert await written(operator) == {}


async def test_a_config_map_of_somebody_else_is_left_alone_and_named(operator, controller):
    metadata = {"name": "mem-budgets", "namespace": operator.namespace}
    await operator.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    await operator.create("MemoryService", "mem", {"storage": {}})
    with pytest.raises(KubeError, match="mem-budgets exists and is not controlled by MemoryService mem"):
        await operator.look(controller, "mem")
    config_map = await operator.kube.get(CONFIG_MAP, operator.namespace, "mem-budgets")
    assert config_map["data"] == {"a": "b"}


async def test_a_config_map_that_somebody_deletes_or_edits_is_put_right_at_once(api_server, tmp_path):
    async with live_rig(api_server, tmp_path) as rig:
        await rig.operator()
        await put(rig, "MemoryService", "mem", {"storage": {}, "suspend": True})
        await put(rig, "LearningAgent", "la", spec(memories=100))
        await until_published(rig, {"la": {"memories": 100}})
        await rig.user.delete(CONFIG_MAP.ref(rig.namespace, "mem-budgets"))
        await until_published(rig, {"la": {"memories": 100}})
        await patch(rig.user, CONFIG_MAP, rig.namespace, "mem-budgets", {"data": {BUDGETS_KEY: '{"agents":{}}'}})
        await until_published(rig, {"la": {"memories": 100}})
        unlabelled = {"metadata": {"labels": {names.LABEL_MEMORY: None}}, "data": {BUDGETS_KEY: '{"agents":{}}'}}
        await patch(rig.user, CONFIG_MAP, rig.namespace, "mem-budgets", unlabelled)
        await until_published(rig, {"la": {"memories": 100}})


async def put(rig: LiveRig, kind: str, name: str, spec: dict) -> None:
    metadata = {"name": name, "namespace": rig.namespace}
    await rig.user.create({"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})


async def until_published(rig: LiveRig, agents: dict) -> None:
    end, budgets = time.monotonic() + PATIENCE, ""
    wanted = {"namespace": rig.namespace, "agents": agents}
    while not budgets or json.loads(budgets) != wanted:
        assert time.monotonic() < end, f"{budgets}, not {wanted}\n{rig.operators[0].output[-1500:]}"
        await asyncio.sleep(0.1)
        config_map = await rig.user.find(CONFIG_MAP, rig.namespace, "mem-budgets")
        budgets = config_map["data"][BUDGETS_KEY] if config_map else ""
