"""The example Kustomization, applied by Flux from a Git repository; a rollout and a rollback as Flux sees them.

Real: source-controller and kustomize-controller, the API server, the operator's process with the rights that the chart
gives it. Played: helm-controller by helm itself, kubelets, agents and Prometheus.
"""

import asyncio
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import pytest_asyncio
import yaml

from testing.gitops.flux_cd import Flux, KustomizationSighting, flux
from testing.gitops.git_repository import GitRepository
from testing.gitops.git_rig import PATIENCE, SYSTEM, TEAM, GitRig, holds, manifest, operator, platform
from testing.gitops.git_server import served
from testing.operators.crash_rig import NAME, revision
from testing.operators.served_traffic import Provider

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "flux" / "agents.yaml"
READY_SECONDS = 60.0
FAILED_SECONDS = 6.0
"""Flux asks for the health of what it has applied every five seconds."""
AGAIN_SECONDS = 2
"""Between two passes over the cluster, where differences are looked for."""
OURS = f"ModelDeployment/{TEAM}/{NAME}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    return platform(tmp_path_factory.mktemp("git") / "platform")


@pytest.fixture(scope="module")
def objects(repository: GitRepository) -> Iterator[dict[str, dict]]:
    """Those of the example, from our repository; and `team`, which is as `agents` with another path."""
    items = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    made = {f"{item['kind']}/{item['metadata']['name']}": item for item in items}
    team = yaml.safe_load(yaml.safe_dump(made["Kustomization/agents"]))
    team["metadata"]["name"], team["spec"]["path"], team["spec"]["targetNamespace"] = TEAM, "./team", TEAM
    with served(repository.folder) as url:
        made["GitRepository/learnloop"]["spec"]["url"] = url
        yield {**made, "Kustomization/team": team}


@pytest.fixture(scope="module")
def running(
    bare_api_server: Path, tmp_path_factory: pytest.TempPathFactory, objects: dict[str, dict]
) -> Iterator[Flux]:
    """Flux with the kinds, and the chart as the HelmRelease installs it, from the files that Flux has fetched."""
    folder, release = tmp_path_factory.mktemp("flux"), objects.pop("HelmRelease/learnloop")["spec"]
    with flux(bare_api_server, folder) as made:
        for namespace in (SYSTEM, TEAM):
            made.kubectl("create", "namespace", namespace)
        made.apply(objects["GitRepository/learnloop"], objects["Kustomization/learnloop-kinds"])
        made.until("learnloop-kinds", "ready", lambda it: it.ready == "True", 120.0)
        query = ("get", "gitrepository", "learnloop", "-o", "jsonpath={.status.artifact.url}")
        address = made.kubectl("-n", "flux-system", *query)
        with urlopen(address) as answer, tarfile.open(fileobj=answer, mode="r|gz") as fetched:
            fetched.extractall(folder / "fetched", filter="data")
        (folder / "values.yaml").write_text(yaml.safe_dump(release["values"]))
        helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
        chart = str(folder / "fetched" / release["chart"]["spec"]["chart"])
        command = [helm.stdout.strip(), "template", release["releaseName"], chart, "-n", release["targetNamespace"]]
        command += ["--kube-version", "1.35.4", "--no-hooks", "-f", str(folder / "values.yaml")]
        rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        made.apply(*(item for item in yaml.safe_load_all(rendered) if item))
        yield made


@pytest_asyncio.fixture
async def rig(running: Flux, bare_api_server: Path, tmp_path: Path) -> AsyncIterator[GitRig]:
    """The operator and what lives around the team's model, which Flux has not applied yet."""
    provider = Provider()
    await provider.start()
    made = GitRig(bare_api_server, provider, tmp_path, "service", TEAM)
    try:
        await made.create()
        async with operator(running.kubectl, bare_api_server, provider.url, tmp_path):
            yield made
    finally:
        await made.end()
        await provider.stop()


async def until(running: Flux, what: str, condition, seconds: float, name: str = TEAM) -> KustomizationSighting:
    return await asyncio.to_thread(running.until, name, what, condition, seconds)


async def test_flux_applies_the_example_corrects_nothing_in_a_rollout_and_fails_with_a_rollback(
    running: Flux, repository: GitRepository, objects: dict[str, dict], rig: GitRig
) -> None:
    began = time.monotonic()
    running.apply(*objects.values())
    ready = await until(running, "ready", lambda it: it.ready == "True", 300.0)
    print(f"Ready {ready.at - began:.1f} s after it was created")
    assert ready.at - began <= READY_SECONDS * PATIENCE
    assert (await rig.object())["status"]["phase"] == "Healthy", "not ready before the operator says so"
    await until(running, "applied", lambda _: bool(running.changes("agents")), 60.0, "agents")
    assert "True" not in {sighting.ready for sighting in running.sightings["agents"]}, "no operator runs here"

    # A rollout, while Flux compares Git and cluster every two seconds.
    looking = yaml.safe_load(yaml.safe_dump(objects["Kustomization/team"]))
    looking["spec"] |= {"wait": False, "interval": f"{AGAIN_SECONDS}s"}
    del looking["spec"]["healthCheckExprs"]
    running.apply(looking)
    rig.traffic.quality[revision(1)] = 1.0
    sha = repository.commit("Serve model 1", {"team/model.yaml": manifest(1)})
    running.look(TEAM, "learnloop")
    await rig.serves(1)
    await asyncio.sleep(3 * AGAIN_SECONDS)
    passes = [changes[OURS] for at, changes in running.changes(TEAM) if sha in at]
    print(f"{len(passes)} passes in the rollout: {passes.count('configured')} configured")
    assert len(passes) >= 4
    assert (passes[0], set(passes[1:])) == ("configured", {"unchanged"}), "no drift to be corrected"

    # A model that is rolled back, while Flux waits for its health.
    running.apply(objects["Kustomization/team"])
    rig.traffic.quality[revision(2)] = 0.0
    sha = repository.commit("Serve model 2", {"team/model.yaml": manifest(2)})
    begun = time.monotonic()
    running.look(TEAM, "learnloop")
    await rig.until("a rollback", lambda status: holds(status, "RolledBack"))
    rolled_back = time.monotonic()
    failed = await until(
        running, "failed", lambda it: it.at > begun and it.ready == "False" and NAME in it.message, 120.0
    )
    seconds = max(0.0, failed.at - rolled_back)
    print(f"{failed.reason} {seconds:.2f} s after the rollback was seen: {failed.message}")
    assert failed.reason == "HealthCheckFailed"
    assert seconds <= FAILED_SECONDS * PATIENCE
    passes = [changes[OURS] for at, changes in running.changes(TEAM) if sha in at]
    assert passes.count("configured") == 1
