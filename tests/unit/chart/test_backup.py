"""The CronJob that dumps the embedded PostgreSQL."""

import pytest

from testing.network_policies import Network, Party

from .conftest import Rejected, Release, Render

ON = {"backup": {"enabled": True, "keep": 3}}


def test_there_is_none_unless_it_is_wanted(render: Render) -> None:
    assert not render().of("CronJob")


def pod(release: Release, name: str = "learnloop-backup") -> dict:
    template = release.one("CronJob", name)["spec"]["jobTemplate"]["spec"]["template"]
    return template


def containers(template: dict) -> dict:
    spec = template["spec"]
    return {one["name"]: one for one in [*spec["initContainers"], *spec["containers"]]}


def test_the_steps_come_in_order_and_the_database_is_read_by_its_own_version(render: Render) -> None:
    release = render(ON | {"postgresql": {"image": {"tag": "pg17"}}})
    made = containers(pod(release))
    assert [*made] == ["copy", "dump", "finish"]
    assert made["finish"]["args"] == ["finish", "/backup", "--keep", "3"]
    read = containers(pod(release, "learnloop-restore"))
    assert [*read] == ["check", "read", "restore"]
    assert read["check"]["args"] == ["check", "/backup", "--backup=$(BACKUP)"]
    assert read["restore"]["args"] == ["restore", "/backup"], "the one that was checked"
    for name, one in {**made, **read}.items():
        assert one["image"].endswith(":pg17") is (name in ("dump", "read")), name


def test_tables_change_hands_by_the_administrator_in_a_restore_alone(render: Render) -> None:
    release = render(ON)
    for name, administers in (("learnloop-backup", False), ("learnloop-restore", True)):
        for step, container in containers(pod(release, name)).items():
            env = {one["name"]: one.get("value", "") for one in container["env"]}
            if step not in ("dump", "read"):
                assert ("LEARNLOOP_ADMIN_DSN" in env) is administers, step
                assert env["LEARNLOOP_DSN"].startswith("postgresql://learnloop_data@"), step


def test_a_restore_never_begins_by_itself_or_twice(render: Render) -> None:
    spec = render(ON).one("CronJob", "learnloop-restore")["spec"]
    assert spec["suspend"] is True
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0


def test_it_asks_by_tls_and_its_volume_stays(render: Render) -> None:
    release = render(ON)
    env = {one["name"]: one.get("value") for one in containers(pod(release))["dump"]["env"]}
    assert env["DSN"].endswith("?sslmode=verify-full&sslrootcert=/run/tls/ca.crt")
    assert "password" not in env["DSN"]
    claim = release.one("PersistentVolumeClaim", "learnloop-backup")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_volume_that_one_node_mounts_is_read_on_that_node(render: Render) -> None:
    """Before a restore the data plane ends, so that one may run anywhere."""
    near = pod(render(ON))["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert near["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "data-plane"
    assert "podAffinity" not in pod(render(ON), "learnloop-restore")["spec"]["affinity"]
    shared = {"dataPlane": {"artifacts": {"persistence": {"accessMode": "ReadWriteMany"}}}}
    assert "podAffinity" not in pod(render(ON | shared))["spec"]["affinity"]


def test_it_reaches_postgresql_and_nothing_else(render: Render) -> None:
    release = render(ON)
    network = Network(release.of("NetworkPolicy"))
    backup = Party("backup", "learnloop-system", pod(release)["metadata"]["labels"])
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
    bucket = render(ON | {"dataPlane": {"artifacts": {"s3": {"bucket": "models"}}}})
    assert Network(bucket.of("NetworkPolicy")).allows(backup, Party("outside"), 443)


def test_artifacts_that_nobody_keeps_are_no_backup(render: Render) -> None:
    with pytest.raises(Rejected, match="artifacts lie on no volume"):
        render(ON | {"dataPlane": {"artifacts": {"persistence": {"enabled": False}}}})


def test_a_server_of_ones_own_is_backed_up_by_its_own_means(render: Render) -> None:
    with pytest.raises(Rejected, match="back up your own server"):
        render(ON | {"postgresql": {"embedded": False, "external": {"dsnSecret": {"name": "pg"}}}})
