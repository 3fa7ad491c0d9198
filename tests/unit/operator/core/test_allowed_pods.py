"""The operator makes no pod that the platform does not allow, whatever the API server let through."""

from dataclasses import replace

import pytest

from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.memory_service import ModelVolume
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_common.settings import ConfigurationError
from learnloop_operator.agents.agent_snapshot import AgentDefaults
from learnloop_operator.agents.decide_agent import decide as decide_agent
from learnloop_operator.core.allowed_pods import PodRules, forbidden, forbidden_volume
from learnloop_operator.memory_services.decide_service import decide as decide_memory
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.state.snapshot import Defaults, Snapshot, resolve
from testing.operators.settings_of import settings_of
from testing.training.training_builders import NOW, condition, job, plan, reason, situation, spec

from ..agent import test_learning_agent as agents
from ..memory_service import test_memory_service as memories

RULES = PodRules(images=("registry.example.com/",), service_accounts=("trainer",))
HOST = {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"image": "evil/miner:1"}, "pod.image: 'evil/miner:1' begins with none of registry.example.com/;"),
        ({"serviceAccountName": "admin"}, "pod.serviceAccountName: 'admin' is not one of trainer;"),
        (HOST, "pod.volumes[0]: 'hostPath' is a kind of volume that the platform does not allow;"),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "t", "projected": {"sources": []}}]},
            "pod.volumes[1]: 'projected'",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}, "pod.env[0].valueFrom: 'fileKeyRef' is a source"),
    ],
)
def test_field_value_and_fix_are_named(options: dict, sentence: str) -> None:
    problem = forbidden(PodOptions.model_validate(options), "pod", RULES)
    assert problem.startswith(sentence)
    assert "of the chart" in problem


def test_what_the_lists_name_is_allowed() -> None:
    options = {
        "image": "registry.example.com/own:1",
        "serviceAccountName": "trainer",
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "value": "b"}],
    }
    assert forbidden(PodOptions.model_validate(options), "pod", RULES) == ""
    assert forbidden(PodOptions(image="anything", service_account_name="anybody"), "pod", PodRules()) == ""


def test_a_volume_with_a_models_files_is_asked_about_as_well() -> None:
    assert "'image' is a kind of volume" in forbidden_volume(ModelVolume(image="x/y:1"), "v", RULES)
    allowed = replace(RULES, volume_kinds=("image",))
    assert forbidden_volume(ModelVolume(image="x/y:1"), "v", allowed).startswith("v.image: 'x/y:1' begins with none")
    assert "'persistentVolumeClaim'" in forbidden_volume(ModelVolume(claim_name="c"), "v", allowed)


def test_a_gang_with_a_forbidden_pod_never_begins() -> None:
    made = plan(situation(spec=spec(pod=HOST)))
    assert not made.apply
    assert reason(made) == "PodNotAllowed"
    assert condition(made, "Ready")["message"].startswith("spec.pod.volumes[0]: 'hostPath'")


def test_a_gang_that_runs_goes_on_when_the_lists_get_shorter() -> None:
    snapshot = situation({"attempts": 1}, job=job(), spec=spec(pod={"image": "evil:1"}), pod_rules=RULES)
    assert reason(plan(snapshot)) != "PodNotAllowed"


def test_a_new_model_with_a_forbidden_pod_is_no_model_and_what_serves_goes_on() -> None:
    body = {"model": {"uri": "uniform://discrete/2?observations=4"}, "serving": {"pod": {"image": "evil:1"}}}
    wanted = resolve(ModelDeploymentSpec.model_validate(body), None, "ns", RULES)
    assert wanted.model is None
    assert wanted.problem.startswith("spec.serving.pod.image: 'evil:1'")


def test_a_memory_service_with_a_forbidden_pod_makes_no_pods() -> None:
    for body in ({"storage": {"size": "1Gi"}, "pod": HOST}, {"storage": {"size": "1Gi", "pod": HOST}}):
        made = decide_memory(memories.situation(body))
        assert set(memories.kinds(made)) == {"ConfigMap"}
        assert memories.ready(made)["reason"] == "PodNotAllowed"


@pytest.mark.parametrize("at", ["training", "serving", "actors"])
def test_an_agent_says_which_of_its_pods_is_forbidden_and_starts_none(at: str) -> None:
    body = agents.spec()
    if at == "training":
        body["training"].setdefault("template", {})["pod"] = HOST
    elif at == "serving":
        body.setdefault("deployment", {}).setdefault("template", {})["serving"] = {"pod": HOST}
    else:
        body["task"]["environment"]["actors"] = {**body["task"]["environment"].get("actors", {}), "pod": HOST}
    made = decide_agent(agents.situation(900, spec=body))
    ready = next(item for item in made.status["conditions"] if item["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodNotAllowed")
    assert "hostPath" in ready["message"]
    assert agents.created(made) == []
    assert not [item for item in made.apply if item["kind"] == "Deployment" and at == "actors"]


BASE = {"sha256": "0" * 64}


@pytest.mark.parametrize(
    ("uri", "message"),
    [("oci://evil/base@sha256:1", "'image' is a kind of volume"), ("pvc://claim/x", "'persistentVolumeClaim' is")],
)
def test_a_base_model_is_a_volume_wherever_it_is_mounted(uri: str, message: str) -> None:
    model = {"base": {**BASE, "uri": uri}}
    rules = PodRules(volume_kinds=("emptyDir",))
    data = {"environment": "CartPole-v1", "languageModel": model}
    made = plan(situation(spec=spec(algorithm="rloo", data=data), pod_rules=rules))
    assert not made.apply
    assert reason(made) == "PodNotAllowed"
    assert f"spec.data.languageModel.base: {message}" in condition(made, "Ready")["message"]
    body = agents.spec()
    body["task"]["languageModel"] = model
    agent = replace(agents.situation(900, spec=body), defaults=AgentDefaults("serving", "http://data", pods=rules))
    ready = next(item for item in decide_agent(agent).status["conditions"] if item["type"] == "Ready")
    assert ready["reason"] == "PodNotAllowed"
    assert f"spec.task.languageModel.base: {message}" in ready["message"]


def test_an_agent_names_the_forbidden_image_of_its_model_server() -> None:
    body = agents.spec()
    language = {"server": {"image": "evil:1"}}
    body.setdefault("deployment", {}).setdefault("template", {})["serving"] = {"language": language}
    snapshot = replace(agents.situation(900, spec=body), defaults=AgentDefaults("serving", "http://data", pods=RULES))
    ready = next(item for item in decide_agent(snapshot).status["conditions"] if item["type"] == "Ready")
    assert ready["message"].startswith("spec.deployment.template.serving.language.server.image: 'evil:1'")


def test_actors_that_play_end_when_the_platform_takes_their_pod_back() -> None:
    body = agents.spec()
    body["task"]["environment"]["actors"] = {"replicas": 2, "pod": {"image": "evil:1"}}
    snapshot = agents.situation(0, spec=body, actors={"readyReplicas": 2})
    snapshot = replace(snapshot, defaults=AgentDefaults("serving", "http://data", pods=RULES))
    (playing,) = [item for item in decide_agent(snapshot).apply if item["kind"] == "Deployment"]
    assert playing["spec"]["replicas"] == 0
    assert "evil:1" not in str(playing)


def test_the_lists_come_from_the_chart_and_a_bad_one_stops_the_operator() -> None:
    configured = settings_of({"LEARNLOOP_POD_RULES": '{"images": ["a/"], "volumeKinds": []}'})
    assert configured.pod_rules == PodRules(images=("a/",), volume_kinds=())
    for wrong in ("[]", "{", '{"images": "a/"}', '{"images": [1]}', '{"image": ["a/"]}'):
        with pytest.raises(ConfigurationError, match="LEARNLOOP_POD_RULES"):
            settings_of({"LEARNLOOP_POD_RULES": wrong})


def test_an_arm_whose_deployment_is_gone_is_not_made_anew_with_a_forbidden_pod() -> None:
    uri = "uniform://discrete/2?observations=4"
    body = {"model": {"uri": uri}, "serving": {"pod": HOST}}
    wanted = ModelDeploymentSpec.model_validate(body)
    snapshot = Snapshot(
        now=NOW,
        object={
            "apiVersion": "a",
            "kind": "M",
            "metadata": {"name": "m", "namespace": "ns", "uid": "u", "generation": 1},
        },
        spec=wanted,
        before=ModelDeploymentStatus.model_validate({"stable": {"revision": "aaaaaaaa", "uri": uri}}),
        desired=resolve(wanted, None, "ns", PodRules()),
        defaults=Defaults("serving:1", "http://data"),
    )
    assert not [item for item in decide(snapshot).apply if item["kind"] == "Deployment"]
    free = replace(snapshot, defaults=replace(snapshot.defaults, pods=PodRules(volume_kinds=("hostPath",))))
    assert [item for item in decide(free).apply if item["kind"] == "Deployment"]
