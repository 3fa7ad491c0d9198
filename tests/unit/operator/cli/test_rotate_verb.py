"""`kubectl learnloop rotate`: the new value comes beside the old one, and the old one ends when nobody needs it."""

import argparse

import pytest

from learnloop_api.key_lines import KeyLines
from learnloop_operator.bootstrap import KEYS
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.verbs.keeping import rotate


class Installation:
    """A cluster with one; what a Secret says, and what its value was whenever pods were replaced."""

    namespace = "team-a"

    def __init__(self, value: str = "old") -> None:
        self.value, self.version, self.place, self.seen = value, 1, ("", "", ""), list[str]()
        self.exists = True

    def secrets(self, namespace: str) -> "Installation":
        self.place = (namespace, "", "")
        return self

    def read(self, name: str, key: str) -> tuple[str, str]:
        self.place = (self.place[0], name, key)
        return self.value, str(self.version)

    def write(self, name: str, key: str, value: str, version: str) -> None:
        assert version == str(self.version)
        self.value, self.version = value, self.version + 1

    def restart(self, kind: str, name: str, seconds: float) -> bool:
        assert (kind, name) == ("Deployment", "learnloop-data")
        self.seen.append(self.value)
        return self.exists


def said(cluster: Installation, *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    rotate.arguments(parser)
    return str(rotate.run(cluster, parser.parse_args(arguments)))  # type: ignore[arg-type]


def test_a_password_ends_when_every_pod_has_the_new_one() -> None:
    cluster = Installation()
    assert "the old value holds no longer" in said(cluster, "database-password")
    beside, alone = map(KeyLines.parse, cluster.seen)
    assert beside.values == (alone.values[0], "old")
    assert cluster.value == alone.values[0] != "old"
    assert cluster.place == ("learnloop-system", "learnloop-credentials", "database-password")


@pytest.mark.parametrize("secret", ["audit-key", "pseudonym-key"])
def test_a_key_signs_only_when_all_who_verify_have_read_it(secret: str) -> None:
    cluster = Installation("old")
    assert "the old value still verifies" in said(cluster, secret)
    lines = KeyLines.parse(cluster.value)
    assert cluster.seen == [cluster.value]
    assert lines.values[1:] == ("old",)
    assert lines.current() == "old"
    assert lines.current(lines.lines[0][1]) == lines.values[0]
    assert "alone holds now" in said(cluster, secret, "--forget")
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
    said(cluster, "webhook-key", "receivers/ci")
    assert cluster.place == ("learnloop-system", "receivers", "ci")
    assert len(KeyLines.parse(cluster.value).values) == 2


def test_encryption_keys_have_names_and_are_never_forgotten_by_a_verb() -> None:
    cluster = Installation("k1 AAAA")
    said(cluster, "encryption-keys")
    new, old = cluster.value.splitlines()
    assert old == "k1 AAAA"
    assert new.split()[0] != "k1"
    with pytest.raises(CommandError, match="gone for ever"):
        said(cluster, "encryption-keys", "--forget")


def test_a_second_argument_of_the_installations_own_and_another_releases_name_are_refused() -> None:
    with pytest.raises(CommandError, match="leave 'walker' out"):
        said(Installation(), "audit-key", "walker")
    cluster = Installation()
    cluster.exists = False
    with pytest.raises(CommandError, match="--release"):
        said(cluster, "audit-key")


def test_whatever_the_installation_makes_is_known_to_the_verb_or_to_the_documentation() -> None:
    by_hand = {"postgres-password", "nats-password", "nats-issuer-key"}
    assert set(KEYS) - set(rotate.KINDS) == by_hand
