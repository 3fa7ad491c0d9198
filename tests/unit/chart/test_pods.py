"""Every pod the chart runs: restricted pod security, probes, resources, nothing secret in sight."""

import tomllib

import pytest
import yaml

from learnloop_api import names
from learnloop_operator.training.run_cost import Prices
from release.chart import IMAGES, others
from release.version import agreed
from testing.manifests.made_by_operator import templates
from testing.operators.settings_of import settings_of
from toolkit.errors import Refusal

from .conftest import ROOT, Object, Release, Render

EVERYTHING = {
    "operator": {"replicas": 2},
    "serviceMonitor": {"enabled": True},
    "dataPlane": {"replicas": 2, "artifacts": {"s3": {"bucket": "models", "endpoint": "http://s3:9000"}}},
}
LOCAL = yaml.safe_load((ROOT / "hack" / "cluster" / "values.yaml").read_text())
NAMES = ("default", "everything", "local")


@pytest.fixture(params=NAMES)
def release(request: pytest.FixtureRequest, render: Render) -> Release:
    return render({"default": {}, "everything": EVERYTHING, "local": LOCAL}[request.param])


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def test_meshes_leave_every_pod_alone_that_has_to_end(render: Render) -> None:
    ending = list(templates(render({"backup": {"enabled": True}}).of("Pod", "Job", "CronJob")))
    assert len(ending) == 3, "a backup, a restore and `helm test`"
    for metadata in (template["metadata"] for template in ending):
        assert metadata["annotations"].items() >= names.NO_SIDECAR.items()
        assert metadata["labels"].items() >= names.NO_SIDECAR_LABELS.items()


def test_only_those_who_ask_the_api_server_get_a_token_for_it(release: Release) -> None:
    with_token = {owner for owner, pod in release.pods().items() if pod["spec"]["automountServiceAccountToken"]}
    assert with_token == {
        "Deployment/learnloop-operator",  # everything it does
        "Deployment/learnloop-data",  # the keys that tokens are checked with
        "Deployment/learnloop-prometheus",  # which pods to scrape
    }
    assert all(account["automountServiceAccountToken"] is False for account in release.of("ServiceAccount"))


def test_every_pod_is_selected_by_its_own_service_and_policy_only(release: Release) -> None:
    pods = release.pods()
    for item in release.of("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = item["spec"]
        selector = spec["selector"] if item["kind"] == "Service" else (spec.get("selector") or spec["podSelector"])
        wanted = selector if item["kind"] == "Service" else selector["matchLabels"]
        chosen = [owner for owner, pod in pods.items() if wanted.items() <= pod["metadata"]["labels"].items()]
        if item["metadata"]["name"] == "learnloop-default-deny":
            assert len(chosen) == len(pods)
        else:
            assert len(chosen) == 1, (item["kind"], item["metadata"]["name"], chosen)
            assert chosen[0].endswith(item["metadata"]["name"].removesuffix("-egress").removesuffix("-metrics"))


def test_every_port_that_is_named_exists(release: Release) -> None:
    pods = {owner.split("/")[1]: pod for owner, pod in release.pods().items()}
    for item in release.of("Service", "NetworkPolicy"):
        name = item["metadata"]["name"]
        if item["kind"] == "NetworkPolicy" and "ingress" not in item["spec"]:
            continue  # its targets: test_network.py
        ports = {
            port["name"]
            for container in pods[name.removesuffix("-metrics")]["spec"]["containers"]
            for port in container.get("ports", [])
        }
        if item["kind"] == "Service":
            assert {port["targetPort"] for port in item["spec"]["ports"]} <= ports
        else:
            assert {port["port"] for rule in item["spec"]["ingress"] for port in rule["ports"]} <= ports


def test_volumes_and_mounts_agree(release: Release) -> None:
    for item in release.of("Deployment", "StatefulSet"):
        spec = item["spec"]["template"]["spec"]
        claims = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        mounted = {
            mount["name"]
            for container in containers(item["spec"]["template"])
            for mount in container.get("volumeMounts", ())
        }
        assert mounted == volumes | claims, item["metadata"]["name"]
        assert not volumes & claims, item["metadata"]["name"]


def test_the_operator_understands_the_environment_it_is_given(release: Release) -> None:
    environment = {
        name: value for name, value in release.environment("learnloop-operator").items() if isinstance(value, str)
    }
    settings = settings_of(environment)
    scheme = "https" if settings.tls else "http"
    assert settings.data_url == f"{scheme}://learnloop-data.learnloop-system.svc:8080"
    assert settings.prometheus_url == f"{scheme}://learnloop-prometheus.learnloop-system.svc:9090"
    assert settings.system_namespace == "learnloop-system"
    assert settings.lease_name == "learnloop-operator"
    assert settings.log_level == "INFO"


def test_prices_reach_the_operator_once_they_have_a_currency(render: Render) -> None:
    def settings(**prices) -> object:
        environment = render({"trainer": {"prices": prices}}).environment("learnloop-operator")
        return settings_of({name: value for name, value in environment.items() if isinstance(value, str)}).prices

    assert settings() is settings(cpuHour=0.1) is None
    assert settings(cpuHour=0.04, gpuHour=2.5, currency="EUR") == Prices(0.04, 2.5, "EUR")


def test_every_image_comes_from_the_registry_that_is_named(render: Render) -> None:
    registry, on = "registry.example.com/mirror", {"enabled": True}
    everything = {"backup": on, "dataPlane": {"sandbox": on}, "trainer": {"runtime": {"create": True}}}
    text = render({"global": {"imageRegistry": registry}, **everything}).text
    for image in (*others(), *(f"learnloop/{name}:0.1.0" for name in IMAGES)):
        assert text.count(f"{registry}/{image}") == text.count(image) > 0, image


def test_a_digest_wins_over_a_tag(render: Render) -> None:
    digest = "sha256:" + "a" * 64
    release = render({"trainer": {"image": {"digest": digest, "tag": "ignored"}}})
    assert release.environment("learnloop-operator")["LEARNLOOP_TRAINER_IMAGE"] == f"learnloop/trainer@{digest}"


def test_the_chart_the_packages_and_the_tag_have_one_version() -> None:
    version = agreed()
    with pytest.raises(Refusal, match=r"the versions differ: .* tag v0\.2: 0\.2"):
        agreed("v0.2")
    for folder in (".", "crds", "agent_sdk", "operator"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert project["version"] == version, folder
        ours = [need for need in project["dependencies"] if need.startswith("learnloop-")]
        assert all(need == f"learnloop-api=={version}" for need in ours), folder
