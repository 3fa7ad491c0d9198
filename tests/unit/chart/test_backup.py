"""The CronJob that dumps the embedded PostgreSQL."""

from typing import Any

import pytest

from testing.network_policies import Network, Party

from .conftest import Rejected, Render

ON: dict[str, Any] = {"backup": {"enabled": True, "keep": 3}}


def test_there_is_none_unless_it_is_wanted(render: Render) -> None:
    assert not render().of("CronJob")


def test_its_pod_is_restricted_and_has_no_token(render: Render) -> None:
    job = render(ON).one("CronJob", "learnloop-backup")["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    spec = job["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_it_asks_by_tls_and_its_volume_stays(render: Render) -> None:
    release = render(ON)
    template = release.one("CronJob", "learnloop-backup")["spec"]["jobTemplate"]["spec"]["template"]
    env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
    assert env["DSN"].endswith("?sslmode=verify-full&sslrootcert=/run/tls/ca.crt")
    assert "password" not in env["DSN"]
    claim = release.one("PersistentVolumeClaim", "learnloop-backup")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_it_reaches_postgresql_and_nobody_else(render: Render) -> None:
    release = render(ON)
    network = Network(release.of("NetworkPolicy"))
    labels = release.one("CronJob", "learnloop-backup")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    backup = Party("backup", "learnloop-system", labels)
    reached = {
        (owner, port["containerPort"])
        for owner, pod in release.pods().items()
        for port in [port for one in pod["spec"]["containers"] for port in one.get("ports", [])]
        if network.allows(
            backup,
            Party(owner, "learnloop-system", pod["metadata"]["labels"], {port["name"]: port["containerPort"]}),
            port["containerPort"],
        )
    }
    assert reached == {("StatefulSet/learnloop-postgres", 5432)}
    assert not network.allows(backup, Party("outside"), 443)


def test_a_server_of_ones_own_is_backed_up_by_its_own_means(render: Render) -> None:
    with pytest.raises(Rejected, match="back up your own server"):
        render(ON | {"postgresql": {"embedded": False, "external": {"dsnSecret": {"name": "pg"}}}})
