"""A ModelDeployment against a real API server: manifests are accepted, quiet costs no write."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_operator.cli import main
from learnloop_operator.core.plan import ObjectRef
from learnloop_operator.kube.kinds import CONFIG_MAP, DEPLOYMENT, SECRET, SERVICE
from learnloop_operator.rollout.children.routing import read
from testing.operators.controller_passes import Operator, serve, wish


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    running = Operator(api_server, namespace)
    yield running
    await running.kube.close()


async def played(operator: Operator, stable: str, ordinary: float, canary: str, other: float, *, until: str) -> dict:
    """The status once the phase is `until`, while both arms end episodes with these mean returns side by side."""
    for looks in range(1, 41):
        operator.shift += timedelta(seconds=3)
        operator.prometheus.arms = {stable: (60 + 10 * looks, ordinary), canary: (6 * looks, other)}
        status = await operator.settle(operator.rollout, "md")
        if status["phase"] == until:
            return status
    raise AssertionError(f"no {until} within 240 episodes: {status}")


async def test_the_first_model_serves_and_a_second_look_writes_nothing(operator: Operator) -> None:
    status = await serve(operator)
    assert (status["phase"], status.get("weight")) == ("Healthy", None)
    services = {item["metadata"]["name"] for item in await operator.kube.list(SERVICE, operator.namespace)}
    assert services == {"md", f"md-{status['stable']['revision']}"}
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rollout, "md")
    assert not operator.writes


async def test_the_key_of_the_episodes_is_made_once_and_again_when_it_is_gone(operator: Operator) -> None:
    async def key() -> dict | None:
        return await operator.kube.find(SECRET, operator.namespace, "md-episodes")

    await serve(operator)
    made = await key()
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["ModelDeployment"]
    assert len(base64.b64decode(made["data"][names.EPISODE_KEY])) >= 32
    await wish(operator, 1)
    assert await key() == made, "a rollout writes nothing to it"
    await operator.kube.delete(ObjectRef("v1", "Secret", operator.namespace, "md-episodes"))
    await wish(operator, 2)
    again = await key()
    assert again["data"] != made["data"]


async def test_a_better_model_is_promoted_without_a_pod_restart(operator: Operator) -> None:
    stable = (await serve(operator))["stable"]["revision"]
    canary = await wish(operator, 1)
    before = await operator.kube.get(DEPLOYMENT, operator.namespace, f"md-{canary}")
    status = await played(operator, stable, 300.0, canary, 480.0, until="Guarding")
    assert status["stable"]["revision"] == canary
    assert status["stable"]["meanReturn"] == 480.0
    after = await operator.kube.get(DEPLOYMENT, operator.namespace, f"md-{canary}")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    operator.shift += timedelta(seconds=40)
    for _ in range(3):
        status = await operator.settle(operator.rollout, "md")
        await asyncio.sleep(0)
    assert status["phase"] == "Healthy"
    left = [item["metadata"]["name"] for item in await operator.kube.list(DEPLOYMENT, operator.namespace)]
    assert left == [f"md-{canary}"]


async def command(operator: Operator, api_server: Path, *words: str) -> dict:
    """The answer to `kubectl learnloop`, and the answer on record."""
    arguments = ["--kubeconfig", str(api_server), "-n", operator.namespace, words[0], "md", *words[1:]]
    assert await asyncio.to_thread(main.main, arguments) == 0
    decisions = (await operator.settle(operator.rollout, "md"))["decisions"]
    return dict(decisions[-1])


async def test_what_people_say_is_obeyed_once_and_kept_with_their_name(operator: Operator, api_server: Path) -> None:
    first = (await serve(operator))["stable"]["revision"]
    second = await wish(operator, 1)
    held = await command(operator, api_server, "pause")
    assert (held["verb"], held["revision"], held["outcome"]) == ("pause", second, "obeyed")
    assert held["by"]
    assert "verified" not in held, "no policy was said to be in force"
    operator.writes.clear()
    for _ in range(3):
        await operator.look(operator.rollout, "md")
    assert not operator.writes
    assert (await command(operator, api_server, "resume"))["outcome"] == "obeyed"
    assert (await command(operator, api_server, "promote"))["outcome"] == "obeyed"
    await operator.pods_ready()
    status = await operator.settle(operator.rollout, "md")
    assert (status["stable"]["revision"], status["phase"]) == (second, "Guarding")
    assert (await command(operator, api_server, "undo"))["outcome"] == "obeyed"
    table = read(await operator.kube.get(CONFIG_MAP, operator.namespace, "md-routing")).table
    assert [(arm.revision, arm.weight) for arm in table.arms] == [(first, 100)]
