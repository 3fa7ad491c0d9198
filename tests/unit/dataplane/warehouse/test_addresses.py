"""Where a warehouse is, as its URL says it."""

import pytest

from learnloop_dataplane.config import Config
from learnloop_dataplane.config_values import Addresses
from learnloop_dataplane.errors import ConfigError

GOOD = {"LEARNLOOP_DSN": "postgresql://u:p@h/d", "LEARNLOOP_ARTIFACTS": "file:///data"}


def test_a_url_has_servers_login_and_database() -> None:
    found = Addresses.parse("clickhouse://me:p%40ss%2Fword@one:8124,two,[::1]:9,[fe80::2]/episodes")
    assert found.servers == (("one", 8124), ("two", 8123), ("::1", 9), ("fe80::2", 8123))
    login = {"interface": "http", "username": "me", "password": "p@ss/word", "database": "episodes"}
    assert found.login == login


def test_a_secure_one_is_spoken_to_by_tls() -> None:
    found = Addresses.parse("clickhouse://me:p@one,two:9440/d?secure=true&ca_cert=/ca.crt&verify=false")
    assert found.servers == (("one", 8443), ("two", 9440))
    assert found.login["interface"] == "https"
    assert (found.login["ca_cert"], found.login["verify"]) == ("/ca.crt", False)
    assert "secure" not in found.login, "the client would not know it"
    assert Addresses.parse("clickhouse://one:8443/d").login["interface"] == "https"
    assert Addresses.parse("clickhouse://one:8443/d?secure=false").login["interface"] == "http"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://u:secret@h/d", "does not start with clickhouse://"),
        ("clickhouse://u:secret@h:99999/d", "the port '99999' at h"),
        ("clickhouse://u:secret@h:x/d", "the port 'x' at h"),
        ("clickhouse://u:secret@one,,two/d", "an address without a host"),
        ("clickhouse://u:secret@/d", "an address without a host"),
        ("clickhouse://u:secret@[h/d", "is no URL"),
        ("clickhouse://u:secret@h/d?secure=maybe", "secure=maybe; it is true or false"),
        ("clickhouse://u:secret@h/d?host=elsewhere", "the options host; there are secure"),
    ],
)
def test_what_is_no_address_is_refused_by_name_and_keeps_the_password(url: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config.from_env(GOOD | {"LEARNLOOP_WAREHOUSE": url})
    assert expected in str(error.value)
    assert "LEARNLOOP_WAREHOUSE" in str(error.value)
    assert ":secret" not in str(error.value)


def test_several_servers_that_are_no_cluster_are_refused() -> None:
    several = GOOD | {"LEARNLOOP_WAREHOUSE": "clickhouse://u:p@one,two/d"}
    with pytest.raises(ConfigError, match=r"names 2 servers.*set LEARNLOOP_WAREHOUSE_CLUSTER"):
        Config.from_env(several)
    assert Config.from_env(several | {"LEARNLOOP_WAREHOUSE_CLUSTER": "{cluster}"}).warehouse_cluster == "{cluster}"


@pytest.mark.parametrize("name", ["a'b", "a b", "{a", "x" * 65])
def test_a_cluster_has_the_name_of_one(name: str) -> None:
    with pytest.raises(ConfigError, match="LEARNLOOP_WAREHOUSE_CLUSTER"):
        Config.from_env(GOOD | {"LEARNLOOP_WAREHOUSE": "clickhouse://u:p@one/d", "LEARNLOOP_WAREHOUSE_CLUSTER": name})
    with pytest.raises(ConfigError, match="WAREHOUSE_CLUSTER: takes LEARNLOOP_WAREHOUSE"):
        Config.from_env(GOOD | {"LEARNLOOP_WAREHOUSE_CLUSTER": "c"})
