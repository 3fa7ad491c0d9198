"""The Cluster that the chart renders for CloudNativePG, before a real API server that has CloudNativePG's definition.

cloudnative_pg.json.xz holds that definition (config/crd/bases/postgresql.cnpg.io_clusters.yaml, Apache-2.0) as the
oldest release that the chart asks for has it, and as the newest known has it, without the descriptions.
"""

import json
import lzma
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testing.manifests.rendered_chart import SYSTEM, VALUES, rendered

DEFINITIONS = json.loads(lzma.decompress((Path(__file__).parent / "cloudnative_pg.json.xz").read_bytes()))
OLDEST, NEWEST = DEFINITIONS
AVAILABLE = VALUES["highly-available"]
SPECIFIC = {
    "image": "registry.example.com/postgresql:17",
    "synchronous": False,
    "spec": {
        "instances": 5,
        "backup": {"barmanObjectStore": {"destinationPath": "s3://backups/", "wal": {"compression": "gzip"}}},
        "postgresql": {"parameters": {"max_connections": "300"}},
    },
}
EVERYTHING = AVAILABLE | {
    "postgresql": {
        "cloudNativePG": {"enabled": True} | SPECIFIC,
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "databases", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "high",
        "persistence": {"storageClassName": "fast"},
    },
    "spread": {"nodes": "prefer"},
}
SECONDS = 120.0


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def server(kube, request: pytest.FixtureRequest) -> Iterator:
    """An API server that serves CloudNativePG's Clusters by the definition of one release."""
    definition = DEFINITIONS[request.param]
    kube.apply(definition, manager="cloudnative-pg", force=True)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    deadline = time.monotonic() + SECONDS
    while not serves(kube):
        assert time.monotonic() < deadline, "the definition is not served"
        time.sleep(0.1)
    yield kube
    kube.delete(definition)
    while serves(kube):
        assert time.monotonic() < deadline, "the definition is still served"
        time.sleep(0.1)


def serves(kube) -> bool:
    try:
        kube.call("GET", "/apis/postgresql.cnpg.io/v1/clusters", {"limit": "1"})
    except kube.Refused:
        return False
    return True


def cluster(helm: Path, values: dict) -> dict:
    clusters = [item for item in yaml.safe_load_all(rendered(helm, values)) if item and item["kind"] == "Cluster"]
    assert len(clusters) == 1
    return dict(clusters[0])


@pytest.mark.parametrize("values", [AVAILABLE, EVERYTHING], ids=["defaults", "everything"])
def test_cloudnativepg_takes_the_cluster_and_leaves_its_spec_as_it_is(server, helm, values):
    manifest = cluster(helm, values)
    stored = server.apply(manifest, manager="strict", force=True, dry=True)
    for name, value in manifest["spec"].items():
        assert not list(missing(value, stored["spec"][name], name))


def missing(manifest, stored, path: str) -> Iterator[str]:
    """Fields that are not stored as they were requested; defaults may come to it."""
    if isinstance(manifest, dict) and isinstance(stored, dict):
        for name, value in manifest.items():
            yield from missing(value, stored.get(name), f"{path}.{name}")
    elif manifest != stored:
        yield f"{path}: {manifest!r} became {stored!r}"


def test_a_field_that_cloudnativepg_does_not_have_is_refused(server, helm: Path) -> None:
    manifest = cluster(helm, AVAILABLE)
    manifest["spec"]["instanses"] = 3
    assert "instanses" in server.refusal(lambda: server.apply(manifest, manager="strict", force=True, dry=True))
