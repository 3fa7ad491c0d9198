"""More than one of each part: what is rendered, and what is refused with a sentence."""

from base64 import b64decode

import pytest

from testing.certificates import read

from ..conftest import Object, Rejected, Release, Render

SHARED = {"artifacts": {"s3": {"bucket": "models"}}}
HIGHLY_AVAILABLE = {
    "operator": {"replicas": 2},
    "dataPlane": {"replicas": 2, **SHARED},
    "nats": {"replicas": 3},
    "prometheus": {"replicas": 2},
    "postgresql": {"cloudNativePG": {"enabled": True}},
    "spread": {"nodes": "require"},
}
HOST = "learnloop-postgres-rw.learnloop-system.svc"


@pytest.fixture
def release(render: Render) -> Release:
    return render(HIGHLY_AVAILABLE)


def pod(release: Release, kind: str, name: str) -> Object:
    spec: Object = release.one(kind, name)["spec"]["template"]["spec"]
    return spec


def test_every_part_of_several_has_a_budget_of_one_and_spreads_over_zones(release: Release) -> None:
    budgets = {item["metadata"]["name"]: item["spec"] for item in release.of("PodDisruptionBudget")}
    assert set(budgets) == {"learnloop-operator", "learnloop-data", "learnloop-nats", "learnloop-prometheus"}
    for owner, labelled in release.pods().items():
        if owner.startswith("Pod/"):
            continue
        [spread] = labelled["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "topology.kubernetes.io/zone"
        assert spread["labelSelector"]["matchLabels"].items() <= labelled["metadata"]["labels"].items()
        [budget] = [
            spec
            for spec in budgets.values()
            if spec["selector"]["matchLabels"].items() <= labelled["metadata"]["labels"].items()
        ]
        assert budget == {"maxUnavailable": 1, "selector": budget["selector"]}


def test_one_of_each_has_neither(render: Render) -> None:
    release = render()
    assert not release.of("PodDisruptionBudget")
    assert "topologySpreadConstraints" not in release.text


def test_servers_that_keep_something_are_never_together_where_that_is_required(render: Render) -> None:
    for nodes, rule in (("require", "required"), ("prefer", "preferred")):
        release = render(HIGHLY_AVAILABLE | {"spread": {"nodes": nodes}})
        for name in ("learnloop-nats-cluster", "learnloop-prometheus"):
            anti = pod(release, "StatefulSet", name)["affinity"]["podAntiAffinity"]
            assert list(anti) == [f"{rule}DuringSchedulingIgnoredDuringExecution"]
        # A pod of the next version must find a place next to those of this one.
        anti = pod(release, "Deployment", "learnloop-data")["affinity"]["podAntiAffinity"]
        assert list(anti) == ["preferredDuringSchedulingIgnoredDuringExecution"]


def test_the_data_plane_rolls_where_artifacts_are_shared(render: Render) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    many = {"artifacts": {"persistence": {"accessMode": "ReadWriteMany"}}}
    for artifacts in (SHARED, many):
        release = render({"dataPlane": {"replicas": 2, **artifacts}})
        assert release.one("Deployment", "learnloop-data")["spec"]["strategy"] == rolling
    for artifacts in ({}, {"artifacts": {"persistence": {"enabled": False}}}):
        with pytest.raises(Rejected, match=r"dataPlane\.replicas: 2 replicas .* set dataPlane\.artifacts"):
            render({"dataPlane": {"replicas": 2, **artifacts}})


def test_servers_of_nats_find_one_another_by_name_and_only_they_may_join(release: Release) -> None:
    spec = release.one("StatefulSet", "learnloop-nats-cluster")["spec"]
    assert (spec["replicas"], spec["serviceName"], spec["podManagementPolicy"]) == (
        3,
        "learnloop-nats-peers",
        "Parallel",
    )
    peers = release.one("Service", "learnloop-nats-peers")["spec"]
    assert peers["clusterIP"] == "None"
    assert peers["publishNotReadyAddresses"] is True, "none is ready before it has found the others"
    config = release.one("ConfigMap", "learnloop-nats")["data"]["nats.conf"]
    for number in range(3):
        place = f"learnloop-nats-cluster-{number}.learnloop-nats-peers.learnloop-system.svc"
        assert f"tls://{place}:6222" in config
    assert "verify_cert_and_check_known_urls: true" in config
    certificate = b64decode(release.one("Secret", "learnloop-tls-nats")["data"]["tls.crt"]).decode()
    assert "*.learnloop-nats-peers.learnloop-system.svc" in read(certificate).names
    rules = {item["metadata"]["name"]: item["spec"] for item in release.of("NetworkPolicy")}
    assert rules["learnloop-nats-peers"]["ingress"][0]["ports"] == [{"port": "cluster", "protocol": "TCP"}]
    assert rules["learnloop-nats-peers"]["ingress"][0]["from"] == rules["learnloop-nats-egress"]["egress"][1]["to"]


@pytest.mark.parametrize(
    ("nats", "copies"),
    [
        ({"replicas": 1}, "1"),
        ({"replicas": 3}, "3"),
        ({"replicas": 5}, "3"),
        ({"embedded": False, "external": {"url": "nats://a:4222,nats://b:4222", "streamReplicas": 3}}, "3"),
    ],
)
def test_streams_have_as_many_copies_as_there_are_servers_for(render: Render, nats, copies: str) -> None:
    assert render({"nats": nats}).environment("learnloop-data")["LEARNLOOP_STREAM_REPLICAS"] == copies


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"nats": {"replicas": 2}}, "/nats/replicas"),
        ({"nats": {"replicas": 3}, "tls": {"mode": "off"}}, r"nats\.replicas: 3 servers .* choose another tls\.mode"),
        ({"postgresql": {"cloudNativePG": {"enabled": True}}, "tls": {"mutual": True}}, r"tls\.mutual: CloudNativePG"),
        (
            {"postgresql": {"cloudNativePG": {"enabled": True}}, "backup": {"enabled": True}},
            "cloudNativePG.spec.backup",
        ),
        ({"spread": {"nodes": "never"}}, "/spread/nodes"),
    ],
)
def test_what_cannot_be_highly_available_is_refused(render: Render, values, sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        render(values)


def test_two_of_prometheus_have_a_volume_each_and_whoever_asks_stays_with_one(release: Release, render: Render) -> None:
    spec = release.one("StatefulSet", "learnloop-prometheus")["spec"]
    assert spec["replicas"] == 2
    assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["data"]
    assert release.one("Service", "learnloop-prometheus")["spec"]["sessionAffinity"] == "ClientIP"
    assert not [item for item in release.of("PersistentVolumeClaim") if "prometheus" in item["metadata"]["name"]]
    one = render({"prometheus": {"replicas": 1}})
    assert one.one("Deployment", "learnloop-prometheus")["spec"]["strategy"] == {"type": "Recreate"}


def test_cloudnativepg_runs_postgresql_with_our_certificates_and_an_ordinary_login(release: Release) -> None:
    assert not [item for item in release.of("StatefulSet") if "postgres" in item["metadata"]["name"]]
    spec = release.one("Cluster", "learnloop-postgres")["spec"]
    assert spec["instances"] == 3
    assert spec["postgresql"]["synchronous"] == {"method": "any", "number": 1}
    assert spec["certificates"] == {
        "serverTLSSecret": "learnloop-tls-postgres",
        "serverCASecret": "learnloop-tls-postgres",
    }
    assert spec["affinity"]["podAntiAffinityType"] == "required"
    assert "cnpg.io/reload" in release.one("Secret", "learnloop-tls-postgres")["metadata"]["labels"]
    data = pod(release, "Deployment", "learnloop-data")
    environment = {item["name"]: item.get("value", item.get("valueFrom")) for item in data["initContainers"][0]["env"]}
    assert environment["LEARNLOOP_ADMIN_PASSWORD"] == {
        "secretKeyRef": {"name": "learnloop-postgres-superuser", "key": "password"}
    }
    assert environment["LEARNLOOP_ADMIN_DSN"].startswith(f"postgresql://postgres@{HOST}:5432/")
    assert f"@{HOST}:5432/learnloop?sslmode=verify-full" in release.environment("learnloop-data")["LEARNLOOP_DSN"]
    certificate = b64decode(release.one("Secret", "learnloop-tls-postgres")["data"]["tls.crt"]).decode()
    assert HOST in read(certificate).names
    rules = {item["metadata"]["name"]: item["spec"] for item in release.of("NetworkPolicy")}
    chosen = {"matchLabels": {"cnpg.io/cluster": "learnloop-postgres"}}
    assert rules["learnloop-postgres"]["podSelector"] == chosen


def test_the_data_plane_may_call_the_servers_of_cloudnativepg(render: Render) -> None:
    values = {"postgresql": {"cloudNativePG": {"enabled": True, "spec": {"instances": 5, "imageName": "r/p:17"}}}}
    release = render(values)
    assert release.one("Cluster", "learnloop-postgres")["spec"]["instances"] == 5
    assert release.one("Cluster", "learnloop-postgres")["spec"]["imageName"] == "r/p:17"
    egress = release.one("NetworkPolicy", "learnloop-data-egress")["spec"]["egress"]
    to = {"podSelector": {"matchLabels": {"cnpg.io/cluster": "learnloop-postgres"}}}
    assert {"ports": [{"port": 5432, "protocol": "TCP"}], "to": [to]} in egress
