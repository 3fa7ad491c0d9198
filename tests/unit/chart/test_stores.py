"""The data plane and its stores: embedded, external, kept, and never with a password in a manifest."""

import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_dataplane.config import Quotas
from learnloop_dataplane.nats import auth_callout
from testing.certificates import authority, folder

from .conftest import ROOT, Object, Rejected, Render

EXTERNAL = {
    "postgresql": {"embedded": False, "external": {"dsnSecret": {"name": "pg", "key": "url"}}},
    "nats": {"embedded": False, "external": {"url": "nats://nats.infra:4222", "credentialsSecret": "nats-user"}},
    "prometheus": {"embedded": False, "external": {"url": "http://prometheus.monitoring:9090"}},
    "dataPlane": {"artifacts": {"s3": {"bucket": "models", "prefix": "rl", "region": "eu-central-1"}}},
}


def secret(name: str, key: str) -> Object:
    return {"secretKeyRef": {"name": name, "key": key}}


def test_only_the_container_that_ends_before_serving_begins_has_the_administrators_login(render: Render) -> None:
    pod = render().one("Deployment", "learnloop-data")["spec"]["template"]["spec"]
    (first,), (serving,) = pod["initContainers"], pod["containers"]
    assert first["args"] == ["prepare"]
    environment = {item["name"]: item.get("value", item.get("valueFrom")) for item in first["env"]}
    assert environment["LEARNLOOP_ADMIN_DSN"].startswith("postgresql://learnloop@learnloop-postgres")
    assert environment["LEARNLOOP_ADMIN_PASSWORD"] == secret("learnloop-credentials", "postgres-password")
    assert environment["LEARNLOOP_DSN"].startswith("postgresql://learnloop_data@")
    mounted = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "credentials")
    assert "postgres-password" not in repr((serving, mounted))
    outside = {"postgresql": {"embedded": False, "external": {"dsnSecret": {"name": "pg", "key": "url"}}}}
    assert "initContainers" not in render(outside).one("Deployment", "learnloop-data")["spec"]["template"]["spec"]


def test_the_data_plane_accepts_that_environment(render: Render, tmp_path: Path) -> None:
    password = tmp_path / "nats-password"
    password.write_text("lettersAndNoDigits")
    given = {name: value for name, value in render().environment("learnloop-data").items() if isinstance(value, str)}
    for name in ("NATS_PASSWORD", "PSEUDONYM_KEY", "DATABASE_PASSWORD"):
        given[f"LEARNLOOP_{name}_FILE"] = str(password)
    key = tmp_path / "nats-issuer-key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    given["LEARNLOOP_NATS_ISSUER_KEY_FILE"] = str(key)
    check = "from learnloop_dataplane.config import Config; print(Config.read().auth)"
    answer = subprocess.run(
        [sys.executable, "-c", check], env=given, capture_output=True, text=True, timeout=240, check=True
    )
    assert answer.stdout.strip() == "jwks"


@pytest.mark.parametrize(("size", "limit"), [("512Mi", 512 * 2**20), ("1Gi", 2**30), ("64Mi", 64 * 2**20)])
def test_the_stream_of_episodes_has_the_room_it_is_given(render: Render, size: str, limit: int) -> None:
    environment = render({"nats": {"trajectories": {"size": size}}}).environment("learnloop-data")
    assert environment["LEARNLOOP_STREAM_MAX_BYTES"] == str(limit)


def test_a_warehouse_comes_from_a_secret_or_not_at_all(render: Render) -> None:
    assert "LEARNLOOP_WAREHOUSE" not in render().environment("learnloop-data")
    values = {"dataPlane": {"warehouse": {"urlSecret": {"name": "clickhouse"}, "retentionDays": 90}}}
    environment = render(values).environment("learnloop-data")
    assert environment["LEARNLOOP_WAREHOUSE"] == secret("clickhouse", "url")
    assert environment["LEARNLOOP_WAREHOUSE_DAYS"] == "90"


def test_weaviate_has_an_address_and_its_key_comes_from_a_secret(render: Render) -> None:
    assert "LEARNLOOP_WEAVIATE_URL" not in render().environment("learnloop-data")
    weaviate = {"url": "https://w.example", "keySecret": {"name": "weaviate"}}
    with pytest.raises(Rejected, match=r"no embedder makes vectors for it; set dataPlane\.embedder"):
        render({"dataPlane": {"weaviate": weaviate}})
    embedder = {"url": "https://models.example/v1", "model": "small"}
    environment = render({"dataPlane": {"weaviate": weaviate, "embedder": embedder}}).environment("learnloop-data")
    assert environment["LEARNLOOP_WEAVIATE_URL"] == "https://w.example"
    assert environment["LEARNLOOP_WEAVIATE_KEY"] == secret("weaviate", "api-key")
    assert "LEARNLOOP_WEAVIATE_GRPC" not in environment


def test_an_embedder_has_an_address_a_model_and_its_key_comes_from_a_secret(render: Render) -> None:
    environment = render().environment("learnloop-data")
    assert environment["LEARNLOOP_LANGUAGE"] == "english"
    assert "LEARNLOOP_EMBEDDER" not in environment
    embedder = {"url": "https://e.example/v1", "model": "small", "dimensions": 512, "keySecret": {"name": "embedder"}}
    environment = render({"dataPlane": {"language": "german", "embedder": embedder}}).environment("learnloop-data")
    assert environment["LEARNLOOP_LANGUAGE"] == "german"
    assert environment["LEARNLOOP_EMBEDDER"] == "https://e.example/v1#small"
    assert environment["LEARNLOOP_EMBEDDER_DIMENSIONS"] == "512"
    assert environment["LEARNLOOP_EMBEDDER_KEY"] == secret("embedder", "api-key")


def test_a_models_files_come_by_a_claim_or_an_image_and_are_mounted_to_be_read(render: Render) -> None:
    volume = {"claimName": "minilm", "path": "int8"}
    release = render({"dataPlane": {"embedder": {"volume": volume}}})
    assert release.environment("learnloop-data")["LEARNLOOP_EMBEDDER"] == "onnx:///models/embedder/int8"
    pod = release.one("Deployment", "learnloop-data")["spec"]["template"]["spec"]
    source = {"name": "embedder", "persistentVolumeClaim": {"claimName": "minilm", "readOnly": True}}
    assert source in pod["volumes"]
    mount = {"name": "embedder", "mountPath": "/models/embedder", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    release = render({"dataPlane": {"embedder": {"volume": {"image": "registry.example/potion:8m"}}}})
    assert release.environment("learnloop-data")["LEARNLOOP_EMBEDDER"] == "onnx:///models/embedder"
    pod = release.one("Deployment", "learnloop-data")["spec"]["template"]["spec"]
    assert {"name": "embedder", "image": {"reference": "registry.example/potion:8m"}} in pod["volumes"]


def test_a_previous_embedder_is_named_with_the_one_that_follows_it(render: Render) -> None:
    embedder = {"url": "https://e.example/v1", "model": "new", "previous": "https://e.example/v1#old"}
    environment = render({"dataPlane": {"embedder": embedder}}).environment("learnloop-data")
    assert environment["LEARNLOOP_EMBEDDER"] == "https://e.example/v1#new"
    assert environment["LEARNLOOP_EMBEDDER_BEFORE"] == "https://e.example/v1#old"
    assert "LEARNLOOP_EMBEDDER_BEFORE" not in render().environment("learnloop-data")


@pytest.mark.parametrize(
    ("embedder", "sentence"),
    [
        ({"previous": "https://e.example/v1#old"}, "no embedder follows it"),
        ({"url": "https://e.example/v1", "model": "m", "previous": "magic"}, "previous"),
        ({"volume": {"claimName": "a", "image": "b"}}, "set one of them"),
        ({"url": "https://e.example/v1", "model": "m", "volume": {"claimName": "a"}}, "set one of them"),
        ({"volume": {"claimName": "a", "path": "../up"}}, "path"),
        ({"volume": {"claimName": "a", "format": "pickle"}}, "format"),
    ],
)
def test_an_embedder_is_one_thing_only(render: Render, embedder: dict, sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        render({"dataPlane": {"embedder": embedder}})


@pytest.mark.parametrize("part", ["distiller", "judge"])
def test_a_language_model_has_an_address_a_name_and_its_key_comes_from_a_secret(render: Render, part: str) -> None:
    name = f"LEARNLOOP_{part.upper()}"
    assert name not in render().environment("learnloop-data")
    model = {"url": "https://e.example/v1", "model": "small", "keySecret": {"name": "llm"}}
    more = {"timeoutSeconds": 20} if part == "distiller" else {}
    environment = render({"dataPlane": {part: model | more}}).environment("learnloop-data")
    assert environment[name] == "https://e.example/v1#small"
    assert environment[f"{name}_KEY"] == secret("llm", "api-key")
    assert environment.get("LEARNLOOP_DISTILLER_SECONDS") == ("20" if more else None)


@pytest.mark.parametrize("part", ["embedder", "distiller", "judge"])
def test_a_model_without_a_name_is_refused(render: Render, part: str) -> None:
    with pytest.raises(Rejected, match="name the model"):
        render({"dataPlane": {part: {"url": "https://e.example/v1"}}})


def test_everything_can_be_brought_along(render: Render) -> None:
    release = render(EXTERNAL)
    assert not release.of("StatefulSet", "PersistentVolumeClaim")
    assert {item["metadata"]["name"] for item in release.of("Deployment")} == {"learnloop-data", "learnloop-operator"}
    environment = release.environment("learnloop-data")
    assert environment["LEARNLOOP_DSN"] == secret("pg", "url")
    assert environment["LEARNLOOP_NATS_URL"] == "nats://nats.infra:4222"
    assert environment["LEARNLOOP_NATS_PASSWORD"] == secret("nats-user", "password")
    assert environment["LEARNLOOP_ARTIFACTS"] == "s3://models/rl"
    assert environment["AWS_REGION"] == "eu-central-1"
    assert release.environment("learnloop-operator")["LEARNLOOP_PROMETHEUS_URL"] == "http://prometheus.monitoring:9090"


def test_no_password_is_rendered_and_two_renderings_are_the_same(helm: str, render: Render) -> None:
    credentials = render().one("Secret", "learnloop-credentials")
    assert "data" not in credentials
    assert "stringData" not in credentials
    command = [helm, "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "learnloop-system"]
    # GitOps renders without a cluster, so its certificates are cert-manager's.
    command += ["--set", "tls.mode=cert-manager", "--set", "tls.certManager.issuerRef.name=ours"]
    texts = {subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout for _ in range(2)}
    assert len(texts) == 1


def test_whoever_reads_a_password_waits_for_it(render: Render) -> None:
    for kind, name, keys in (
        ("StatefulSet", "learnloop-postgres", ["postgres-password"]),
        ("StatefulSet", "learnloop-nats", ["nats-password", "nats-issuer-key"]),
        ("Deployment", "learnloop-data", ["pseudonym-key", "database-password", "nats-password", "nats-issuer-key"]),
    ):
        volumes = render().one(kind, name)["spec"]["template"]["spec"]["volumes"]
        mounted = next(volume["secret"] for volume in volumes if volume["name"] == "credentials")
        assert [item["key"] for item in mounted["items"]] == keys
        assert "optional" not in mounted


@pytest.mark.parametrize("keep", [True, False])
def test_uninstalling_keeps_data_and_password_together_or_neither(render: Render, keep: bool) -> None:
    persistence = {"persistence": {"keep": keep}}
    release = render({"postgresql": persistence, "nats": persistence, "dataPlane": {"artifacts": persistence}})
    for item in release.of("StatefulSet"):
        assert item["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == ("Retain" if keep else "Delete")
    for kind, name in (("PersistentVolumeClaim", "learnloop-artifacts"), ("Secret", "learnloop-credentials")):
        notes = release.one(kind, name)["metadata"].get("annotations", {})
        assert ("helm.sh/resource-policy" in notes) is keep


def test_keys_stay_with_a_database_of_ones_own(render: Render) -> None:
    release = render(EXTERNAL)
    assert "helm.sh/resource-policy" in release.one("Secret", "learnloop-credentials")["metadata"]["annotations"]
    pod = release.one("Deployment", "learnloop-data")["spec"]["template"]["spec"]
    mounted = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "credentials")
    assert [item["key"] for item in mounted["items"]] == ["pseudonym-key"]


def test_without_persistence_no_volume_is_claimed(render: Render) -> None:
    off = {"persistence": {"enabled": False}}
    release = render({"postgresql": off, "nats": off, "prometheus": off, "dataPlane": {"artifacts": off}})
    assert not release.of("PersistentVolumeClaim")
    assert not any("volumeClaimTemplates" in item["spec"] for item in release.of("StatefulSet"))


def test_a_real_nats_server_accepts_its_configuration(render: Render, tmp_path: Path) -> None:
    file = tmp_path / "etc" / "nats" / "nats.conf"
    issuer = tmp_path / "run" / "issuer" / "issuer.conf"
    for path in (file, issuer):
        path.parent.mkdir(parents=True)
    key, passwords = tmp_path / "key", tmp_path / "passwords"
    key.write_text(base64.b64encode(bytes(32)).decode())
    passwords.write_text("newLetters\noldLetters\n")
    assert auth_callout.main([str(key), str(issuer), f"--passwords={passwords}"]) == 0
    assert issuer.stat().st_mode & 0o777 == 0o600
    config = render().one("ConfigMap", "learnloop-nats")["data"]["nats.conf"]
    certificates = folder(tmp_path / "tls", authority())
    file.write_text(config.replace("/data", str(tmp_path)).replace("/run/tls", str(certificates.path)))
    program = shutil.which("nats-server")
    assert program, "nats-server is not on PATH; install the dev extra"
    environment = {"HOSTNAME": "learnloop-nats-0"}
    done = subprocess.run([program, "-t", "--config", str(file)], env=environment, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()


def test_prometheus_scrapes_labelled_pods_and_trusts_none_of_them(render: Render) -> None:
    config = yaml.safe_load(render().one("ConfigMap", "learnloop-prometheus")["data"]["prometheus.yml"])
    assert config["global"]["scrape_interval"] == "2s"
    (job,) = config["scrape_configs"]
    assert job["honor_labels"] is False
    assert job["kubernetes_sd_configs"][0]["selectors"] == [
        {"role": "pod", "label": f"{names.LABEL_PART_OF}=learnloop"}
    ]
    assert {rule.get("target_label") for rule in job["relabel_configs"]} >= {"namespace", "pod", "__address__"}
    bounded = render({"watchNamespaces": ["team-a"]}).one("ConfigMap", "learnloop-prometheus")
    (job,) = yaml.safe_load(bounded["data"]["prometheus.yml"])["scrape_configs"]
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == ["learnloop-system", "team-a"]


def prometheus(release) -> tuple[dict[str, str], dict]:
    """Its arguments and the volume of its samples."""
    pod = release.one("Deployment", "learnloop-prometheus")["spec"]["template"]["spec"]
    words = (word.removeprefix("--").partition("=") for word in pod["containers"][0]["command"][1:])
    return {name: value for name, _, value in words}, next(one for one in pod["volumes"] if one["name"] == "data")


def test_a_week_of_rollouts_can_be_replayed_and_fits_the_volume(render: Render) -> None:
    release = render()
    options, volume = prometheus(release)
    days = re.fullmatch(r"(\d+)d", options["storage.tsdb.retention.time"])
    assert int(days[1]) >= 8
    claim = release.one("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    assert claim["spec"]["resources"]["requests"]["storage"] == "8Gi"
    assert options["storage.tsdb.retention.size"] == "6144MB"


@pytest.mark.parametrize(("size", "room"), [("500Mi", "375MB"), ("1Gi", "768MB"), ("2Ti", "1572864MB")])
def test_samples_leave_a_quarter_of_their_volume_free_or_of_their_pods_disk(render, size, room):
    options, volume = prometheus(render({"prometheus": {"persistence": {"enabled": False, "size": size}}}))
    assert options["storage.tsdb.retention.size"] == room
    assert volume["emptyDir"] == {"sizeLimit": size}


def test_a_change_of_configuration_restarts_what_reads_it(render: Render) -> None:
    def checksum(values: dict) -> str:
        template = render(values).one("Deployment", "learnloop-prometheus")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) != checksum({"prometheus": {"scrapeInterval": "1s"}})


def test_monitors_are_made_where_they_are_asked_for(render: Render) -> None:
    assert not render().of("ServiceMonitor", "PodMonitor")
    release = render({"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
    assert len(release.of("ServiceMonitor")) == 2
    (policy_servers,) = release.of("PodMonitor")
    assert policy_servers["spec"]["selector"]["matchLabels"] == {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: "policy-server",
    }
    assert policy_servers["metadata"]["labels"]["release"] == "prometheus"


def test_queries_of_model_deployments_go_to_the_proxy_that_the_platform_team_names(render: Render) -> None:
    environment = render().environment("learnloop-operator")
    assert (environment["LEARNLOOP_QUERY_URL"], environment["LEARNLOOP_QUERY_POD_LABEL"]) == ("", "pod")
    values = {"prometheus": {"queries": {"url": "http://proxy:8080", "podLabel": ""}}}
    environment = render(values).environment("learnloop-operator")
    assert (environment["LEARNLOOP_QUERY_URL"], environment["LEARNLOOP_QUERY_POD_LABEL"]) == ("http://proxy:8080", "")


def test_quotas_reach_the_data_plane_as_it_reads_them(render: Render) -> None:
    quotas = {"artifactBytes": 10737418240, "namespaces": {"big": {"memories": 5}}}
    env = render({"dataPlane": {"quotas": quotas, "requestsPerNamespace": 7}}).environment("learnloop-data")
    read = Quotas.model_validate_json(env["LEARNLOOP_QUOTAS"])
    assert read.of("any").artifact_bytes == 10 * 2**30
    assert (read.of("big").memories, read.of("big").artifact_bytes) == (5, 10 * 2**30)
    assert env["LEARNLOOP_REQUESTS_PER_NAMESPACE"] == "7"
    assert Quotas.model_validate_json(render().environment("learnloop-data")["LEARNLOOP_QUOTAS"]) == Quotas()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {"name": "learnloop-credentials", "key": "encryption-keys"}),
        ({"keysSecret": {"name": "own", "key": "keys"}}, {"name": "own", "key": "keys"}),
    ],
)
def test_encryption_takes_its_keys_from_a_secret_and_is_off_by_default(render, named, expected):
    def keys(values: dict[str, object]) -> list[object]:
        pod = render(values).one("Deployment", "learnloop-data")["spec"]["template"]["spec"]
        env = pod["containers"][0]["env"]
        return [item["valueFrom"]["secretKeyRef"] for item in env if item["name"] == "LEARNLOOP_ENCRYPTION_KEYS"]

    assert keys({}) == []
    assert keys({"dataPlane": {"encryption": {"enabled": True, **named}}}) == [expected]
