"""NetworkPolicies of ranks, actors and MemoryServices, simulated on the connections that these pods make."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_common.settings import ConfigurationError
from learnloop_operator.agents.agent_snapshot import AgentDefaults, MemoryHome
from learnloop_operator.agents.decide_agent import decide as decide_agent
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.memory_services.decide_service import decide as decide_memory
from learnloop_operator.training.attempts import launch
from learnloop_operator.training.backends import Backends
from testing.network_policies import Network, Party
from testing.operators.settings_of import settings_of
from testing.training.training_builders import DEFAULTS, resource, situation, spec

from ..agent.test_learning_agent import situation as agent_world, spec as agent_spec
from ..memory_service.test_memory_service import situation as memory_world

HOME = "learnloop-system"
DATA_URL = f"https://learnloop-data.{HOME}.svc:8080"
OURS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOME}}}
USUAL = WorkloadNetwork((OURS,), api_server_ports=(6443,))
DATA, PROMETHEUS = Party("the data plane", HOME), Party("Prometheus", HOME)
SERVER = Party("a policy server", "ns", {"learnloop.dev/model-deployment": "la"})
NEIGHBOUR, STRANGER = Party("a pod", "ns", {"app": "x"}), Party("a pod of others", "team-b", {"app": "x"})
OUTSIDE = Party("an address outside")
URL = re.compile(r"(?:https?|postgresql)://(?:[^@/\s\"]*@)?([a-z0-9-]+)\.([a-z0-9-]+)\.svc:(\d+)")

Manifests = Iterable[Any]


def training(name: str = "t", network: WorkloadNetwork | None = USUAL, **changes) -> Manifests:
    """The plan that begins an attempt."""
    snapshot = situation(object=resource(name=name), spec=spec(**changes))
    backends = Backends(defaults=replace(DEFAULTS, data_url=DATA_URL, network=network))
    return launch(snapshot, backends, 0, "").apply


def agent(network: WorkloadNetwork | None = USUAL, **changes) -> Manifests:
    defaults = AgentDefaults("serving:1", DATA_URL, tls=("ns",), network=network)
    return decide_agent(replace(agent_world(**changes), defaults=defaults)).apply


def memory(network: WorkloadNetwork | None = USUAL, spec: dict | None = None) -> Manifests:
    return decide_memory(replace(memory_world(spec), network=network, tls=True)).apply


def policies(*parts: Manifests) -> list:
    return [item for part in parts for item in part if item["kind"] == "NetworkPolicy"]


def templates(tree) -> Iterable:
    """Every pod template of what was made, wherever a kind keeps it."""
    if isinstance(tree, dict):
        if "metadata" in tree and "containers" in (tree.get("spec") or {}):
            yield tree
        for item in tree.values():
            yield from templates(item)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from templates(item)


def party(made: Manifests, component: str) -> Party:
    pods = list(templates(list(made)))
    pod = next(one for one in pods if one["metadata"]["labels"]["app.kubernetes.io/component"] == component)
    return Party(component, "ns", pod["metadata"]["labels"])


def test_ranks_speak_with_one_another_and_nobody_else_begins_to() -> None:
    network = Network(policies(training("a"), training("b")))
    one, other = party(training("a"), "trainer"), party(training("b"), "trainer")
    for port in (23456, 40123):
        assert network.allows(one, one, port)
        for caller in (other, NEIGHBOUR, STRANGER, PROMETHEUS, OUTSIDE):
            assert not network.allows(caller, one, port), caller.name


def test_ranks_call_the_data_plane_and_the_dns_and_nothing_else() -> None:
    network, rank = Network(policies(training())), party(training(), "trainer")
    assert network.allows(rank, DATA, 8080)
    assert network.allows(rank, OUTSIDE, 53, "UDP")
    for target, port in ((OUTSIDE, 443), (OUTSIDE, 6443), (NEIGHBOUR, 8080), (DATA, 5432), (STRANGER, 8080)):
        assert not network.allows(rank, target, port), (target.name, port)


CAREFUL = {
    "constraints": [{"name": "never", "forbid": [1]}],
    "fallbackPolicy": {"uri": "https://models.example.com/careful.onnx", "sha256": "0" * 64},
}


@pytest.mark.parametrize(
    ("named", "target", "port"),
    [
        ({"tracking": {"mlflow": {"trackingUri": "http://mlflow.mlops:5000"}}}, Party("mlflow", "mlops"), 8099),
        ({"tracking": {"mlflow": {"trackingUri": "https://mlflow.example.com"}}}, OUTSIDE, 443),
        ({"pod": {"env": [{"name": "MLFLOW_TRACKING_URI", "value": "http://tracker:5000"}]}}, NEIGHBOUR, 5000),
        ({"initialPolicy": {"uri": "s3://models/first.onnx"}}, OUTSIDE, 443),
        ({"safety": CAREFUL}, OUTSIDE, 443),
    ],
)
def test_an_address_that_the_spec_names_is_let_through(named: dict, target: Party, port: int) -> None:
    made = training(**named)
    assert Network(policies(made)).allows(party(made, "trainer"), target, port)
    assert not Network(policies(training())).allows(party(made, "trainer"), target, port)


def test_a_text_that_no_pod_calls_lets_nothing_through() -> None:
    """Every text of a spec was taken for an address, and opened the namespace that it names."""
    elsewhere = "http://database.team-b:5432"
    claims = {"resources": {"claims": [{"name": "gpu", "request": elsewhere}]}}
    for made in (training(pod=claims), training(data={"environment": elsewhere, "level": elsewhere})):
        assert not Network(policies(made)).allows(party(made, "trainer"), Party("db", "team-b"), 5432)
    chosen = agent_spec()
    chosen["task"]["environment"]["actors"]["pod"] = claims
    playing = agent(spec=chosen)
    assert not Network(policies(playing)).allows(party(playing, "actor"), Party("db", "team-b"), 5432)
    served = memory(spec={"storage": {"size": "1Gi"}, "pod": claims})
    assert not Network(policies(served)).allows(party(served, "memory-service"), Party("db", "team-b"), 5432)


def test_an_address_that_cannot_be_read_opens_nothing_and_ends_no_pass() -> None:
    broken = "http://[models/v1"
    made = memory(spec={"storage": {"size": "1Gi"}, "embedder": {"url": broken, "model": "small"}})
    assert policies(made)
    assert policies(training(pod={"env": [{"name": "PROXY", "value": broken}]}))


def test_a_rule_of_the_namespace_adds_to_ours() -> None:
    """The owner of the namespace lets more through without us."""
    own = {
        "metadata": {"namespace": "ns"},
        "spec": {
            "podSelector": {"matchLabels": {"learnloop.dev/training-job": "t"}},
            "policyTypes": ["Egress"],
            "egress": [{"ports": [{"port": 9000, "protocol": "TCP"}]}],
        },
    }
    assert Network([*policies(training()), own]).allows(party(training(), "trainer"), OUTSIDE, 9000)


def test_actors_reach_what_they_are_configured_to_call_and_nobody_reaches_them() -> None:
    home = MemoryHome(True, "https://mem-memory.ns.svc:8080")
    playing = agent(spec=agent_spec(memory={"serviceRef": {"name": "mem"}}), memory=home)
    network, actor = Network(policies(playing, memory())), party(playing, "actor")
    where = {"learnloop-data": DATA, "la": SERVER, "mem-memory": party(memory(), "memory-service")}
    matches = (URL.fullmatch(item.get("value", "")) for pod in templates(list(playing)) for item in _env(pod))
    calls = {call[1]: int(call[3]) for call in matches if call}
    assert set(calls) == set(where)
    for name, port in calls.items():
        assert network.allows(actor, where[name], port), name
    for caller in (NEIGHBOUR, STRANGER, PROMETHEUS, DATA):
        assert not network.allows(caller, actor, 8080), caller.name
    for target, port in ((OUTSIDE, 443), (NEIGHBOUR, 8080), (SERVER, 8081), (STRANGER, 8080)):
        assert not network.allows(actor, target, port), (target.name, port)


def test_a_gateway_that_actors_are_told_of_is_let_through() -> None:
    pod = {"env": [{"name": "LEARNLOOP_ENDPOINT", "value": "http://edge.example.com:8088"}]}
    chosen = agent_spec()
    chosen["task"]["environment"]["actors"]["pod"] = pod
    LearningAgentSpec.model_validate(chosen)
    playing = agent(spec=chosen)
    assert Network(policies(playing)).allows(party(playing, "actor"), OUTSIDE, 8088)


def test_actors_that_go_take_their_policy_along() -> None:
    chosen = agent_spec()
    task = chosen["task"]
    chosen["task"] = {"observations": 4, "actions": 2, "external": {"environment": task["environment"]["name"]}}
    snapshot = agent_world(spec=chosen, actors={})
    gone = decide_agent(replace(snapshot, defaults=AgentDefaults("s", DATA_URL, network=USUAL))).delete
    assert {("Deployment", "la-actor"), ("NetworkPolicy", "la-actor")} <= {(ref.kind, ref.name) for ref in gone}


def test_only_a_memory_service_reaches_its_database() -> None:
    network = Network(policies(memory()))
    server, database = party(memory(), "memory-service"), party(memory(), "memory-postgres")
    assert network.allows(server, database, 5432)
    for caller in (NEIGHBOUR, STRANGER, PROMETHEUS, DATA):
        assert not network.allows(caller, database, 5432), caller.name
    for target, port in ((OUTSIDE, 443), (NEIGHBOUR, 443), (server, 443), (DATA, 8080)):
        assert not network.allows(database, target, port), target.name


def test_a_memory_service_is_asked_by_its_namespace_and_scraped_by_the_installation() -> None:
    network, server = Network(policies(memory())), party(memory(), "memory-service")
    assert network.allows(NEIGHBOUR, server, 8080)
    assert network.allows(PROMETHEUS, server, 8080)
    assert network.allows(PROMETHEUS, server, 8081)
    for caller, port in ((STRANGER, 8080), (NEIGHBOUR, 8081), (NEIGHBOUR, 22)):
        assert not network.allows(caller, server, port), (caller.name, port)
    alone = Network(policies(memory(WorkloadNetwork())))
    assert not alone.allows(NEIGHBOUR, server, 8081), "a rule without peers would let everybody in"


def test_a_memory_service_calls_what_it_is_configured_to_call() -> None:
    chosen = {
        "storage": {"size": "1Gi"},
        "weaviate": {"url": "http://weaviate.vectors.svc:8080"},
        "distiller": {"url": "https://models.example.com/v1", "model": "m"},
    }
    MemoryServiceSpec.model_validate(chosen)
    made = memory(spec=chosen)
    network, server = Network(policies(made)), party(made, "memory-service")
    for target, port in ((DATA, 8080), (OUTSIDE, 6443), (Party("w", "vectors"), 50051), (OUTSIDE, 443)):
        assert network.allows(server, target, port), (target.name, port)
    plain = Network(policies(memory()))
    for target, port in ((OUTSIDE, 443), (STRANGER, 8080), (NEIGHBOUR, 5432)):
        assert not plain.allows(server, target, port), (target.name, port)


def test_a_database_of_somebody_elses_is_wherever_its_secret_says() -> None:
    made = memory(spec={"dsnSecretRef": {"name": "own", "key": "dsn"}})
    assert Network(policies(made)).allows(party(made, "memory-service"), OUTSIDE, 5433)


def test_what_goes_out_can_be_left_open_and_policies_can_be_left_out() -> None:
    opened = replace(USUAL, closed=False)
    for made in (training(network=opened), agent(opened), memory(opened)):
        for policy in policies(made):
            asks_for_a_certificate = policy["metadata"]["name"] == "mem-postgres"
            assert policy["spec"]["policyTypes"] == ["Ingress"] or asks_for_a_certificate
    for made in (training(network=None), agent(None), memory(None)):
        assert policies(made) == []


def test_every_policy_belongs_to_what_it_is_made_for_and_comes_before_its_pods() -> None:
    for made in (training(), agent(), memory()):
        kinds = [item["kind"] for item in made]
        assert kinds.index("NetworkPolicy") < next(
            index for index, kind in enumerate(kinds) if kind in ("PyTorchJob", "Deployment", "StatefulSet")
        )
        for policy in policies(made):
            assert policy["metadata"]["ownerReferences"][0]["controller"]
            selected = policy["spec"]["podSelector"]["matchLabels"]
            assert any(selected.items() <= pod["metadata"]["labels"].items() for pod in templates(list(made)))


def test_settings_read_it_and_refuse_what_cannot_be() -> None:
    given = '{"from": [{"podSelector": {}}], "to": [{}], "closed": false, "apiServerPorts": [6443]}'
    network = settings_of({"LEARNLOOP_WORKLOAD_NETWORK": given}).workload_network
    assert network == WorkloadNetwork(({"podSelector": {}},), False, ({},), (6443,))
    assert settings_of({}).workload_network is None
    for value in ("x", "[]", '{"from": {}}', '{"to": [1]}', '{"closed": 1}', '{"apiServerPorts": [0]}', '{"a": 1}'):
        with pytest.raises(ConfigurationError, match="LEARNLOOP_WORKLOAD_NETWORK is "):
            settings_of({"LEARNLOOP_WORKLOAD_NETWORK": value})


def _env(pod) -> list:
    return [item for container in pod["spec"]["containers"] for item in container.get("env", [])]
