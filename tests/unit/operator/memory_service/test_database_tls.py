"""TLS between a MemoryService and its own PostgreSQL, as the operator's manifests have it."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from learnloop_operator.memory_services.decide_service import decide

from .test_memory_service import situation


def made(spec: dict | None = None, *, tls: bool = True) -> dict[tuple[str, str], dict]:
    plan = decide(replace(situation(spec), tls=tls))
    return {(item["kind"], item["metadata"]["name"]): item for item in plan.apply}


def pod(items: dict[tuple[str, str], dict]) -> dict:
    spec = items["StatefulSet", "mem-postgres"]["spec"]["template"]["spec"]
    return spec


def dsn(items: dict[tuple[str, str], dict]):
    (container,) = items["Deployment", "mem-memory"]["spec"]["template"]["spec"]["containers"]
    return next(item for item in container["env"] if item["name"] == "LEARNLOOP_DSN")


def test_the_memory_service_verifies_its_database_by_name_and_authority() -> None:
    where = "postgresql://learnloop@mem-postgres.ns.svc:5432/learnloop"
    trusted = "/run/tls/ca.crt"
    assert dsn(made())["value"] == f"{where}?sslmode=verify-full&sslrootcert={trusted}"
    mounts = made()["Deployment", "mem-memory"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert trusted.rpartition("/")[0] in {item["mountPath"] for item in mounts}


def test_postgresql_takes_no_client_without_tls_and_only_the_servers_hold_the_key() -> None:
    items = made()
    (server,) = pod(items)["containers"]
    ours = {"ssl=on", "ssl_ciphers=ECDHE+AESGCM:ECDHE+CHACHA20", "ssl_key_file=/run/tls/tls.key"}
    assert ours | {"hba_file=/etc/learnloop/pg_hba.conf"} <= set(server["args"])
    rules = items["ConfigMap", "mem-postgres"]["data"]["pg_hba.conf"].splitlines()
    assert [rule for rule in rules if not rule.startswith("#")] == [
        "local all all trust",
        "hostssl all all all scram-sha-256",
    ]
    for one in (pod(items), items["Deployment", "mem-memory"]["spec"]["template"]["spec"]):
        (volume,) = (item for item in one["volumes"] if item["name"] == "learnloop-tls")
        assert volume["secret"]["secretName"] == "learnloop-tls"
        assert "learnloop-token" not in {item["name"] for item in one["volumes"]}, "it calls no data plane"
        (container,) = one["containers"]
        assert "learnloop-tls" in {item["name"] for item in container["volumeMounts"]}


def test_without_tls_nothing_of_it_is_made() -> None:
    items = made(tls=False)
    assert ("ConfigMap", "mem-postgres") not in items
    assert "?" not in dsn(items)["value"]
    (server,) = pod(items)["containers"]
    assert "args" not in server
    assert server["livenessProbe"]["exec"]["command"][0] == "pg_isready"
    assert "initContainers" not in pod(items)


def test_an_address_of_ones_own_is_taken_as_it_stands() -> None:
    items = made({"dsnSecretRef": {"name": "db", "key": "dsn"}})
    assert dsn(items)["valueFrom"] == {"secretKeyRef": {"name": "db", "key": "dsn"}}
    assert ("ConfigMap", "mem-postgres") not in items


def test_the_server_is_restarted_when_its_certificate_is_newer_than_its_start(tmp_path: Path) -> None:
    (server,) = pod(made())["containers"]
    certificate, started = tmp_path / "tls.crt", tmp_path / "postmaster.pid"
    *_, probe = server["livenessProbe"]["exec"]["command"]
    assert probe.endswith("&& pg_isready --host=127.0.0.1 --username=learnloop --dbname=learnloop")
    script = probe.partition(" && ")[0].replace("/run/tls", str(tmp_path))

    def current() -> bool:
        return subprocess.run(["sh", "-c", script], env={"PGDATA": str(tmp_path)}, check=False).returncode == 0

    for file, at in ((certificate, 100), (started, 200)):
        file.touch()
        os.utime(file, (at, at))
    assert current()
    os.utime(certificate, (300, 300))
    assert not current()
    os.utime(started, (400, 400))
    assert current()
