"""The chart, by every set of values that stands for how people install it, before a real API server that is strict.

It refuses fields that a kind does not have, values of another type, and policies whose expressions do not compile.
"""

from pathlib import Path

import pytest
import yaml

from testing.manifests.rendered_chart import SYSTEM, VALUES, rendered

OWN = "learnloop-strict"
"""The folder of the chart. In its own namespace other tests install it, and that takes no other values."""
FOREIGN = {
    "monitoring.coreos.com": "serviceMonitor: the Prometheus operator's",
    "postgresql.cnpg.io": "postgresql.cloudNativePG: CloudNativePG's",
    "cert-manager.io": "tls.mode: cert-manager's",
    "trainer.kubeflow.org": "trainer.runtime: Kubeflow Trainer's",
}
"""Groups of kinds that other projects define, and the values that ask for them: the server knows none of these."""


def group(item: dict) -> str:
    return str(item["apiVersion"]).rpartition("/")[0]


def read(helm: Path, values: dict) -> list[dict]:
    items = [item for item in yaml.load_all(rendered(helm, values), yaml.CSafeLoader) if item]
    for item in items:
        if item["metadata"].get("namespace") == SYSTEM:
            item["metadata"]["namespace"] = OWN
    return items


@pytest.mark.parametrize("name", VALUES)
def test_a_strict_api_server_takes_all_of_the_chart(kube, helm: Path, name: str) -> None:
    items = read(helm, VALUES[name])
    ours = [item for item in items if group(item) not in FOREIGN]
    assert len(ours) > 25
    for namespace in sorted({item["metadata"].get("namespace", OWN) for item in ours}):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    refused = []
    for item in ours:
        try:
            kube.apply(item, manager="strict", force=True, dry=True)
        except kube.Refused as error:
            refused.append(f"{item['kind']} {item['metadata']['name']}: {error.message}")
    assert not refused


def test_a_field_that_no_kind_has_is_refused(kube, helm: Path) -> None:
    deployment = next(item for item in read(helm, {}) if item["kind"] == "Deployment")
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}})
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessPrboe"] = {}
    refusal = kube.refusal(lambda: kube.apply(deployment, manager="strict", force=True, dry=True))
    assert "livenessPrboe" in refusal


def test_values_are_left_out_for_kinds_of_other_projects_alone(helm: Path) -> None:
    """Kinds left out above were requested by a value, and it is not most of the chart."""
    groups = {name: {group(item) for item in read(helm, values)} & set(FOREIGN) for name, values in VALUES.items()}
    assert groups["default"] == set()
    assert set().union(*groups.values()) == set(FOREIGN)
