"""The authors of pods get nothing that they lack: the chart's policy before a real API server."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from learnloop_api.kinds.base import PodOptions
from learnloop_api.names import API_VERSION

ROOT = Path(__file__).resolve().parents[3]
EVERYTHING = {"apiGroups": ["learnloop.dev"], "resources": ["*"], "verbs": ["*"]}
VALUES = {
    "affinity": {"nodeAffinity": {}},
    "annotations": {"prometheus.io/scrape": "true"},
    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "payroll", "key": "password"}}}],
    "image": "registry.example.com/mine:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "labels": {"app": "somebody-elses"},
    "nodeSelector": {"kubernetes.io/hostname": "control-plane"},
    "priorityClassName": "system-node-critical",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "others"}],
    "resources": {"limits": {"cpu": "1"}},
    "schedulerName": "own",
    "serviceAccountName": "admin",
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "volumes": [{"name": "v", "secret": {"secretName": "payroll"}}],
}
"""A value of every field of PodOptions."""
FREE = ("imagePullPolicy", "resources")
HOST = [{"name": "v", "hostPath": {"path": "/"}}]
TOKEN = [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]


def rendered(template: str) -> list[dict]:
    """A policy as the chart renders it."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "authors"]
    values = ["--set", "authors.askRights=always", "-s", template]
    text = subprocess.run([*command, *values], capture_output=True, text=True, timeout=240, check=True).stdout
    return list(yaml.load_all(text, yaml.CSafeLoader))


@contextmanager
def in_force(kube, template: str, label: str) -> Iterator[None]:
    """A policy of the chart for namespaces that ask for it, so that other tests go on as before."""
    objects = rendered(template)
    for binding in (item for item in objects if item["kind"].endswith("Binding")):
        binding["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": {label: "asked"}}}
    for item in objects:
        kube.apply(item)
    yield
    for item in objects:
        kube.delete(item)


@pytest.fixture(scope="module")
def policy(kube) -> Iterator[None]:
    with in_force(kube, "templates/authors/named-objects.yaml", "authors"):
        yield


def refusal(api: client.ApiClient, method: str, path: str, made: dict, *, dry: bool = True) -> str:
    """The refusal of a request by the API server; "" where it is taken."""
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        api.call_api(
            path,
            method,
            query_params=[("dryRun", "All")] if dry else [],
            body=made,
            auth_settings=["BearerToken"],
            header_params={"Content-Type": content},
            response_type="object",
        )
    except client.ApiException as error:
        return str(error.body)
    return ""


def grant(kube, namespace: str, user: str, *rules: dict) -> None:
    metadata = {"namespace": namespace, "name": user}
    rbac = "rbac.authorization.k8s.io"
    kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
    kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        }
    )


def body(kind: str, pod: dict, name: str) -> dict:
    model = {"uri": "uniform://discrete/2?observations=4"}
    training = {"algorithm": "ppo", "totalSteps": 1000, "data": {"environment": "CartPole-v1"}, "pod": pod}
    specs = {
        "TrainingJob": training,
        "ModelDeployment": {"model": model, "serving": {"pod": pod}},
        "MemoryService": {"storage": {"size": "1Gi"}, "pod": pod},
        "LearningAgent": {"task": {"external": {}}, "rewardPolicyRef": {"name": "r"}},
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": specs[kind]}


class People:
    """The result of a write of an object by somebody, without writing it."""

    def __init__(self, api_server: Path, namespace: str) -> None:
        self._api_server, self._namespace = api_server, namespace

    def refusal(self, user: str, kind: str, pod: dict, name: str = "x", **changes) -> str:
        """ "" where it is taken."""
        api = config.new_client_from_config(str(self._api_server))
        api.set_default_header("Impersonate-User", user)
        made = body(kind, pod, name)
        made["spec"] |= changes
        return refusal(api, "POST", f"/apis/{API_VERSION}/namespaces/{self._namespace}/{kind.lower()}s", made)

    def change(self, user: str, kind: str, before: dict, after: dict) -> str:
        """The refusal of a merge patch of spec by `user`, of an object that an administrator made."""
        made = body(kind, {}, f"made-{uuid.uuid4().hex[:8]}")
        made["metadata"]["namespace"] = self._namespace
        made["spec"] |= before
        path = f"/apis/{API_VERSION}/namespaces/{self._namespace}/{kind.lower()}s"
        admin = config.new_client_from_config(str(self._api_server))
        assert not refusal(admin, "POST", path, made, dry=False)
        api = config.new_client_from_config(str(self._api_server))
        api.set_default_header("Impersonate-User", user)
        return refusal(api, "PATCH", f"{path}/{made['metadata']['name']}", {"spec": after})


@pytest.fixture
def people(kube, api_server: Path, namespace: str, policy: None) -> People:
    """`author` writes objects, `maker` creates pods, too, `keeper` also reads Secrets, `router` creates routes."""
    kube.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"authors": "asked"}}}
    )
    grant(kube, namespace, "author", EVERYTHING)
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    grant(kube, namespace, "maker", EVERYTHING, pods)
    reads = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]}
    grant(kube, namespace, "keeper", EVERYTHING, pods, reads)
    crowd = People(api_server, namespace)
    routes = {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes"], "verbs": ["create"]}
    grant(kube, namespace, "router", EVERYTHING, routes)
    for _ in range(120):  # a policy is in force some seconds after it was written
        if "may be set by who may create pods" in crowd.refusal("author", "TrainingJob", {"image": "x"}):
            return crowd
        time.sleep(0.5)
    raise AssertionError("the policy never came into force: " + crowd.refusal("author", "TrainingJob", {"image": "x"}))


def test_every_field_of_a_pod_takes_the_right_to_create_pods(people: People) -> None:
    fields = {field.alias or name for name, field in PodOptions.model_fields.items()}
    assert fields == set(VALUES), "a new field of PodOptions: is it free?"
    for kind in ("TrainingJob", "ModelDeployment", "MemoryService"):
        for field, value in VALUES.items():
            message = people.refusal("author", kind, {field: value})
            assert (message == "") is (field in FREE), f"{kind} {field}: {message}"
            assert field in FREE or f"pod.{field}: may be set by who may create pods" in message
            assert not people.refusal("maker", kind, {field: value}), f"{kind} {field}"


def test_no_author_gets_the_nodes_files_or_a_token_of_the_api_server(people: People) -> None:
    for volumes in (HOST, TOKEN):
        assert "pod.volumes: a kind of volume" in people.refusal("maker", "TrainingJob", {"volumes": volumes})


def test_a_secret_is_named_by_who_may_get_it(people: People) -> None:
    ref = {"storage": None, "dsnSecretRef": {"name": "payroll", "key": "dsn"}}
    message = people.refusal("maker", "MemoryService", {}, **ref)
    assert "spec names Secret payroll: maker may not get it" in message


def test_a_suite_of_gates_takes_what_a_pod_takes(people: People) -> None:
    own = {"gates": {"suites": [{"name": "red-team", "image": "registry.example.com/mine:1"}]}}
    message = people.refusal("author", "ModelDeployment", {}, **own)
    assert "pod.image: may be set by who may create pods" in message
    assert not people.refusal("maker", "ModelDeployment", {}, **own)
    judge = {"url": "http://judge.ai.svc/v1", "model": "m", "apiKeySecretRef": {"name": "payroll"}}
    judged = {"gates": {"suites": [{"name": "toxicity", "builtin": "toxicity", "detector": judge}]}}
    assert "spec names Secret payroll" in people.refusal("maker", "ModelDeployment", {}, **judged)
    builtin = {"gates": {"suites": [{"name": "leak", "builtin": "leak"}]}}
    assert not people.refusal("author", "ModelDeployment", {}, **builtin)


def test_a_volume_with_an_embedders_files_takes_what_a_pods_volume_takes(people: People) -> None:
    claim = {"embedder": {"volume": {"claimName": "payroll"}}}
    message = people.refusal("author", "MemoryService", {}, **claim)
    assert "spec.embedder.volume: may be set by who may create pods" in message
    assert not people.refusal("maker", "MemoryService", {}, **claim)
    image = {"embedder": {"volume": {"image": "registry.example.com/model:1"}}}
    assert "spec.embedder.volume: a kind of volume" in people.refusal("maker", "MemoryService", {}, **image)


def test_a_route_at_a_gateway_takes_the_right_to_create_routes(people: People) -> None:
    shared = {"name": "edge", "namespace": "platform"}
    at, hosts = {"mode": "gateway", "gateway": shared}, {"hostnames": ["pay.example.com"]}
    for kind, nested in (("ModelDeployment", False), ("LearningAgent", True)):

        def spec(routing: dict, nested: bool = nested) -> dict:
            return {"deployment": {"template": {"routing": routing}}} if nested else {"routing": routing}

        for user in ("author", "maker"):
            assert "spec.routing.gateway, spec.routing.hostnames" in people.refusal(user, kind, {}, **spec(at))
            assert "may not; leave them out" in people.change(user, kind, spec(at), spec(at | hosts))
            every = spec({"hostnames": None})
            assert "may not; leave them out" in people.change(user, kind, spec(at | hosts), every), "all of the Gateway"
            assert not people.change(user, kind, spec(at | hosts), {"suspend": True})
        assert not people.refusal("router", kind, {}, **spec(at | hosts))
        assert not people.refusal("author", kind, {}, **spec({"mode": "service"}))


SHA = "0" * 64
KEY = {"name": "payroll", "key": "password"}
ELSEWHERE = {"kind": "openai", "url": "http://collector.evil.svc:8080", "model": "m"}


def spoken(server: dict, uri: str = "file:///models/small", **more) -> dict:
    """A ModelDeployment of a language model."""
    return {
        "model": {"uri": f"base://{SHA}", "sha256": SHA},
        "languageModel": {"base": {"uri": uri, "sha256": SHA}},
        "serving": {"language": {"server": server, **more}},
    }


def taught(server: dict, **more) -> dict:
    """The same as a LearningAgent's template."""
    task = {"external": {}, "languageModel": {"base": {"uri": "file:///models/small", "sha256": SHA}}}
    return {"task": task, "deployment": {"template": {"serving": {"language": {"server": server, **more}}}}}


@pytest.mark.parametrize("user", ["author", "maker"])
def test_a_bearer_token_is_named_by_who_may_get_its_secret(people: People, user: str) -> None:
    fallback = {"url": "http://collector.evil.svc", "model": "m", "keyRef": KEY}
    for made in (spoken, taught):
        kind = "ModelDeployment" if made is spoken else "LearningAgent"
        for spec in (made({**ELSEWHERE, "keyRef": KEY}), made(ELSEWHERE, fallback=fallback)):
            assert "spec names Secret payroll" in people.refusal(user, kind, {}, **spec)
            assert "spec names Secret payroll" in people.change(user, kind, made(ELSEWHERE), spec)
            assert not people.refusal("keeper", kind, {}, **spec)


def test_an_address_that_pods_call_takes_the_right_to_create_pods(people: People) -> None:
    """NetworkPolicies let pods out to it: a pod of one's own would reach it, too."""
    url, file = "http://database.team-b:5432", {"uri": "http://database.team-b:5432/m", "sha256": SHA}
    tracked, named = {"tracking": {"mlflow": {"trackingUri": url}}}, {"url": url, "model": "m"}
    recorded = {"algorithm": "bc", "hyperparameters": {"recording": f"{url}/log"}}
    arms = {"metric": {"type": "success"}, "arms": [{"name": "b", "weight": 10, **file}]}
    judged = {"suites": [{"name": "t", "builtin": "toxicity", "detector": named}]}
    cases = [
        ("TrainingJob", tracked),
        ("TrainingJob", recorded),
        ("LearningAgent", {"training": {"template": {"algorithm": "ppo", "totalSteps": 1000, **tracked}}}),
        ("ModelDeployment", {"model": file}),
        ("ModelDeployment", {"experiment": arms}),
        ("ModelDeployment", {"gates": judged}),
        ("LearningAgent", taught({}, fallback=named)),
        ("MemoryService", {"embedder": named}),
        ("MemoryService", {"engine": "weaviate", "weaviate": {"url": url}, "embedder": named}),
    ]
    for kind, spec in cases:
        if kind == "LearningAgent":
            spec.setdefault("task", {"external": {"trainingEnvironment": "CartPole-v1"}})
        assert "an address that pods call is chosen by who may create pods" in people.refusal(
            "author", kind, {}, **spec
        )
        assert "create pods" not in people.refusal("maker", kind, {}, **spec), spec
        assert not people.change("author", kind, spec, {"suspend": True}), spec
    stored = {"uri": f"learnloop://team/{SHA}", "sha256": SHA}
    assert not people.refusal("author", "ModelDeployment", {}, model=stored)


def test_a_model_servers_image_and_arguments_take_what_a_pod_takes(people: People) -> None:
    for server in ({"image": "registry.example.com/mine:1"}, {"arguments": ["--middleware=mine"]}):
        for made, kind in ((spoken, "ModelDeployment"), (taught, "LearningAgent")):
            message = people.refusal("author", kind, {}, **made(server))
            assert f"pod.{next(iter(server))}: may be set by who may create pods" in message
            assert not people.refusal("maker", kind, {}, **made(server))
    assert not people.refusal("author", "ModelDeployment", {}, **spoken({"resources": {"limits": {"cpu": "1"}}}))


def test_a_base_models_volume_takes_what_a_pods_volume_takes(people: People) -> None:
    claim, image = "pvc://payroll/folder", f"oci://registry.example.com/mine@sha256:{SHA}"
    for uri in (claim, image):
        base = {"base": {"uri": uri, "sha256": SHA}}
        data = {"data": {"environment": "CartPole-v1", "languageModel": base}}
        for kind, spec in (
            ("ModelDeployment", spoken({}, uri)),
            ("TrainingJob", {"algorithm": "rloo", **data}),
            ("LearningAgent", {"task": {"external": {}, "languageModel": base}}),
        ):
            message = people.refusal("author", kind, {}, **spec)
            assert "languageModel.base.uri: may be set by who may create pods" in message, kind
            allowed = people.refusal("maker", kind, {}, **spec)
            assert ("a kind of volume" in allowed) is (uri == image), allowed
    assert not people.refusal("author", "ModelDeployment", {}, **spoken({}))


def test_a_secret_stays_with_the_address_that_its_owner_gave_it(people: People) -> None:
    """F3: names alone were compared, and another address of the same Secret was accepted."""
    embedder = {"url": "https://models.example.org/v1", "model": "m", "apiKeySecretRef": KEY}
    weaviate = {"url": "https://vectors.example.org", "apiKeySecretRef": KEY}
    judge = {"url": "http://judge.ai.svc/v1", "model": "m", "apiKeySecretRef": {"name": "payroll"}}

    def suites(url: str) -> dict:
        return {"gates": {"suites": [{"name": "t", "builtin": "toxicity", "detector": {**judge, "url": url}}]}}

    other = {"url": "https://collector.evil.example"}
    cases = [
        ("MemoryService", {"embedder": embedder}, {"embedder": other}),
        ("MemoryService", {"embedder": embedder}, {"embedder": {"apiKeySecretRef": {"key": "other"}}}),
        ("MemoryService", {"distiller": embedder}, {"distiller": other}),
        ("MemoryService", {"engine": "weaviate", "weaviate": weaviate, "embedder": embedder}, {"weaviate": other}),
        (
            "MemoryService",
            {"engine": "weaviate", "weaviate": weaviate, "embedder": embedder},
            {"weaviate": {"grpc": "evil.example:1"}},
        ),
        ("ModelDeployment", suites(judge["url"]), suites("http://collector.evil.svc/v1")),
        ("ModelDeployment", spoken({**ELSEWHERE, "keyRef": KEY}), spoken({"url": "http://elsewhere.evil.svc"})),
        ("LearningAgent", taught({**ELSEWHERE, "keyRef": KEY}), taught({"url": "http://elsewhere.evil.svc"})),
    ]
    for kind, before, after in cases:
        for user in ("author", "maker"):
            assert "spec names Secret payroll" in people.change(user, kind, before, after), after
        assert not people.change("keeper", kind, before, after)
        assert not people.change("author", kind, before, {"suspend": True})


def test_a_pods_secrets_stay_with_the_server_and_the_code_that_they_were_given_to(people: People) -> None:
    pod = {"env": [{"name": "MLFLOW_TRACKING_TOKEN", "valueFrom": {"secretKeyRef": KEY}}]}
    trained = {"algorithm": "ppo", "totalSteps": 1000, "pod": pod}
    before = {"task": {"external": {"trainingEnvironment": "CartPole-v1"}}, "training": {"template": trained}}
    code = {"environmentConfigMap": {"name": "mine"}, "trainingEnvironment": "mine:Env"}
    tracked = {"tracking": {"mlflow": {"trackingUri": "https://collector.evil.example"}}}
    moved = {"training": None, "task": {"external": None, "environment": {"name": "X", "actors": {"pod": pod}}}}
    for after in ({"training": {"template": tracked}}, {"task": {"external": code}}, moved):
        assert "pod.env: may be set by who may create pods" in people.change("author", "LearningAgent", before, after)
        assert not people.change("keeper", "LearningAgent", before, after)
    assert not people.change("author", "LearningAgent", before, {"rewardPolicyRef": {"name": "other"}})


def test_a_config_map_is_mounted_for_who_may_get_it(people: People) -> None:
    private = {"environmentConfigMap": {"name": "private"}}
    suites = [{"name": "t", "builtin": "leak", "data": {"configMap": "private"}}]
    for kind, spec in (
        ("TrainingJob", {"data": {"environment": "mine:Env", **private}}),
        ("LearningAgent", {"task": {"environment": {"name": "mine:Env", **private}}}),
        ("LearningAgent", {"task": {"external": {"trainingEnvironment": "mine:Env", **private}}}),
        ("ModelDeployment", {"gates": {"suites": suites}}),
        ("LearningAgent", {"deployment": {"template": {"gates": {"suites": suites}}}}),
    ):
        assert "spec names ConfigMap private" in people.refusal("author", kind, {}, **spec)
        assert not people.refusal("keeper", kind, {}, **spec)


def test_objects_without_pod_options_are_taken_from_whoever_may_write_them(people: People) -> None:
    for kind in ("TrainingJob", "ModelDeployment", "MemoryService"):
        assert not people.refusal("author", kind, {})
