"""The example Applications, synced by Argo CD from a Git repository; a rollout and a rollback as Argo CD sees them.

Real: Argo CD, the API server, the operator's process with the rights that the chart gives it. Played: kubelets, agents
and Prometheus, as in `testing/operators`.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testing.gitops.argo_cd import ApplicationSighting, ArgoCD, argo_cd
from testing.gitops.git_repository import GitRepository
from testing.gitops.git_rig import PATIENCE, GitRig, holds, manifest, operator, platform
from testing.operators.crash_rig import revision
from testing.operators.served_traffic import Provider

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "argocd" / "application.yaml"
CONFIG_MAP = ROOT / "charts" / "argocd" / "argocd-cm.yaml"
SYNCED_SECONDS, DEGRADED_SECONDS = 60.0, 5.0
PUSHED_SECONDS = 5.0
"""Between two calls of the repository's webhook."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    return platform(tmp_path_factory.mktemp("git") / "platform")


@pytest.fixture(scope="module")
def argocd(bare_api_server: Path, tmp_path_factory: pytest.TempPathFactory, argocd_program: Path) -> Iterator[ArgoCD]:
    assert argocd_program.exists()
    with argo_cd(bare_api_server, tmp_path_factory.mktemp("argocd"), CONFIG_MAP) as running:
        yield running


def applications(repository: GitRepository) -> dict[str, dict]:
    """Those of the example, from our repository; and `team`, which is as `agents` with another path."""
    manifests = {item["metadata"]["name"]: item for item in yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))}
    for item in manifests.values():
        item["spec"]["source"]["repoURL"] = repository.url
    team = yaml.safe_load(yaml.safe_dump(manifests["agents"]))
    team["metadata"]["name"] = team["spec"]["destination"]["namespace"] = "team"
    team["spec"]["source"]["path"] = "team"
    return {**manifests, "team": team}


@pytest.fixture(scope="module")
def synced(argocd: ArgoCD, repository: GitRepository) -> dict[str, float]:
    """Seconds from the creation of all Applications until each was synced."""
    began = time.monotonic()
    for item in applications(repository).values():
        argocd.apply(item)
    sightings = {}
    for name in applications(repository):
        sighting = argocd.until(name, "synced", lambda it: it.sync == "Synced" and it.operation == "Succeeded", 300.0)
        sightings[name] = sighting.at - began
    print(f"synced after {sightings}")
    return sightings


def test_the_example_applications_are_synced_within_a_minute(synced: dict[str, float]) -> None:
    assert max(synced.values()) <= SYNCED_SECONDS * PATIENCE, synced


async def committed(argocd: ArgoCD, repository: GitRepository, number: int) -> ApplicationSighting:
    """Another model in Git; the status in which Argo CD has applied it."""
    sha = repository.commit(f"Serve model {number}", {"team/model.yaml": manifest(number)})

    def applied(sighting: ApplicationSighting) -> bool:
        return sighting.revision == sha and sighting.sync == "Synced"

    async def pushed() -> None:
        # One that comes while Argo CD still looks at the commit before is forgotten with it; its next look by itself
        # is two minutes later.
        while True:
            argocd.refresh("team")
            await asyncio.sleep(PUSHED_SECONDS)

    pushing = asyncio.create_task(pushed())
    try:
        return await asyncio.to_thread(argocd.until, "team", f"at model {number}", applied, 120.0)
    finally:
        pushing.cancel()


async def test_a_rollout_is_never_out_of_sync_and_a_rollback_is_synced_and_degraded(
    argocd: ArgoCD, repository: GitRepository, synced: dict[str, float], bare_api_server: Path, tmp_path: Path
) -> None:
    assert "team" in synced
    provider = Provider()
    await provider.start()
    rig = GitRig(bare_api_server, provider, tmp_path, "service", "team")
    try:
        await rig.create()
        async with operator(argocd.kubectl, bare_api_server, provider.url, tmp_path):
            await rig.serves(0)
            rig.traffic.quality[revision(1)] = 1.0
            begun = await committed(argocd, repository, 1)
            await rig.serves(1)
            argocd.refresh("team")
            await asyncio.to_thread(_healthy_since, argocd, begun.at)
            story = argocd.after("team", begun.at)
            assert [sighting for sighting in story if sighting.sync != "Synced"] == [], story
            assert "Progressing" in {sighting.health for sighting in story}, "a rollout is visible"

            rig.traffic.quality[revision(2)] = 0.0
            begun = await committed(argocd, repository, 2)
            await rig.until("a rollback", lambda status: holds(status, "RolledBack"))
            rolled_back = time.monotonic()
            degraded = await asyncio.to_thread(_degraded_since, argocd, begun.at)
            seconds = max(0.0, degraded.at - rolled_back)
            print(f"Degraded {seconds:.2f} s after the rollback was seen")
            assert degraded.sync == "Synced"
            assert seconds <= DEGRADED_SECONDS * PATIENCE
            await asyncio.sleep(2.0)
            story = argocd.after("team", begun.at)
            assert [sighting for sighting in story if sighting.sync != "Synced"] == [], story
    finally:
        await rig.end()
        await provider.stop()


def _healthy_since(argocd: ArgoCD, moment: float) -> ApplicationSighting:
    progressing = argocd.until("team", "progressing", lambda it: it.at >= moment and it.health == "Progressing", 60.0)
    return argocd.until("team", "healthy", lambda it: it.at > progressing.at and it.health == "Healthy", 120.0)


def _degraded_since(argocd: ArgoCD, moment: float) -> ApplicationSighting:
    return argocd.until("team", "degraded", lambda it: it.at >= moment and it.health == "Degraded", 60.0)
