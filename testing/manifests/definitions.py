"""The published definition of every kind that learnloop's manifests use, at the versions of our builds."""

import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.addons.gateway import CRD_FOLDER, CRD_MODULE
from go_programs import go_build
from testing.manifests.json_schemas import Kind, Schema, of_definition, of_kubernetes
from testing.operators import training_kinds

ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = (
    *(
        (
            go_build.DEFINITIONS,
            "github.com/prometheus-operator/prometheus-operator",
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kinds}.yaml",
        )
        for kinds in ("servicemonitors", "podmonitors", "prometheusrules")
    ),
    (go_build.DEFINITIONS, "github.com/cert-manager/cert-manager", "deploy/crds/cert-manager.io_certificates.yaml"),
    (go_build.GATEWAY, CRD_MODULE, f"{CRD_FOLDER}/gateway.networking.k8s.io_gateways.yaml"),
    (go_build.GATEWAY, CRD_MODULE, f"{CRD_FOLDER}/gateway.networking.k8s.io_httproutes.yaml"),
)
CLOUDNATIVE_PG = ROOT / "tests" / "api" / "kinds" / "cloudnative_pg.json.xz"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def schemas() -> Iterator[tuple[Kind, Schema]]:
    """Each kind that Kubernetes, learnloop and the neighbouring projects define.

    Raises Refusal without a Go toolchain, CommandFailed when a module cannot be downloaded.
    """
    for path in sorted(_openapi().glob("apis__*__v*_openapi.json")):
        yield from of_kubernetes(json.loads(path.read_text(encoding="utf-8")))
    yield from of_kubernetes(_core())
    for definition in _custom():
        yield from of_definition(definition, _core())


def _openapi() -> Path:
    return go_build.module_folder(go_build.KUBE, "k8s.io/kubernetes") / "api" / "openapi-spec" / "v3"


@cache
def _core() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_openapi() / "api__v1_openapi.json").read_text(encoding="utf-8"))
    return document


def _custom() -> Iterator[dict[str, Any]]:
    files = [go_build.module_folder(module, path) / file for module, path, file in OF_OTHERS]
    for file in (*files, *training_kinds.files(), *sorted((ROOT / "crds").glob("*.yaml"))):
        yield yaml.load(file.read_text(encoding="utf-8"), LOADER)
    yield from json.loads(lzma.decompress(CLOUDNATIVE_PG.read_bytes())).values()
