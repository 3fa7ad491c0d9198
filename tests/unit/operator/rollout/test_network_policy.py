"""Callers of the policy servers, and clients that they serve: what the installation decides, in manifests."""

from dataclasses import replace

import pytest

from learnloop_common.settings import ConfigurationError
from learnloop_operator.rollout.state.snapshot import Callers, Defaults
from testing.operators.settings_of import settings_of

from .test_rendering import manifest, snapshot

OURS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "learnloop-system"}}}


def served(callers: Callers, **spec):
    return replace(snapshot(spec), defaults=Defaults("serving:1", "http://data:8080", callers=callers))


def test_one_policy_lets_in_the_namespace_and_the_peers_of_the_installation() -> None:
    policy = manifest(served(Callers("token", ("web",), (OURS,))), "NetworkPolicy")
    assert policy["metadata"]["name"] == "md-policy"
    assert policy["metadata"]["ownerReferences"][0]["uid"] == "u"
    selected = policy["spec"]["podSelector"]["matchLabels"]
    labels = manifest(served(Callers()), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()
    rule, probes = policy["spec"]["ingress"]
    web = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}
    assert rule == {"from": [{"podSelector": {}}, web, OURS], "ports": [{"port": 8080, "protocol": "TCP"}]}
    assert probes == {"from": [OURS], "ports": [{"port": 8081, "protocol": "TCP"}]}


def test_a_gateways_namespace_is_let_in() -> None:
    routing = {"mode": "gateway", "gateway": {"name": "edge", "namespace": "gateways"}}
    policy = manifest(served(Callers("token", (), ()), routing=routing), "NetworkPolicy")
    peers = policy["spec"]["ingress"][0]["from"]
    assert len(policy["spec"]["ingress"]) == 1, "a rule that names no peer would let in everybody"
    assert peers[1:] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}]


def test_there_is_none_where_the_installation_wants_none() -> None:
    with pytest.raises(StopIteration):
        manifest(served(Callers("token")), "NetworkPolicy")


def test_servers_are_told_whom_to_serve_and_an_author_cannot_say_otherwise() -> None:
    pod = {"env": [{"name": "LEARNLOOP_CALLERS", "value": "anybody"}]}
    template = manifest(served(Callers("token", ("web",)), serving={"pod": pod}), "Deployment")["spec"]["template"]
    env = [(item["name"], item.get("value")) for item in template["spec"]["containers"][0]["env"]]
    assert env.count(("LEARNLOOP_CALLERS", "token")) == 1
    assert ("LEARNLOOP_CALLERS", "anybody") not in env
    assert ("LEARNLOOP_CALLER_NAMESPACES", "web") in env


def test_settings_say_who_and_refuse_what_cannot_be() -> None:
    configured = settings_of({"LEARNLOOP_SERVING_CALLERS": "token", "LEARNLOOP_SERVING_PEERS": '[{"podSelector": {}}]'})
    assert (configured.serving_callers, configured.serving_peers) == ("token", ({"podSelector": {}},))
    assert settings_of({}).serving_peers is None
    for variable, value in (("CALLERS", "all"), ("PEERS", "x"), ("PEERS", "[1]"), ("PEERS", "{}")):
        with pytest.raises(ConfigurationError, match=f"LEARNLOOP_SERVING_{variable} is "):
            settings_of({f"LEARNLOOP_SERVING_{variable}": value})
