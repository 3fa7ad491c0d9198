"""`kubectl learnloop rotate`: the new value joins the old one, which ends when no part needs it."""

import base64
from itertools import pairwise

import pytest

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config_values import WrappingKeys
from learnloop_operator.bootstrap import KEYS, wrapping_key
from learnloop_operator.cli import keeping
from learnloop_operator.cli.objects import CommandError, SecretReference
from testing.command_line import typed


class Installation:
    """A cluster with one; what a Secret says, and what its value was whenever pods were replaced."""

    namespace = "team-a"

    def __init__(self, value: str = "old") -> None:
        self.value, self.version, self.place, self.seen = value, 1, ("", "", ""), list[str]()
        self.exists = True
        self.replaced: list[str] = []
        self.installed = {
            ("Deployment", "learnloop-data"): 1,
            ("StatefulSet", "learnloop-nats-cluster"): 3,
            ("Deployment", "mem-memory"): 1,
        }
        self.variables: dict[str, str | SecretReference] = {
            "LEARNLOOP_AUDIT_KEY_FILE": "/run/credentials/audit-key",
            "LEARNLOOP_PSEUDONYM_KEY_FILE": "/run/credentials/pseudonym-key",
            "LEARNLOOP_DATABASE_PASSWORD_FILE": "/run/credentials/database-password",
            "LEARNLOOP_ENCRYPTION_KEYS": SecretReference("learnloop-credentials", "encryption-keys"),
            "LEARNLOOP_ADMIN_PASSWORD": SecretReference("learnloop-credentials", "postgres-password"),
            "LEARNLOOP_NATS_PASSWORD_FILE": "/run/credentials/nats-password",
            "LEARNLOOP_NATS_ISSUER_KEY_FILE": "/run/credentials/nats-issuer-key",
        }

    def workloads(self, namespace: str) -> "Installation":
        self.place = (namespace, "", "")
        return self

    def read(self, name: str, key: str) -> tuple[str, str]:
        self.place = (self.place[0], name, key)
        return self.value, str(self.version)

    def write(self, name: str, key: str, value: str, version: str) -> None:
        assert version == str(self.version)
        self.value, self.version = value, self.version + 1

    def restart(self, kind: str, name: str, seconds: float) -> bool:
        assert (kind, name) in self.installed
        self.seen.append(self.value)
        self.replaced.append(name)
        return self.exists

    def pods(self, kind: str, name: str) -> int | None:
        return self.installed.get((kind, name)) if self.exists else None

    def environment(self, name: str) -> dict[str, str | SecretReference] | None:
        assert ("Deployment", name) in self.installed
        return self.variables


def said(cluster: Installation, *arguments: str) -> str:
    return typed(cluster, "rotate", *arguments)


def test_a_password_ends_when_every_pod_has_the_new_one() -> None:
    cluster = Installation()
    assert "the old value is not valid any more" in said(cluster, "database-password")
    beside, alone = map(KeyLines.parse, cluster.seen)
    assert beside.values == (alone.values[0], "old")
    assert cluster.value == alone.values[0] != "old"
    assert cluster.place == ("learnloop-system", "learnloop-credentials", "database-password")


@pytest.mark.parametrize("secret", ["audit-key", "pseudonym-key"])
def test_a_key_signs_only_when_all_who_verify_have_read_it(secret: str) -> None:
    cluster = Installation("old")
    assert "the old value" in said(cluster, secret)
    lines = KeyLines.parse(cluster.value)
    assert cluster.seen == [cluster.value]
    assert lines.values[1:] == ("old",)
    assert lines.current() == "old"
    assert lines.current(lines.lines[0][1]) == lines.values[0]
    assert "alone is valid now" in said(cluster, secret, "--forget")
    assert cluster.value == lines.values[0]


def test_the_key_of_episodes_is_its_model_deployments_own_and_restarts_nothing() -> None:
    cluster = Installation()
    with pytest.raises(CommandError, match="name the ModelDeployment"):
        said(cluster, "episode-key")
    said(cluster, "episode-key", "walker")
    assert cluster.place[:2] == ("team-a", "walker-episodes")
    assert not cluster.seen
    assert KeyLines.parse(cluster.value).current() == "old"


def test_a_receivers_key_has_two_values_until_the_receiver_knows_the_new_one() -> None:
    cluster = Installation()
    with pytest.raises(CommandError, match="SECRET/KEY"):
        said(cluster, "webhook-key", "receivers")
    assert "the old value stays valid: end it by --forget" in said(cluster, "webhook-key", "receivers/ci")
    assert cluster.place == ("learnloop-system", "receivers", "ci")
    assert len(KeyLines.parse(cluster.value).values) == 2


def test_encryption_keys_have_names_and_are_never_forgotten_by_a_verb() -> None:
    cluster = Installation("k1 AAAA")
    assert "docs/how-to/encrypt-experience.md" in said(cluster, "encryption-keys")
    new, old = cluster.value.splitlines()
    assert old == "k1 AAAA"
    assert new.split()[0] != "k1"
    with pytest.raises(CommandError, match="may still wrap"):
        said(cluster, "encryption-keys", "--forget")


def test_pods_of_a_rollout_unwrap_what_those_beside_them_have_wrapped() -> None:
    cluster = Installation(wrapping_key())
    first = cluster.value
    said(cluster, "encryption-keys")
    states = [WrappingKeys.parse(text) for text in (first, *cluster.seen)]
    assert len({keys.newest for keys in states}) == 2, "the new key wraps in the end"
    for before, after in pairwise(states):
        for one, other in ((before, after), (after, before)):
            assert other.unwrap(one.wrap(b"data key", "ns/1"), one.newest, "ns/1") == b"data key"


def test_a_new_key_that_somebody_took_out_between_the_steps_is_not_written_again() -> None:
    class Meddled(Installation):
        def restart(self, kind: str, name: str, seconds: float) -> bool:
            self.value = "k1 AAAA"
            return super().restart(kind, name, seconds)

    cluster = Meddled("k1 AAAA")
    with pytest.raises(CommandError, match="removed meanwhile"):
        said(cluster, "encryption-keys")
    assert cluster.value == "k1 AAAA"


@pytest.mark.parametrize(("secret", "advice"), [("audit-key", "--forget"), ("encryption-keys", "may still wrap")])
def test_a_key_with_two_values_is_not_rotated_before_the_old_one_ended(secret: str, advice: str) -> None:
    cluster = Installation("k1 AAAA\nk0 AAAA")
    with pytest.raises(CommandError, match=f"{secret}: the value before the current one is still valid.*{advice}"):
        said(cluster, secret)
    assert (cluster.value, cluster.seen) == ("k1 AAAA\nk0 AAAA", [])


@pytest.mark.parametrize("left", ["new\nold", "old\nnew"])
@pytest.mark.parametrize("secret", ["database-password", "nats-issuer-key"])
def test_a_rotation_that_broke_off_is_begun_again(secret: str, left: str) -> None:
    cluster = Installation(left)
    assert "the old value is not valid any more" in said(cluster, secret)
    assert len(KeyLines.parse(cluster.value).values) == 1
    assert cluster.value not in left.split()


@pytest.mark.parametrize(
    ("secret", "variable"),
    [
        ("database-password", "LEARNLOOP_DATABASE_PASSWORD_FILE"),
        ("encryption-keys", "LEARNLOOP_ENCRYPTION_KEYS"),
        ("audit-key", "LEARNLOOP_AUDIT_KEY_FILE"),
    ],
)
@pytest.mark.parametrize("elsewhere", [None, SecretReference("mine", "keys")])
def test_what_nothing_uses_is_not_rotated(secret: str, variable: str, elsewhere: SecretReference | None) -> None:
    cluster = Installation("k1 AAAA")
    del cluster.variables[variable]
    if elsewhere:
        cluster.variables[variable] = elsewhere
    with pytest.raises(CommandError, match=f"no container of learnloop-data reads key {secret}"):
        said(cluster, secret)
    assert cluster.value == "k1 AAAA"
    assert not cluster.seen


def test_a_second_argument_of_the_installations_own_and_another_releases_name_are_refused() -> None:
    with pytest.raises(CommandError, match="leave 'walker' out"):
        said(Installation(), "audit-key", "walker")
    cluster = Installation()
    cluster.exists = False
    with pytest.raises(CommandError, match="--release"):
        said(cluster, "audit-key")
    assert cluster.value == "old", "nothing is written before the installation is found"


def test_whatever_the_installation_makes_is_known_to_the_verb() -> None:
    assert set(KEYS) <= set(keeping.KINDS)


def test_servers_of_nats_know_a_password_before_the_data_plane_comes_by_it() -> None:
    cluster = Installation()
    assert "the old value is not valid any more" in said(cluster, "nats-password")
    assert cluster.replaced == ["learnloop-nats-cluster", "learnloop-data"] * 2
    new = KeyLines.parse(cluster.value).values[0]
    assert cluster.seen == [f"{new}\nold"] * 2 + [new] * 2


def test_the_data_plane_knows_an_issuer_before_a_server_of_nats_believes_it() -> None:
    cluster = Installation("old")
    said(cluster, "nats-issuer-key")
    assert cluster.replaced == ["learnloop-data", "learnloop-nats-cluster", "learnloop-data"]
    new = cluster.value
    assert cluster.seen == [f"old\n{new}", f"{new}\nold", new]
    assert len(base64.b64decode(new)) == 32


def test_the_secrets_of_a_memory_service_are_its_own_and_its_pods_are_replaced() -> None:
    cluster = Installation()
    with pytest.raises(CommandError, match="name the MemoryService"):
        said(cluster, "memory-password")
    cluster.variables = {"LEARNLOOP_DATABASE_PASSWORD": SecretReference("mem-postgres", "postgres-password")}
    said(cluster, "memory-password", "mem")
    assert cluster.place == ("team-a", "mem-postgres", "postgres-password")
    assert (cluster.replaced, len(KeyLines.parse(cluster.seen[0]).values)) == (["mem-memory"] * 2, 2)
    cluster.variables = {"LEARNLOOP_AUDIT_KEY": SecretReference("mem-audit", "audit-key")}
    said(cluster, "memory-audit-key", "mem")
    assert cluster.place == ("team-a", "mem-audit", "audit-key")
    assert KeyLines.parse(cluster.value).current() == cluster.seen[1], "the old one signs until all know the new one"
    cluster.variables = {}
    with pytest.raises(CommandError, match="no container of mem-memory reads"):
        said(cluster, "memory-password", "mem")


@pytest.mark.parametrize("secret", ["postgres-password", "nats-password", "nats-issuer-key", "memory-password"])
def test_a_value_that_ends_by_itself_is_not_taken_from_pods_that_need_it(secret: str) -> None:
    cluster = Installation("new\nold")
    of = ["mem"] if secret.startswith("memory") else []
    with pytest.raises(CommandError, match="ends by itself"):
        said(cluster, secret, *of, "--forget")
    cluster.installed = dict.fromkeys(cluster.installed, 0)
    with pytest.raises(CommandError, match="runs no pod"):
        said(cluster, secret, *of)
    assert cluster.value == "new\nold"


def test_a_superuser_that_cloudnativepg_made_is_not_rotated_here() -> None:
    cluster = Installation()
    cluster.variables["LEARNLOOP_ADMIN_PASSWORD"] = SecretReference("learnloop-postgres-superuser", "password")
    with pytest.raises(CommandError, match="no container of learnloop-data reads key postgres-password"):
        said(cluster, "postgres-password")
    assert cluster.value == "old"
