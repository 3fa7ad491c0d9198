"""The example Applications, synced by Argo CD from a Git repository; a rollout and a take-back as Argo CD sees them.

Real: Argo CD, the API server, the operator's process with the rights that the chart gives it. Played: kubelets, agents
and Prometheus, as in `testing/operators`.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from learnloop_api import names
from testing.gitops.argo_cd import ArgoCD, Seen, argo_cd
from testing.gitops.git_repository import GitRepository
from testing.operators.crash_world import NAME, full_spec, model, revision
from testing.operators.operator_processes import QUICK, LiveWorld
from testing.operators.served_traffic import Provider

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "argocd" / "application.yaml"
CONFIG_MAP = ROOT / "charts" / "argocd" / "argocd-cm.yaml"
SYNCED_SECONDS, DEGRADED_SECONDS = 60.0, 5.0
PATIENCE = float(os.environ.get("PATIENCE", "1"))
"""How many times as long a busy machine may take; the seconds are printed in any case."""
PUSHED_SECONDS = 5.0
"""Between two calls of the repository's webhook."""
SYSTEM, OPERATOR = "learnloop-system", "learnloop-operator"


class GitWorld(LiveWorld):
    """A world whose ModelDeployment comes from Git."""

    async def create(self) -> None:
        """Only who lives around it."""
        self._run(self._live())


def manifest(number: int) -> str:
    """The user's file, with model `number`."""
    spec = {**full_spec(**QUICK), "model": model(number)}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": {"name": NAME}, "spec": spec}
    return yaml.safe_dump(body, sort_keys=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """The chart, the quickstart, and a team's ModelDeployment."""
    made = GitRepository(tmp_path_factory.mktemp("git") / "platform")
    made.copy(ROOT / "charts" / "learnloop", "charts/learnloop")
    made.copy(ROOT / "examples" / "quickstart", "examples/quickstart")
    made.commit("Begin", {"team/model.yaml": manifest(0)})
    return made


@pytest.fixture(scope="module")
def argocd(bare_api_server: Path, tmp_path_factory: pytest.TempPathFactory, argocd_program: Path) -> Iterator[ArgoCD]:
    assert argocd_program.exists()
    with argo_cd(bare_api_server, tmp_path_factory.mktemp("argocd"), CONFIG_MAP) as running:
        yield running


def applications(repository: GitRepository) -> dict[str, dict[str, Any]]:
    """Those of the example, from our repository; and `team`, which is as `agents` with another path."""
    found = {item["metadata"]["name"]: item for item in yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))}
    for item in found.values():
        item["spec"]["source"]["repoURL"] = repository.url
    team = yaml.safe_load(yaml.safe_dump(found["agents"]))
    team["metadata"]["name"] = team["spec"]["destination"]["namespace"] = "team"
    team["spec"]["source"]["path"] = "team"
    return {**found, "team": team}


@pytest.fixture(scope="module")
def synced(argocd: ArgoCD, repository: GitRepository) -> dict[str, float]:
    """Seconds from the creation of all Applications until each was synced."""
    began = time.monotonic()
    for item in applications(repository).values():
        argocd.apply(item)
    found = {}
    for name in applications(repository):
        seen = argocd.until(name, "synced", lambda it: it.sync == "Synced" and it.operation == "Succeeded", 300.0)
        found[name] = seen.at - began
    print(f"synced after {found}")
    return found


def test_the_example_applications_are_synced_within_a_minute(synced: dict[str, float]) -> None:
    assert max(synced.values()) <= SYNCED_SECONDS * PATIENCE, synced


@asynccontextmanager
async def operator(argocd: ArgoCD, kubeconfig: Path, url: str, folder: Path) -> AsyncIterator[None]:
    """As the chart's ServiceAccount: with its rights, and under the chart's admission policies."""
    token = argocd.kubectl("-n", SYSTEM, "create", "token", OPERATOR, "--duration=3h").strip()
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    own = folder / "operator.kubeconfig"
    own.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = os.environ | {
        "KUBECONFIG": str(own),
        "POD_NAME": "operator",
        "LEARNLOOP_WATCH_NAMESPACE": "team",
        "LEARNLOOP_SYSTEM_NAMESPACE": SYSTEM,
        "LEARNLOOP_PROMETHEUS_URL": url,
        "LEARNLOOP_DATA_URL": "http://127.0.0.1:9",
        "LEARNLOOP_PORT": "0",
    }
    with (folder / "operator.log").open("ab") as log:
        command = (sys.executable, "-m", "learnloop_operator")
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def committed(argocd: ArgoCD, repository: GitRepository, number: int) -> Seen:
    """Another model in Git; the status in which Argo CD has applied it."""
    sha = repository.commit(f"Serve model {number}", {"team/model.yaml": manifest(number)})

    def applied(seen: Seen) -> bool:
        return seen.revision == sha and seen.sync == "Synced"

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


async def test_a_rollout_is_never_out_of_sync_and_a_take_back_is_synced_and_degraded(
    argocd: ArgoCD, repository: GitRepository, synced: dict[str, float], bare_api_server: Path, tmp_path: Path
) -> None:
    assert "team" in synced
    provider = Provider()
    await provider.start()
    world = GitWorld(bare_api_server, provider, tmp_path, "service", "team")
    try:
        await world.create()
        async with operator(argocd, bare_api_server, provider.url, tmp_path):
            await world.serves(0)
            world.traffic.quality[revision(1)] = 1.0
            begun = await committed(argocd, repository, 1)
            await world.serves(1)
            argocd.refresh("team")
            await asyncio.to_thread(_healthy_since, argocd, begun.at)
            story = argocd.after("team", begun.at)
            assert [seen for seen in story if seen.sync != "Synced"] == [], story
            assert "Progressing" in {seen.health for seen in story}, "a rollout is no secret"

            world.traffic.quality[revision(2)] = 0.0
            begun = await committed(argocd, repository, 2)
            await world.until("a take-back", lambda status: _true(status, "RolledBack"))
            taken_back = time.monotonic()
            degraded = await asyncio.to_thread(_degraded_since, argocd, begun.at)
            seconds = max(0.0, degraded.at - taken_back)
            print(f"Degraded {seconds:.2f} s after the take-back was seen")
            assert degraded.sync == "Synced"
            assert seconds <= DEGRADED_SECONDS * PATIENCE
            await asyncio.sleep(2.0)
            story = argocd.after("team", begun.at)
            assert [seen for seen in story if seen.sync != "Synced"] == [], story
    finally:
        await world.end()
        await provider.stop()


def _healthy_since(argocd: ArgoCD, moment: float) -> Seen:
    progressing = argocd.until("team", "progressing", lambda it: it.at >= moment and it.health == "Progressing", 60.0)
    return argocd.until("team", "healthy", lambda it: it.at > progressing.at and it.health == "Healthy", 120.0)


def _degraded_since(argocd: ArgoCD, moment: float) -> Seen:
    return argocd.until("team", "degraded", lambda it: it.at >= moment and it.health == "Degraded", 60.0)


def _true(status: dict[str, Any], condition: str) -> bool:
    found = status.get("conditions", ())
    return any(item["type"] == condition and item["status"] == "True" for item in found)
