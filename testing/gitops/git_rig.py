"""A team's ModelDeployment that comes from Git, the operator as the chart installs it, and what lives around both."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from learnloop_api import names
from testing.gitops.git_repository import GitRepository
from testing.operators.crash_rig import NAME, full_spec, model
from testing.operators.operator_processes import QUICK, LiveRig

ROOT = Path(__file__).resolve().parents[2]
SYSTEM, OPERATOR, TEAM = "learnloop-system", "learnloop-operator", "team"
PATIENCE = float(os.environ.get("PATIENCE", "1"))
"""How many times as long a busy machine may take; the seconds are printed in any case."""


class GitRig(LiveRig):
    """A rig whose ModelDeployment comes from Git."""

    async def create(self) -> None:
        """Only who lives around it."""
        self._run(self._live())


def manifest(number: int) -> str:
    """The user's file, with model `number`."""
    spec = {**full_spec(), **QUICK, "model": model(number)}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": {"name": NAME}, "spec": spec}
    return yaml.safe_dump(body, sort_keys=False)


def platform(folder: Path) -> GitRepository:
    """The chart, the kinds, the quickstart, and a team's ModelDeployment."""
    made = GitRepository(folder)
    for path in ("charts/learnloop", "crds", "examples/quickstart"):
        made.copy(ROOT / path, path)
    made.commit("Begin", {"team/model.yaml": manifest(0)})
    return made


@asynccontextmanager
async def operator(kubectl: Callable[..., str], kubeconfig: Path, url: str, folder: Path) -> AsyncIterator[None]:
    """As the chart's ServiceAccount: with its rights, and under the chart's admission policies.

    Args:
        kubectl: runs it with these arguments and returns what it said.
        url: of Prometheus.
    """
    token = kubectl("-n", SYSTEM, "create", "token", OPERATOR, "--duration=3h").strip()
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    own = folder / "operator.kubeconfig"
    own.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = os.environ | {
        "KUBECONFIG": str(own),
        "POD_NAME": "operator",
        "LEARNLOOP_WATCH_NAMESPACE": TEAM,
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


def holds(status: dict[str, Any], condition: str) -> bool:
    """The condition is True."""
    conditions = status.get("conditions", ())
    return any(item["type"] == condition and item["status"] == "True" for item in conditions)
