"""Manifests of an arm, a route and a table."""

from datetime import UTC, datetime

import pytest

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.learning_agent import LearningAgentStatus
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.reconcile.model_deployment import route_problem
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.state.snapshot import (
    Defaults,
    LiveArm,
    LiveRoute,
    LiveRouting,
    Snapshot,
    resolve,
    revision_of,
)

SHA = "ab" * 32
URI = "https://models.example/1.onnx"


def snapshot(spec: dict | None = None, status: dict | None = None, **more) -> Snapshot:
    parsed = ModelDeploymentSpec.model_validate({"model": {"uri": URI, "sha256": SHA}, **(spec or {})})
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "md", "namespace": "ns", "uid": "u", "generation": 1},
    }
    return Snapshot(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        object=body,
        spec=parsed,
        before=ModelDeploymentStatus.model_validate(status or {}),
        desired=resolve(parsed, None),
        defaults=Defaults("serving:1", "http://data:8080"),
        **more,
    )


def manifest(situation: Snapshot, kind: str, name: str = ""):
    return next(item for item in decide(situation).apply if item["kind"] == kind and name in item["metadata"]["name"])


def test_an_arms_pod_is_restricted_probed_scraped_and_knows_its_model() -> None:
    revision = revision_of(URI, SHA, PodOptions())
    deployment = manifest(snapshot(), "Deployment")
    assert deployment["metadata"]["name"] == f"md-{revision}"
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "8081"}
    assert template["metadata"]["labels"][names.LABEL_REVISION] == revision
    pod = template["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("md-policy", True)
    container = pod["containers"][0]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["LEARNLOOP_REVISION"] == revision
    assert env["LEARNLOOP_MODEL_SHA256"] == SHA
    assert env["LEARNLOOP_ROUTING_CONFIGMAP"] == "md-routing"
    assert env["LEARNLOOP_PROBES_PORT"] == "8081"
    assert container["ports"] == [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 8081}]
    for probe, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "metrics"}, "no flood takes it away"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_servers_may_read_exactly_one_config_map() -> None:
    role = manifest(snapshot(), "Role")
    assert role["rules"][0]["resourceNames"] == ["md-routing"]
    assert role["rules"][0]["verbs"] == ["watch"]
    own = {"serving": {"pod": {"serviceAccountName": "mine"}}}
    subjects = [item["name"] for item in manifest(snapshot(own), "RoleBinding")["subjects"]]
    assert subjects == ["md-policy", "mine"]


def test_the_key_of_the_episodes_is_mounted_by_every_arm_and_stands_in_no_other_manifest() -> None:
    plan = decide(snapshot(fresh_key="drawn"))
    [secret] = [item for item in plan.apply if item["kind"] == "Secret"]
    assert (secret["metadata"]["name"], secret["stringData"]) == ("md-episodes", {names.EPISODE_KEY: "drawn"})
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u"
    kinds = [item["kind"] for item in plan.apply]
    assert kinds.index("Secret") < kinds.index("Deployment"), "no pod waits for a key that is made after it"
    others = [item for item in plan.apply if item is not secret]
    assert "drawn" not in repr((others, plan.status, plan.events, snapshot(fresh_key="drawn")))
    pod = manifest(snapshot(), "Deployment")["spec"]["template"]["spec"]
    [volume] = [item for item in pod["volumes"] if "secret" in item]
    assert (volume["secret"]["secretName"], volume["secret"]["defaultMode"]) == ("md-episodes", 0o440)
    [mount] = [item for item in pod["containers"][0]["volumeMounts"] if item["name"] == volume["name"]]
    env = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}
    assert env["LEARNLOOP_EPISODE_KEY_FILE"] == f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"


@pytest.mark.parametrize(
    ("arm", "looked_for"),
    [
        (None, True),
        (LiveArm(ready=1, replicas=1), False),
        (LiveArm(ready=0, replicas=1), False),
        (LiveArm(ready=0, replicas=1, message='MountVolume.SetUp failed: secret "md-episodes" not found'), True),
    ],
    ids=["new", "at rest", "starting", "without its Secret"],
)
def test_the_key_of_the_episodes_is_looked_for_only_where_it_may_be_missing(arm, looked_for):
    revision = revision_of(URI, SHA, PodOptions())
    status = {"stable": {"revision": revision, "uri": URI, "sha256": SHA, "readyReplicas": 1}}
    plan = decide(snapshot(None, status, arms={revision: arm} if arm else {}))
    assert any(item["kind"] == "Secret" for item in plan.apply) == looked_for


def test_pod_options_are_part_of_the_revision_and_replicas_are_not() -> None:
    plain, env = snapshot(), snapshot({"serving": {"pod": {"env": [{"name": "A", "value": "1"}]}}})
    more = snapshot({"serving": {"replicas": 5}})
    assert plain.desired.model.revision != env.desired.model.revision
    assert more.desired == plain.desired


def test_an_old_arm_keeps_the_pod_options_it_was_made_with() -> None:
    revision = revision_of(URI, SHA, PodOptions())
    stable = {"revision": revision, "uri": URI, "sha256": SHA}
    situation = snapshot(
        {"serving": {"pod": {"priorityClassName": "high"}}},
        {"stable": stable},
        arms={revision: LiveArm(ready=1, pod=PodOptions())},
    )
    old = manifest(situation, "Deployment", revision)
    assert "priorityClassName" not in old["spec"]["template"]["spec"]


GATEWAY = {"routing": {"mode": "gateway", "gateway": {"name": "gw"}, "hostnames": ["a.example"]}}


def test_in_gateway_mode_the_route_has_weights_and_arm_headers() -> None:
    revision = revision_of(URI, SHA, PodOptions())
    status = {
        "stable": {"revision": "11111111", "uri": "uniform://discrete/2?observations=4", "readyReplicas": 1},
        "canary": {"revision": revision, "uri": URI, "sha256": SHA, "readyReplicas": 1},
        "step": 0,
        "weight": 10,
        "rolloutStartedAt": "2025-12-31T23:59:00Z",
        "stepStartedAt": "2025-12-31T23:59:30Z",
    }
    situation = snapshot(GATEWAY, status, arms={"11111111": LiveArm(ready=1), revision: LiveArm(ready=1)})
    rules = manifest(situation, "HTTPRoute")["spec"]["rules"]
    weights = {item["name"]: item["weight"] for item in rules[-1]["backendRefs"]}
    assert weights == {"md-11111111": 90, f"md-{revision}": 10}
    assert rules[1]["matches"][0]["headers"] == [{"type": "Exact", "name": "x-learnloop-arm", "value": revision}]
    past = manifest(situation, "Service", "md")
    assert past["spec"]["selector"][names.LABEL_REVISION] == "11111111"
    table = read(manifest(situation, "ConfigMap")).table
    assert table.mode == "gateway"


def test_leaving_gateway_mode_removes_the_route_before_the_table_forgets_it() -> None:
    gone = decide(snapshot(routing=LiveRouting(route=LiveRoute()))).delete
    assert [(ref.kind, ref.name) for ref in gone] == [("HTTPRoute", "md")]


def test_an_unresolved_model_holds_and_names_the_field() -> None:
    situation = snapshot({"model": {"learningAgentRef": {"name": "absent"}}})
    plan = decide(situation)
    assert plan.status["phase"] == "Pending"
    assert plan.status["verdict"].startswith("spec.model.learningAgentRef: no LearningAgent 'absent'")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"lastState": {"terminated": {"exitCode": 1, "message": "sha256 mismatch"}}}, "sha256 mismatch"),
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            "ImagePullBackOff: no such",
        ),
        ({"state": {"terminated": {"exitCode": 0, "message": "bye"}}}, ""),
    ],
)
def test_a_pods_own_words_are_the_arms_message(state: dict, message: str) -> None:
    mark = {"labels": {names.LABEL_REVISION: "aaaaaaaa"}}
    pod = {"metadata": mark, "status": {"containerStatuses": [{"restartCount": 4, **state}]}}
    states = arms([{"metadata": mark, "status": {}}], [pod])["aaaaaaaa"]
    assert states.message.startswith(message)
    assert (bool(states.message), states.restarts, states.ready) == (bool(message), 4, 0)


def test_a_model_the_pods_refuse_is_rolled_back_with_their_sentence() -> None:
    revision = revision_of(URI, SHA, PodOptions())
    status = {
        "stable": {"revision": "11111111", "uri": "https://m/0", "sha256": SHA, "readyReplicas": 1},
        "canary": {"revision": revision, "uri": URI, "sha256": SHA},
        "rolloutStartedAt": "2025-12-31T23:59:30Z",
    }
    refused = LiveArm(restarts=3, message="model.onnx has sha256 00, wanted ab: fix spec.model.sha256")
    plan = decide(snapshot(None, status, arms={"11111111": LiveArm(ready=1), revision: refused}))
    block = plan.status["blockedRevision"]
    assert block["reason"] == "ModelRefused"
    assert "fix spec.model.sha256" in block["message"]


def test_a_route_nobody_serves_is_told_in_the_controllers_words() -> None:
    def parent(accepted: str, resolved: str) -> dict:
        return {
            "conditions": [
                {"type": "Accepted", "status": accepted, "reason": "NoMatchingParent", "message": "no listener"},
                {"type": "ResolvedRefs", "status": resolved, "reason": "BackendNotFound", "message": "no service"},
            ]
        }

    assert route_problem(None) == ""
    assert "no Gateway controller" in route_problem({})
    assert route_problem({"status": {"parents": [parent("False", "True")]}}) == "NoMatchingParent: no listener"
    assert route_problem({"status": {"parents": [parent("True", "False"), parent("True", "True")]}}) == ""


@pytest.mark.parametrize("agent", [None, "status.model.uri"])
def test_an_artifact_of_another_namespace_is_refused_with_the_field_and_the_fix(agent: str | None) -> None:
    uri = f"learnloop://theirs/{SHA}"
    source = {"learningAgentRef": {"name": "la"}} if agent else {"uri": uri, "sha256": SHA}
    spec = ModelDeploymentSpec.model_validate({"model": source})
    status = LearningAgentStatus.model_validate({"model": {"uri": uri, "sha256": SHA, "source": "la-1"}})
    artifact = resolve(spec, status if agent else None, "ours")
    assert artifact.model is None
    assert (agent or "spec.model.uri") in artifact.problem
    assert uri in artifact.problem
    assert "name an artifact of ours" in artifact.problem
    assert resolve(spec, status if agent else None, "theirs").model is not None


def test_an_endless_annotation_is_obeyed_once_and_never_breaks_the_status() -> None:
    situation = snapshot(status={"stable": {"revision": "11111111", "uri": URI, "sha256": SHA}})
    situation.object["metadata"]["annotations"] = {names.ANNOTATION_RETRY: "x" * 200_000}
    once = decide(situation)
    assert [item["value"] for item in once.status["decisions"]] == ["x" * 1024]
    again = snapshot(status=dict(once.status))
    again.object["metadata"]["annotations"] = {names.ANNOTATION_RETRY: "x" * 200_000}
    assert decide(again).status["verdict"] != once.status["verdict"]


def test_pods_that_cannot_start_are_looked_at_again_without_any_event() -> None:
    assert decide(snapshot()).requeue_after == 5.0
    gone = snapshot(status={"stable": {"revision": "11111111", "uri": URI, "sha256": SHA}})
    assert decide(gone).requeue_after is not None


def test_pods_that_never_start_cost_a_look_a_minute_and_a_canarys_never_one_after_its_deadline() -> None:
    hour = "2025-12-31T23:00:00Z"
    first = revision_of(URI, SHA, PodOptions())
    for arm, seconds in (
        (LiveArm(replicas=1, unready_since=hour), 60.0),
        (LiveArm(replicas=1, unready_since="2025-12-31T23:59:30Z"), 5.0),
        (LiveArm(replicas=0, unready_since="2025-12-31T23:59:30Z"), 60.0),
    ):
        assert decide(snapshot(arms={first: arm})).requeue_after == seconds, "without pods the Deployment tells all"
    lost = {"stable": {"revision": first, "uri": URI, "sha256": SHA}}
    assert decide(snapshot(status=lost, arms={first: LiveArm(replicas=1, unready_since=hour)})).requeue_after == 60.0
    gone = {"stable": {"revision": "11111111", "uri": URI, "sha256": SHA}}
    begun = {"canary": {"revision": first, "uri": URI, "sha256": SHA}, "rolloutStartedAt": "2025-12-31T23:50:20Z"}
    entries = {"11111111": LiveArm(ready=1, replicas=1), first: LiveArm(replicas=1, unready_since=hour)}
    starting = decide(snapshot({"rollout": {"progressDeadlineSeconds": 600}}, {**gone, **begun}, arms=entries))
    assert starting.requeue_after == 20.0
