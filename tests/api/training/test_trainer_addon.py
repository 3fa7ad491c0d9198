"""What `TRAINER=1 python3 hack/cluster up` applies, rendered from the projects' own manifests."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.addons import trainer

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@pytest.fixture(scope="module")
def objects(api_server: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    kubectl = api_server.parent / "bin" / "kubectl"
    text = trainer.render(kubectl, tmp_path_factory.mktemp("trainer") / "made")
    return [item for item in yaml.load_all(text, LOADER) if item]


def of(objects: list[dict[str, Any]], kind: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in objects
        if item["kind"] == kind
    }


def test_both_controllers_run_our_images_as_nobody_and_are_waited_for(objects: list[dict[str, Any]]) -> None:
    found = of(objects, "Deployment")
    paths = {f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}" for namespace, name in found}
    assert paths == set(trainer.DEPLOYMENTS)
    containers = [item["spec"]["template"]["spec"]["containers"][0] for item in found.values()]
    assert {item["image"] for item in containers} == {trainer.TRAINER_IMAGE, trainer.JOBSET_IMAGE}
    for item in containers:
        assert item["imagePullPolicy"] == "Never"
        assert item["securityContext"]["runAsUser"] == 65532
        assert item["readinessProbe"]["periodSeconds"] == 1


def test_each_webhook_leads_to_a_service_that_is_applied_too(objects: list[dict[str, Any]]) -> None:
    services = of(objects, "Service").keys()
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    hooks = [hook for kind in kinds for item in of(objects, kind).values() for hook in item["webhooks"]]
    assert len(hooks) >= 6
    for hook in hooks:
        service = hook["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) in services, hook["name"]


def test_what_a_pod_mounts_and_who_it_is_are_applied_too(objects: list[dict[str, Any]]) -> None:
    known = {kind: of(objects, kind).keys() for kind in ("Secret", "ConfigMap", "ServiceAccount")}
    namespaces = {name for _, name in of(objects, "Namespace")}
    for (namespace, _), item in of(objects, "Deployment").items():
        pod = item["spec"]["template"]["spec"]
        assert namespace in namespaces
        assert (namespace, pod["serviceAccountName"]) in known["ServiceAccount"]
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert (namespace, volume["secret"]["secretName"]) in known["Secret"]
            else:
                assert (namespace, volume["configMap"]["name"]) in known["ConfigMap"]
