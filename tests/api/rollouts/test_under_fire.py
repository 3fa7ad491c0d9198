"""Whole rollouts while the API server answers wrongly and while a user edits everything there is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_asyncio.client import Configuration

from learnloop_operator.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT, SERVICE
from testing.operators.api_access import from_kubeconfig, patch
from testing.operators.crash_rig import NAME, Rig, full_spec
from testing.operators.crash_scenarios import phase, scenario, serves
from testing.operators.crash_sweep import MOST_TURNS, run
from testing.operators.served_traffic import Provider
from testing.proxies.fault_proxy import FaultProxy

MERGE = "application/merge-patch+json"
MOST_ROLLOUTS = 3
"""One meets every kind of fault in general; a short one that does not is played again through the same proxy."""


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def connection(api_server: Path) -> Configuration:
    return from_kubeconfig(api_server)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("promoted", 1), ("rolled back", 2), ("by a gateway, promoted", 2), ("by a gateway, rolled back", 1)],
)
async def test_a_server_that_fails_in_each_way_changes_nothing_about_the_end(connection, provider, name, seed):
    story = scenario(name)
    undisturbed = await run(connection, provider, story)
    proxy = FaultProxy(connection, seed)
    await proxy.start()
    for _ in range(MOST_ROLLOUTS):
        result = await run(connection, provider, story, through=proxy.connection)
        assert not result.violations
        assert result.state == undisturbed.state
        if not proxy.missing:
            break
    await proxy.stop()
    assert not proxy.missing, f"no request met {proxy.missing}; those met: {dict(proxy.met)}"


async def meddle(rig: Rig, turn: int) -> None:
    """The acts of a person with all rights to the operator's work, one thing each turn."""
    arms = sorted(rig.ledger.replicas)
    if not arms:
        return
    arm = arms[turn % len(arms)]
    if turn % 4 == 0:
        await patch(rig.user, DEPLOYMENT, rig.namespace, arm, {"spec": {"replicas": 5}})
    elif turn % 4 == 1:
        await rig.user.delete(SERVICE.ref(rig.namespace, arm))
    elif turn % 4 == 2:
        note = {"metadata": {"annotations": {"team.example/ticket": str(turn)}, "labels": {"team": "a"}}}
        await patch(rig.user, MODEL_DEPLOYMENT, rig.namespace, NAME, note)
    else:
        path = MODEL_DEPLOYMENT.path(rig.namespace, NAME, "status")
        await rig.user.http.request("PATCH", path, body={"status": {"verdict": "mine"}}, content_type=MERGE)


async def test_a_user_who_edits_children_metadata_and_status_loses_and_the_rollout_ends(connection, provider):
    rig = Rig(connection, provider, full_spec())
    await rig.begin()
    for chapter, done in enumerate((phase("Healthy"), serves(1))):
        if chapter:
            await rig.wish(1, 1.0)
        for turn in range(MOST_TURNS):
            await rig.turn()
            if done(rig):
                break
            await meddle(rig, turn)
    assert serves(1)(rig)
    while await rig.turn():
        pass
    left = await rig.user.list(DEPLOYMENT, rig.namespace)
    assert [item["spec"]["replicas"] for item in left] == [2]
    services = {item["metadata"]["name"] for item in await rig.user.list(SERVICE, rig.namespace)}
    assert services == {NAME, left[0]["metadata"]["name"]}
    live = await rig.user.get(MODEL_DEPLOYMENT, rig.namespace, NAME)
    assert live["metadata"]["labels"] == {"team": "a"}
    assert live["status"]["verdict"] != "mine"
    await rig.end()
