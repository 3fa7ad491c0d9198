"""The chart's NetworkPolicies, simulated on the connections that its pods are configured to make: a CNI that enforces
them is not part of the tests."""

import re
from dataclasses import replace

import pytest

from learnloop_operator.settings import Settings
from learnloop_operator.training.attempts import launch
from learnloop_operator.training.backends import Backends
from testing.network_policies import Network, Party
from testing.operators.settings_of import settings_of
from testing.training.training_builders import DEFAULTS, resource, situation, spec

from .conftest import Release, Render

HOME = "learnloop-system"
API_SERVER = Party("the API server")
OUTSIDE = Party("somewhere else")
AGENT = Party("an agent", "team-a", {"app": "agent"})
POLICY_SERVER = Party(
    "a policy server",
    "team-a",
    {"app.kubernetes.io/part-of": "learnloop", "app.kubernetes.io/component": "policy-server"},
    {"http": 8080, "metrics": 8081},
)
URL = re.compile(r"(?:https?|nats|tls|postgresql)://(?:[^@/\s]*@)?learnloop-([a-z]+)\.learnloop-system\.svc:(\d+)")


def parties(release: Release) -> dict[str, Party]:
    """The release's pods, by the end of their names."""
    pods = {}
    for owner, pod in release.pods().items():
        ports = {
            port["name"]: port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports", [])
        }
        name = owner.split("/learnloop-")[1]
        pods[name] = Party(name, HOME, pod["metadata"]["labels"], ports)
    return pods


def configured(release: Release) -> set[tuple[str, str, int]]:
    """Calls, as the pods' variables, arguments and annotations say: source, target, port of the Service."""
    calls = set()
    for owner, pod in release.pods().items():
        source = owner.split("/learnloop-")[1]
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            words = [str(one.get("value", "")) for one in container.get("env", [])]
            words += [*container.get("command", []), *container.get("args", [])]
            calls |= {(source, target, int(port)) for word in words for target, port in URL.findall(word)}
        notes = pod["metadata"].get("annotations", {})
        if notes.get("prometheus.io/scrape") == "true":
            calls.add(("prometheus", source, int(notes["prometheus.io/port"])))
    return calls


@pytest.fixture
def release(render: Render) -> Release:
    return render()


@pytest.fixture
def network(release: Release) -> Network:
    return Network(release.of("NetworkPolicy"))


def test_every_connection_that_is_configured_is_let_through(release: Release, network: Network) -> None:
    pods, calls = parties(release), configured(release)
    assert {("operator", "data", 8080), ("data", "postgres", 5432), ("data", "nats", 4222)} <= calls
    assert {("operator", "prometheus", 9090), ("prometheus", "operator", 9090), ("prometheus", "data", 8081)} <= calls
    for source, target, port in calls:
        assert network.allows(pods[source], pods[target], port), (source, target, port)


def test_no_other_connection_between_the_releases_pods_is(release: Release, network: Network) -> None:
    pods, calls = parties(release), configured(release)
    calls.add(("test-ready", "prometheus", 9090))
    for source in pods.values():
        for target in pods.values():
            for port in {*(target.ports or {}).values(), 22}:
                if source is not target and (source.name, target.name, port) not in calls:
                    open_to_all = target.name == "data" and port == 8080  # every pod with egress
                    assert not network.allows(source, target, port) or open_to_all, (source.name, target.name, port)


def test_agents_reach_the_data_plane_and_nothing_else(release: Release, network: Network) -> None:
    for name, target in parties(release).items():
        for port in (target.ports or {}).values():
            assert network.allows(AGENT, target, port) == ((name, port) == ("data", 8080)), (name, port)


def test_policy_servers_are_scraped_by_prometheus_and_the_operator_only(release: Release, network: Network) -> None:
    for port, callers in ((8080, {"prometheus"}), (8081, {"operator", "prometheus"})):
        assert {name for name, pod in parties(release).items() if network.allows(pod, POLICY_SERVER, port)} == callers


def test_who_has_a_token_reaches_the_api_server_and_nobody_else_does(release: Release, network: Network) -> None:
    for owner, pod in release.pods().items():
        party = parties(release)[owner.split("/learnloop-")[1]]
        expected = pod["spec"]["automountServiceAccountToken"]
        assert network.allows(party, API_SERVER, 6443) == expected, owner


def test_stores_call_nobody_at_all(release: Release, network: Network) -> None:
    for name in ("postgres", "nats"):
        for target in (OUTSIDE, AGENT, API_SERVER):
            assert not network.allows(parties(release)[name], target, 443), name


def test_names_are_looked_up_by_whoever_calls_by_name(release: Release, network: Network) -> None:
    for name in ("operator", "data", "prometheus", "test-ready"):
        assert network.allows(parties(release)[name], OUTSIDE, 53, "UDP"), name


@pytest.mark.parametrize(
    ("values", "reached"),
    [
        ({"dataPlane": {"artifacts": {"s3": {"bucket": "models"}}}}, True),
        ({"nats": {"embedded": False, "external": {"url": "nats://nats.infra:4222"}}}, True),
        ({}, False),
    ],
)
def test_a_store_outside_is_reached_unless_somebody_says_where_it_is(render, values, reached):
    release = render(values)
    assert Network(release.of("NetworkPolicy")).allows(parties(release)["data"], OUTSIDE, 4222) is reached
    narrow = {"networkPolicy": {"egress": {"dataPlaneTo": [{"ports": [{"port": 443, "protocol": "TCP"}]}]}}}
    narrowed = Network(render(values | narrow).of("NetworkPolicy"))
    assert not narrowed.allows(parties(release)["data"], OUTSIDE, 4222)
    assert narrowed.allows(parties(release)["data"], OUTSIDE, 443)


def test_a_prometheus_of_ones_own_is_reached_wherever_it_is(render: Render) -> None:
    release = render({"prometheus": {"embedded": False, "external": {"url": "http://prometheus.monitoring:9090"}}})
    assert Network(release.of("NetworkPolicy")).allows(parties(release)["operator"], OUTSIDE, 9090)


def test_egress_can_be_left_open(render: Render) -> None:
    release = render({"networkPolicy": {"egress": {"enabled": False}}})
    assert Network(release.of("NetworkPolicy")).allows(parties(release)["postgres"], OUTSIDE, 443)


PUBLIC = {"url": "https://ci.example.org:9443/learnloop", "keySecret": {"name": "hook"}}
PRIVATE = {"url": "http://hook.infra:7000", "keySecret": {"name": "hook"}}
API = {"apiServerTo": ["192.0.2.10/32"]}


def at(address: str) -> Party:
    return Party(address, address=address)


def test_a_public_receiver_is_reached_at_its_port_and_no_private_address_is(render: Render) -> None:
    values = {"dataPlane": {"notifications": PUBLIC}, "networkPolicy": {"egress": API}}
    release = render(values)
    network, data = Network(release.of("NetworkPolicy")), parties(release)["data"]
    for address in ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e"):
        reached = {port for port in (25, 80, 443, 587, 7000, 8080, 9443) if network.allows(data, at(address), port)}
        assert reached == {9443}, address
    inside = ["169.254.169.254", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.100.100.200", "127.0.0.1"]
    for address in (
        *inside,
        "fd00:ec2::254",
        "fe80::1",
        "::1",
        "::ffff:10.1.2.3",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::ac1f:1",
    ):
        assert not any(network.allows(data, at(address), port) for port in (443, 587, 7000, 9443)), address


def test_a_private_receiver_is_reached_where_it_is_named(render: Render) -> None:
    named = [{"cidr": "10.1.2.3/32", "ports": [7000]}]
    chart_values = {"dataPlane": {"notifications": PRIVATE}}
    for values, port, reached in ((chart_values, 7000, True), (chart_values, 443, False), ({}, 7000, True)):
        release = render(values | {"networkPolicy": {"egress": {**API, "notificationsTo": named}}})
        network = Network(release.of("NetworkPolicy"))
        assert network.allows(parties(release)["data"], at("10.1.2.3"), port) is reached
        assert not network.allows(parties(release)["data"], at("10.1.2.4"), port)
        assert not network.allows(parties(release)["data"], at("93.184.215.14"), 443)
        assert network.allows(parties(release)["data"], at("192.0.2.10"), 6443)


def workloads(release: Release) -> Settings:
    (container,) = release.pods()["Deployment/learnloop-operator"]["spec"]["containers"]
    return settings_of({one["name"]: one["value"] for one in container["env"] if "value" in one})


def test_what_the_operator_makes_fits_the_releases_own_policies(release: Release, network: Network) -> None:
    settings = workloads(release)
    assert settings.workload_network is not None
    snapshot = situation(object=resource(), spec=spec())
    defaults = replace(DEFAULTS, data_url=settings.data_url, network=settings.workload_network)
    made = launch(snapshot, Backends(defaults=defaults), 0, "").apply
    both = Network([*release.of("NetworkPolicy"), *(item for item in made if item["kind"] == "NetworkPolicy")])
    rank = Party("a rank", "ns", {"learnloop.dev/training-job": "t", "app.kubernetes.io/component": "trainer"})
    pods = parties(release)
    reach = {(name, port) for name, pod in pods.items() for port in (pod.ports or {}).values()}
    assert {(name, port) for name, port in reach if both.allows(rank, pods[name], port)} == {("data", 8080)}
    assert not any(both.allows(pod, rank, 23456) for pod in pods.values())
    assert settings.workload_network.api_server_ports == (443, 6443, 8443, 16443)


@pytest.mark.parametrize("off", [{"enabled": False}, {"workloads": {"enabled": False}}])
def test_the_operator_makes_none_where_none_are_wanted(render: Render, off: dict) -> None:
    assert workloads(render({"networkPolicy": off})).workload_network is None
