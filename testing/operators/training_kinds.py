"""The kinds that may run or queue training, as their own projects define them, on an API server of the tests."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.addons.standard import TRAINING_OPERATOR_MODULE
from go_programs import go_build
from learnloop_operator.kube.fenced_client import KubeClient

APPLY = "application/apply-patch+yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ATTEMPTS, PAUSE = 600, 0.1
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Source = tuple[go_build.Module, str, str]
SOURCES: tuple[Source, ...] = (
    (
        go_build.TRAINING_OPERATOR,
        TRAINING_OPERATOR_MODULE,
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    (
        go_build.TRAINER,
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
    ),
    (
        go_build.TRAINER,
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
    ),
    (
        go_build.TRAINER,
        "sigs.k8s.io/jobset",
        "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    ),
    (
        go_build.KUEUE,
        "sigs.k8s.io/kueue",
        "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml",
    ),
    (
        go_build.DEFINITIONS,
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases/ray.io_rayjobs.yaml",
    ),
)


def files(sources: Sequence[Source] = SOURCES) -> Iterator[Path]:
    """The folder of the definitions."""
    for module, path, file in sources:
        yield go_build.module_folder(module, path) / file


async def install(user: KubeClient, sources: Sequence[Source] = SOURCES) -> None:
    """The API server knows these. AssertionError when it does not in a minute."""
    names = []
    for file in files(sources):
        definition = yaml.load(file.read_text(encoding="utf-8"), LOADER)
        path, query = f"{DEFINITIONS}/{definition['metadata']['name']}", {"fieldManager": "test", "force": "true"}
        await user.http.request("PATCH", path, body=definition, query=query, content_type=APPLY)
        names.append(path)
    for path in names:
        await _established(user, path)


async def _established(user: KubeClient, path: str) -> None:
    for _ in range(ATTEMPTS):
        definition: dict[str, Any] = await user.http.request("GET", path)
        conditions = (definition.get("status") or {}).get("conditions") or []
        if any(item["type"] == "Established" and item["status"] == "True" for item in conditions):
            return
        await asyncio.sleep(PAUSE)
    raise AssertionError(f"{path} is still not served")
