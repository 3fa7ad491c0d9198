"""The Jobs of gates: their rights, their view, and their settings."""

import json
from dataclasses import replace

import pytest

from learnloop_api import names
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.rollout.children.gate_jobs import gate_objects, gates_left
from learnloop_operator.rollout.decide_deployment import current, decide
from learnloop_operator.rollout.state.snapshot import Callers, Defaults
from testing.simulation.gated_cluster import GatedCluster
from testing.simulation.rollout_cluster import BETTER

OWN = {"name": "red-team", "image": "registry.example/garak:0.17", "args": ["--fast"], "timeout": "20m"}
DATA = "https://learnloop-data.learnloop-system.svc:8443"


def objects(suite: dict, **defaults) -> dict[str, dict]:
    """The operator's objects for a candidate at its gates, by kind, the first of each, and by name."""
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    cluster.spec["gates"] = {"suites": [suite]}
    cluster.wish(1, BETTER)
    configured = Defaults("serving:1", DATA, **defaults)
    plan = None
    for _ in range(8):
        snapshot = replace(cluster.snapshot(), defaults=configured)
        plan = decide(snapshot)
        objects_ = [item for item in reversed(plan.apply) if "gate" in item["metadata"]["name"]]
        if objects_:
            return {key: dict(item) for item in objects_ for key in (item["kind"], item["metadata"]["name"])}
        cluster.reconcile()
        cluster.tick(1)
    return {}


def test_a_suite_runs_restricted_and_without_any_token() -> None:
    manifests = objects({"name": "leak", "builtin": "leak"})
    assert {item["kind"] for item in manifests.values()} == {"ServiceAccount", "NetworkPolicy", "Job"}
    assert manifests["ServiceAccount"]["automountServiceAccountToken"] is False
    spec = manifests["Job"]["spec"]["template"]["spec"]
    (suite,), (deliver,) = spec["initContainers"], spec["containers"]
    for container in (suite, deliver):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "md-gates"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "learnloop-token" not in [mount["name"] for mount in suite["volumeMounts"]]
    assert "learnloop-token" in [mount["name"] for mount in deliver["volumeMounts"]]
    assert spec["restartPolicy"] == "Never"
    assert manifests["Job"]["spec"]["backoffLimit"] == 0
    assert manifests["Job"]["spec"]["activeDeadlineSeconds"] == 600


def test_a_suites_author_may_let_a_mesh_in() -> None:
    own = {
        "annotations": {"sidecar.istio.io/inject": "true", "x": "y"},
        "labels": {"team": "red", names.LABEL_COMPONENT: "x"},
    }
    meshed = objects({"name": "leak", "builtin": "leak", **own})["Job"]["spec"]["template"]["metadata"]
    assert meshed["annotations"]["sidecar.istio.io/inject"] == "true"
    assert meshed["annotations"]["x"] == "y"
    assert (meshed["labels"]["team"], meshed["labels"][names.LABEL_COMPONENT]) == ("red", "gate-suite")


def test_a_suite_has_a_callers_token_where_policy_servers_ask_for_one() -> None:
    manifests = objects({"name": "leak", "builtin": "leak"}, callers=Callers("token"))
    (suite,) = manifests["Job"]["spec"]["template"]["spec"]["initContainers"]
    assert "learnloop-token" in [mount["name"] for mount in suite["volumeMounts"]]
    made = json.dumps(manifests["Job"])
    assert '"audience": "gate.learnloop.dev"' in made
    assert '"audience": "learnloop"' not in made, "an agent's token opens all that its namespace has experienced"


def test_a_suite_calls_its_candidate_the_data_plane_and_the_dns_alone() -> None:
    made = objects({"name": "leak", "builtin": "leak"})
    policy = made["NetworkPolicy"]["spec"]
    assert (policy["ingress"], made["md-gates-leak"]["spec"]["egress"]) == ([], []), "an earlier run's is gone"
    servers, data, dns = policy["egress"]
    selector = servers["to"][0]["podSelector"]["matchLabels"]
    assert selector == {names.LABEL_DEPLOYMENT: "md", names.LABEL_COMPONENT: "policy-server"}
    system = data["to"][0]["namespaceSelector"]["matchLabels"]
    assert system == {"kubernetes.io/metadata.name": "learnloop-system"}
    assert [port["port"] for port in data["ports"]] == [8080, 8443]
    assert {port["port"] for port in dns["ports"]} == {53, 5353}


def test_an_image_of_ones_own_is_told_where_the_candidate_is_and_writes_one_file() -> None:
    job = objects(OWN)["Job"]
    (suite,) = job["spec"]["template"]["spec"]["initContainers"]
    environment = {item["name"]: item["value"] for item in suite["env"] if "value" in item}
    assert suite["image"] == OWN["image"]
    assert suite["args"] == ["--fast"]
    assert "command" not in suite
    assert environment["LEARNLOOP_GATE_REPORT"] == "/report/report.json"
    assert environment["OPENAI_BASE_URL"].endswith(".ns.svc:8080/v1")
    assert environment["LEARNLOOP_GATE_CANDIDATE"] in environment["LEARNLOOP_GATE_CANDIDATE_URL"]
    assert environment["LEARNLOOP_GATE_STABLE"] in environment["LEARNLOOP_GATE_STABLE_URL"]
    assert job["spec"]["activeDeadlineSeconds"] == 1200


def test_a_judges_key_comes_from_its_secret_and_its_address_by_a_rule_of_its_own() -> None:
    detector = {"url": "http://judge.ai.svc/v1", "model": "m", "apiKeySecretRef": {"name": "judge"}}
    to = [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}]
    manifests = objects({"name": "toxicity", "builtin": "toxicity", "detector": detector, "egress": to})
    assert manifests["md-gates-toxicity"]["spec"]["egress"] == to
    (suite,) = manifests["Job"]["spec"]["template"]["spec"]["initContainers"]
    key = next(item for item in suite["env"] if item["name"] == "LEARNLOOP_GATE_JUDGE_KEY")
    assert key["valueFrom"] == {"secretKeyRef": {"name": "judge", "key": "api-key"}}


def test_a_data_set_is_mounted_from_its_config_map() -> None:
    job = objects({"name": "refusal", "builtin": "refusal", "data": {"configMap": "prompts"}})["Job"]
    spec = job["spec"]["template"]["spec"]
    assert {"name": "learnloop-data", "configMap": {"name": "prompts"}} in spec["volumes"]
    mounts = spec["initContainers"][0]["volumeMounts"]
    assert {"name": "learnloop-data", "mountPath": "/data", "readOnly": True} in mounts


@pytest.mark.parametrize(("images", "made"), [(("registry.example/",), True), (("elsewhere/",), False)])
def test_an_image_that_the_platform_does_not_allow_is_not_run(images: tuple[str, ...], made: bool) -> None:
    assert bool(objects(OWN, pods=PodRules(images=images))) is made


def test_a_candidate_whose_suite_is_not_allowed_waits_and_says_why() -> None:
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    cluster.spec["gates"] = {"suites": [OWN]}
    cluster.wish(1, BETTER)
    cluster.run(3)
    configured = Defaults("serving:1", DATA, pods=PodRules(images=("elsewhere/",)))
    plan = decide(replace(cluster.snapshot(), defaults=configured))
    assert "begins with none of elsewhere/" in str(plan.status["verdict"])
    assert gate_objects(cluster.snapshot(), current(cluster.snapshot())) == ()


@pytest.mark.parametrize(
    ("suites", "left"),
    [
        ([{"name": "leak", "builtin": "leak"}], set()),
        ([{"name": "leaks", "builtin": "leak"}], {"NetworkPolicy md-gates-leak"}),
        (
            None,
            {"NetworkPolicy md-gates", "NetworkPolicy md-gates-leak", "ServiceAccount md-gates"},
        ),
    ],
)
def test_what_a_suite_needed_goes_when_the_spec_has_it_no_more(suites: list[dict] | None, left: set[str]) -> None:
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    cluster.spec["gates"] = {"suites": [{"name": "leak", "builtin": "leak"}]}
    cluster.wish(1, BETTER)
    made: list[dict] = []
    for _ in range(30):
        made += [dict(item) for item in cluster.reconcile().apply if "gates" in item["metadata"]["name"]]
        cluster.tick(1)
    assert cluster.jobs
    del cluster.spec["gates"]
    if suites is not None:
        cluster.spec["gates"] = {"suites": suites}
    snapshot = cluster.snapshot()
    assert gates_left(snapshot.spec, snapshot.before) is bool(left)
    children = {item["metadata"]["name"] + item["kind"]: item for item in made if item["kind"] != "Job"}.values()
    plan = decide(replace(snapshot, children=(*snapshot.children, *children)))
    assert {f"{ref.kind} {ref.name}" for ref in plan.delete} == left
