"""A write is refused when the object is not as it was read: a leader that woke up too late changes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_operator.kube.errors import Conflict
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.kube.kinds import CONFIG_MAP, REWARD_POLICY
from testing.operators.api_access import from_kubeconfig, patch

MANAGER = "learnloop-test"
POLICY = {"components": [{"name": "success", "type": "success", "weight": 1.0}]}


@pytest.fixture
async def client(api_server: Path) -> AsyncIterator[KubeClient]:
    made = KubeClient(from_kubeconfig(api_server))
    yield made
    await made.close()


def policy(namespace: str) -> dict:
    metadata = {"name": "p", "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": "RewardPolicy", "metadata": metadata, "spec": POLICY}


def table(namespace: str, text: str) -> dict:
    metadata = {"name": "t", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"table": text}}


async def test_a_status_stays_off_another_object_of_the_same_name(client: KubeClient, namespace: str) -> None:
    before = await client.create(policy(namespace))
    await client.delete(REWARD_POLICY.ref(namespace, "p"))
    await client.create(policy(namespace))
    with pytest.raises(Conflict):
        await client.apply_status({"phase": "Ready"}, MANAGER, live=before)
    assert not (await client.get(REWARD_POLICY, namespace, "p")).get("status")


async def test_a_status_stays_off_a_version_that_it_was_not_decided_on(client: KubeClient, namespace: str) -> None:
    before = await client.create(policy(namespace))
    await patch(client, REWARD_POLICY, namespace, "p", {"metadata": {"labels": {"edited": "yes"}}})
    with pytest.raises(Conflict):
        await client.apply_status({"phase": "Ready"}, MANAGER, live=before)
    assert not (await client.get(REWARD_POLICY, namespace, "p")).get("status")


async def test_a_child_that_changed_keeps_the_change(client: KubeClient, namespace: str) -> None:
    before = await client.apply(table(namespace, "1"), MANAGER, live=None)
    await client.apply(table(namespace, "2"), MANAGER, live=before)
    with pytest.raises(Conflict):
        await client.apply(table(namespace, "0"), MANAGER, live=before)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP.ref(namespace, "t"), live=before)
    assert (await client.get(CONFIG_MAP, namespace, "t"))["data"] == {"table": "2"}


async def test_a_child_that_was_deleted_stays_deleted(client: KubeClient, namespace: str) -> None:
    before = await client.apply(table(namespace, "1"), MANAGER, live=None)
    assert await client.delete(CONFIG_MAP.ref(namespace, "t"), live=before)
    with pytest.raises(Conflict):
        await client.apply(table(namespace, "2"), MANAGER, live=before)
    assert await client.find(CONFIG_MAP, namespace, "t") is None


async def test_a_child_that_was_replaced_is_left_alone(client: KubeClient, namespace: str) -> None:
    before = await client.apply(table(namespace, "1"), MANAGER, live=None)
    await client.delete(CONFIG_MAP.ref(namespace, "t"), live=before)
    await client.apply(table(namespace, "new"), MANAGER, live=None)
    with pytest.raises(Conflict):
        await client.apply(table(namespace, "2"), MANAGER, live=before)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP.ref(namespace, "t"), live=before)
    assert (await client.get(CONFIG_MAP, namespace, "t"))["data"] == {"table": "new"}
