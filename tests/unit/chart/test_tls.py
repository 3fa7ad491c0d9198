"""TLS between the parts: every part's certificate and trust, and that nothing is left in plain text."""

import json
import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from testing.certificates import make_authority, read, shake_hands
from testing.operators.settings_of import settings_of

from .conftest import Rejected, Release, Render

ON = {"tls": {"mode": "self-signed"}, "serviceMonitor": {"enabled": True}}
SECRETS = {part: f"own-{part.lower()}" for part in ("operator", "dataPlane", "nats", "postgresql", "prometheus")}
MODES = {
    "self-signed": ON,
    "cert-manager": {"tls": {"mode": "cert-manager", "certManager": {"issuerRef": {"name": "ours"}}}},
    "secret": {"tls": {"mode": "secret", "secrets": SECRETS}},
}
LOCAL = ".learnloop-system.svc"


@pytest.fixture
def on(render: Render) -> Release:
    return render(ON)


def made(release: Release) -> dict[str, dict[str, str]]:
    """Secret → its files."""
    made_names = {
        item["metadata"]["name"]: item["data"] for item in release.of("Secret") if "tls" in item["metadata"]["name"]
    }
    return {name: {key: b64decode(text).decode() for key, text in data.items()} for name, data in made_names.items()}


def names_of(release: Release) -> dict[str, list[str]]:
    """Secret of a part → the names that it serves under."""
    names = {secret: read(files["tls.crt"]).names for secret, files in made(release).items()}
    return {secret: sorted(hosts) for secret, hosts in names.items() if hosts}


def test_nothing_speaks_plain_text_any_more(on: Release) -> None:
    for owner, pod in on.pods().items():
        text = json.dumps(pod)
        assert "http://" not in text, owner
        assert "nats://" not in text, owner
    dsn = on.environment("learnloop-data")["LEARNLOOP_DSN"]
    assert dsn.endswith("?sslmode=verify-full&sslrootcert=/run/tls/ca.crt")
    config = yaml.safe_load(on.one("ConfigMap", "learnloop-prometheus")["data"]["prometheus.yml"])
    suites = yaml.safe_load(on.one("ConfigMap", "learnloop-prometheus")["data"]["web.yml"])["tls_server_config"]
    assert all("GCM" in suite or "CHACHA20" in suite for suite in suites["cipher_suites"])
    assert on.one("ConfigMap", "learnloop-nats")["data"]["nats.conf"].count(", ".join(suites["cipher_suites"])) == 1
    (job,) = config["scrape_configs"]
    assert job["tls_config"] == {"ca_file": "/run/tls/ca.crt", "server_name": "workloads.learnloop.dev"}
    assert {"source_labels", "target_label", "regex"} <= set(
        next(rule for rule in job["relabel_configs"] if rule.get("target_label") == "__scheme__")
    )


def test_without_tls_nothing_of_it_is_rendered(render: Render) -> None:
    release = render({"tls": {"mode": "off"}})
    text = release.text.replace('bundle = "/run/tls/ca.crt"', "")  # the test looks whether there is one
    for word in ("/run/tls", "https://learnloop", "LEARNLOOP_TLS", "sslmode", "tls {", "HTTPS"):
        assert word not in text, word


@pytest.mark.parametrize("mode", MODES)
def test_each_part_mounts_its_own_certificate_and_no_others(render: Render, mode: str) -> None:
    release = render(MODES[mode])
    mounted: dict[str, set[str]] = {}
    for owner, pod in release.pods().items():
        volumes = [volume["secret"] for volume in pod["spec"].get("volumes", []) if "secret" in volume]
        mounted[owner.split("/")[1]] = {volume["secretName"] for volume in volumes} - {"learnloop-credentials"}
    own = SECRETS if mode == "secret" else None
    expected = {
        "learnloop-data": {own["dataPlane"] if own else "learnloop-tls-data"},
        "learnloop-nats": {own["nats"] if own else "learnloop-tls-nats"},
        "learnloop-postgres": {own["postgresql"] if own else "learnloop-tls-postgres"},
        "learnloop-prometheus": {own["prometheus"] if own else "learnloop-tls-prometheus"},
        "learnloop-operator": {own["operator"] if own else "learnloop-tls-operator"},
        "learnloop-test-ready": {own["dataPlane"] if own else "learnloop-tls-data"},
    }
    assert mounted == expected


def test_keys_are_mounted_by_name_so_that_a_pod_waits_for_them(on: Release) -> None:
    for owner, pod in on.pods().items():
        for volume in pod["spec"].get("volumes", []):
            if volume["name"].startswith("tls") and "secret" in volume:
                assert volume["secret"]["items"], owner


@pytest.mark.parametrize("mode", MODES)
def test_the_operator_reads_no_secret_of_a_certificate(render: Render, mode: str) -> None:
    release = render(MODES[mode])
    rules = release.one("Role", "learnloop-operator-own")["rules"]
    assert [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]] == [["learnloop-credentials"]]
    assert bool(made(release)) is (mode == "self-signed")


def test_every_part_is_believed_by_a_strict_client_of_its_bundle_and_by_no_other(on: Release, tmp_path: Path) -> None:
    secrets = made(on)
    parts = names_of(on)
    assert set(parts) == set(secrets) - {"learnloop-tls-authority"}
    bundles = {files["ca.crt"] for files in secrets.values()}
    assert len(bundles) == 1
    (bundle,) = bundles
    for secret, names in parts.items():
        for name in (name.replace("*", "x") for name in names):
            shake_hands(tmp_path, secrets[secret], bundle, name)
    other = make_authority("another", datetime.now(UTC), timedelta(days=1)).certificate
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, secrets["learnloop-tls-data"], other, "localhost")


def test_pods_of_a_named_namespace_get_a_certificate_of_its_names_and_no_others(render: Render, tmp_path: Path) -> None:
    release = render({"tls": {"mode": "self-signed", "namespaces": ["team-a", "team-b"]}})
    secrets = {
        item["metadata"]["namespace"]: {key: b64decode(text).decode() for key, text in item["data"].items()}
        for item in release.of("Secret")
        if item["metadata"]["name"] == "learnloop-tls"
    }
    assert set(secrets) == {"team-a", "team-b"}
    bundle = made(release)["learnloop-tls-data"]["ca.crt"]
    for name in ("cart.team-a.svc", "cart.team-a.svc.cluster.local", "team-a.workloads.learnloop.dev"):
        shake_hands(tmp_path, secrets["team-a"], bundle, name)
        with pytest.raises(ssl.SSLError):
            shake_hands(tmp_path, secrets["team-b"], bundle, name)
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, secrets["team-a"], bundle, "learnloop-data.learnloop-system.svc")
    mounted = [name for name in made(release) if name in json.dumps([pod for pod in release.pods().values()])]
    assert "learnloop-tls-authority" not in mounted, "only Helm signs"


def test_every_address_that_is_asked_is_a_name_of_the_certificate_there(on: Release) -> None:
    parts = names_of(on)
    data, operator = on.environment("learnloop-data"), on.environment("learnloop-operator")
    for secret, url in (
        ("learnloop-tls-data", operator["LEARNLOOP_DATA_URL"]),
        ("learnloop-tls-prometheus", operator["LEARNLOOP_PROMETHEUS_URL"]),
        ("learnloop-tls-nats", data["LEARNLOOP_NATS_URL"]),
        ("learnloop-tls-postgres", data["LEARNLOOP_DSN"].split("@")[1]),
    ):
        host = url.split("//")[-1].split(":")[0]
        assert host in parts[secret], url
    assert "localhost" in parts["learnloop-tls-data"], "who forwards its port asks by this name"
    assert all("workloads.learnloop.dev" in names for names in parts.values()), "Prometheus asks by this name"


async def test_the_operator_understands_what_it_is_told(render: Render) -> None:
    on = render({"tls": {"namespaces": ["team-a", "team-b"]}})
    environment = {
        name: value for name, value in on.environment("learnloop-operator").items() if isinstance(value, str)
    }
    settings = settings_of(environment)
    assert settings.tls
    assert settings.tls_namespaces == ("team-a", "team-b")


def test_cert_manager_is_asked_for_the_same_names(render: Render, on: Release) -> None:
    release = render(MODES["cert-manager"])
    certificates = {item["spec"]["secretName"]: item["spec"] for item in release.of("Certificate")}
    parts = names_of(on)
    assert set(certificates) == set(parts)
    assert all(sorted(certificates[secret]["dnsNames"]) == names for secret, names in parts.items())
    assert all(spec["issuerRef"]["name"] == "ours" for spec in certificates.values())


def test_cert_manager_is_asked_for_the_certificates_of_pods(render: Render) -> None:
    issuer = {"name": "ours", "kind": "ClusterIssuer"}
    values = {"mode": "cert-manager", "certManager": {"issuerRef": issuer}, "namespaces": ["team-a"]}
    (made,) = (item for item in render({"tls": values}).of("Certificate") if item["metadata"]["namespace"] == "team-a")
    assert made["spec"]["secretName"] == "learnloop-tls"
    assert "*.team-a.svc" in made["spec"]["dnsNames"]


def test_probes_ask_by_tls(on: Release) -> None:
    probes = 0
    for pod in on.pods().values():
        for container in pod["spec"]["containers"]:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                get = container.get(probe, {}).get("httpGet")
                if get and get["port"] != "monitor":  # NATS' own health, which only the kubelet reaches
                    assert get["scheme"] == "HTTPS", container["name"]
                    probes += 1
    assert probes == 9


def test_monitors_of_the_prometheus_operator_know_the_authority(on: Release) -> None:
    for monitor in on.of("ServiceMonitor", "PodMonitor"):
        (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        if monitor["kind"] == "ServiceMonitor":
            assert endpoint["scheme"] == "https"
        else:  # a namespace has a certificate or has none: the pods' annotation tells
            assert endpoint["relabelings"][0]["targetLabel"] == "__scheme__"
        assert endpoint["tlsConfig"]["serverName"] == "workloads.learnloop.dev"


def test_clients_of_postgresql_show_a_certificate_where_that_is_asked(render: Render) -> None:
    release = render({"tls": {"mode": "self-signed", "mutual": True}})
    assert "clientcert=verify-ca" in release.one("ConfigMap", "learnloop-postgres")["data"]["pg_hba.conf"]
    assert release.environment("learnloop-data")["LEARNLOOP_DSN"].endswith(
        "&sslcert=/run/tls/tls.crt&sslkey=/run/tls/tls.key"
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mode": "secret"}, "is empty, but tls.mode is secret; name a Secret"),
        ({"mode": "cert-manager"}, "tls.certManager.issuerRef.name: is empty"),
        (
            {"mode": "cert-manager", "certManager": {"issuerRef": {"name": "ours"}}, "namespaces": ["team-a"]},
            "set tls.certManager.issuerRef.kind=ClusterIssuer",
        ),
        ({"mode": "on"}, "/tls/mode"),
    ],
)
def test_a_mode_without_what_it_needs_is_refused(render: Render, values: dict, sentence: str) -> None:
    with pytest.raises(Rejected) as refused:
        render({"tls": values})
    assert sentence in str(refused.value)
