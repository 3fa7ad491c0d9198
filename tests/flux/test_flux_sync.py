"""The example Kustomization, applied by Flux from a Git repository; a rollout and a rollback as Flux sees them.

Real: source-controller and kustomize-controller, the API server, the operator's process with the rights that the chart
gives it. Played: helm-controller by helm itself, kubelets, agents and Prometheus.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from testing.gitops.flux_cd import Flux, Seen, flux
from testing.gitops.git_repository import GitRepository
from testing.gitops.git_server import served
from testing.gitops.git_world import PATIENCE, SYSTEM, TEAM, GitWorld, holds, manifest, operator, platform
from testing.operators.crash_world import NAME, revision
from testing.operators.served_traffic import Provider

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "flux" / "agents.yaml"
READY_SECONDS = 60.0
FAILED_SECONDS = 6.0
"""Flux asks for the health of what it has applied every five seconds."""
AGAIN_SECONDS = 2
"""Between two passes over the cluster, where differences are looked for."""
OURS = f"ModelDeployment/{TEAM}/{NAME}"


def example(url: str) -> dict[str, dict[str, Any]]:
    """The GitRepository and the Kustomization of the example, from our repository; and `team`, which is as `agents`
    with another path."""
    documents = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    found = {item["kind"]: item for item in documents}
    found["GitRepository"]["spec"]["url"] = url
    team = yaml.safe_load(yaml.safe_dump(found["Kustomization"]))
    team["metadata"]["name"], team["spec"]["path"], team["spec"]["targetNamespace"] = TEAM, "./team", TEAM
    return {"repository": found["GitRepository"], "agents": found["Kustomization"], "team": team}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """The chart, the quickstart, and a team's ModelDeployment."""
    return platform(tmp_path_factory.mktemp("git") / "platform")


@pytest.fixture(scope="module")
def running(bare_api_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    """Flux, and the chart as its HelmRelease would install it."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    chart = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", SYSTEM]
    chart += ["--kube-version", "1.35.4", "--no-hooks", "--set", "global.imageRegistry=registry.example.com"]
    rendered = subprocess.run(chart, capture_output=True, text=True, check=True).stdout
    with flux(bare_api_server, tmp_path_factory.mktemp("flux")) as made:
        for namespace in (SYSTEM, "agents", TEAM):
            made.kubectl("create", "namespace", namespace)
        objects = [item for item in yaml.safe_load_all(rendered) if item]
        kinds = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
        made.apply(*kinds)
        for item in kinds:
            made.established(item["metadata"]["name"])
        made.apply(*(item for item in objects if item not in kinds))
        yield made


@pytest_asyncio.fixture
async def world(running: Flux, bare_api_server: Path, tmp_path: Path) -> AsyncIterator[GitWorld]:
    """The operator and what lives around the team's model, which Flux has not applied yet."""
    provider = Provider()
    await provider.start()
    made = GitWorld(bare_api_server, provider, tmp_path, "service", TEAM)
    try:
        await made.create()
        async with operator(running.kubectl, bare_api_server, provider.url, tmp_path):
            yield made
    finally:
        await made.end()
        await provider.stop()


async def until(running: Flux, what: str, seen: Any, seconds: float, name: str = TEAM) -> Seen:
    return await asyncio.to_thread(running.until, name, what, seen, seconds)


async def test_flux_applies_the_example_corrects_nothing_in_a_rollout_and_fails_with_a_rollback(
    running: Flux, repository: GitRepository, world: GitWorld
) -> None:
    with served(repository.folder) as url:
        objects, began = example(url), time.monotonic()
        running.apply(*objects.values())
        ready = await until(running, "ready", lambda it: it.ready == "True", 300.0)
        print(f"Ready {ready.at - began:.1f} s after it was created")
        assert ready.at - began <= READY_SECONDS * PATIENCE
        assert (await world.object())["status"]["phase"] == "Healthy", "not ready before the operator says so"
        await until(running, "applied", lambda _: bool(running.changes("agents")), 60.0, "agents")
        assert "True" not in {seen.ready for seen in running.seen["agents"]}, "nobody looks after the quickstart here"

        # A rollout, while Flux compares Git and cluster every two seconds.
        looking = yaml.safe_load(yaml.safe_dump(objects["team"]))
        looking["spec"] |= {"wait": False, "interval": f"{AGAIN_SECONDS}s"}
        del looking["spec"]["healthCheckExprs"]
        running.apply(looking)
        world.traffic.quality[revision(1)] = 1.0
        sha = repository.commit("Serve model 1", {"team/model.yaml": manifest(1)})
        running.look(TEAM, "learnloop")
        await world.serves(1)
        await asyncio.sleep(3 * AGAIN_SECONDS)
        passes = [said[OURS] for at, said in running.changes(TEAM) if sha in at]
        print(f"{len(passes)} passes in the rollout: {passes.count('configured')} configured")
        assert len(passes) >= 4
        assert (passes[0], set(passes[1:])) == ("configured", {"unchanged"}), "no drift to be corrected"

        # A model that is rolled back, while Flux waits for its health.
        running.apply(objects["team"])
        world.traffic.quality[revision(2)] = 0.0
        sha = repository.commit("Serve model 2", {"team/model.yaml": manifest(2)})
        begun = time.monotonic()
        running.look(TEAM, "learnloop")
        await world.until("a rollback", lambda status: holds(status, "RolledBack"))
        rolled_back = time.monotonic()
        failed = await until(
            running, "failed", lambda it: it.at > begun and it.ready == "False" and NAME in it.message, 120.0
        )
        seconds = max(0.0, failed.at - rolled_back)
        print(f"{failed.reason} {seconds:.2f} s after the rollback was seen: {failed.message}")
        assert failed.reason == "HealthCheckFailed"
        assert seconds <= FAILED_SECONDS * PATIENCE
        passes = [said[OURS] for at, said in running.changes(TEAM) if sha in at]
        assert passes.count("configured") == 1
