"""MemoryService: credentials once, a clear sentence for every missing thing, no secret anywhere."""

import json
from datetime import UTC, datetime

from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.core.plan import Plan
from learnloop_operator.memory_services.decide_service import decide
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot, budgets_json

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PASSWORD = "correct-horse"


def situation(spec: dict | None = None, **changes) -> MemoryServiceSnapshot:
    body = {
        "apiVersion": "learnloop.dev/v1alpha1",
        "kind": "MemoryService",
        "metadata": {"name": "mem", "namespace": "ns", "uid": "u", "generation": 1},
        "status": changes.pop("status", {}),
    }
    chosen = {
        "now": NOW,
        "object": body,
        "spec": MemoryServiceSpec.model_validate(spec or {"storage": {"size": "1Gi"}}),
        "images": ("memory:1", "postgres:17"),
        "pull_policy": "IfNotPresent",
        "budgets": budgets_json("ns", {}),
        "fresh_password": PASSWORD,
    }
    return MemoryServiceSnapshot(**(chosen | changes))


def kinds(plan: Plan) -> list[str]:
    return [manifest["kind"] for manifest in plan.apply]


def ready(plan: Plan) -> dict:
    return next(item for item in plan.status["conditions"] if item["type"] == "Ready")


def deployment(ready_replicas: int = 1) -> dict:
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready_replicas},
    }


def test_with_storage_it_runs_postgresql_with_credentials_made_once() -> None:
    first = decide(situation())
    database = ["Secret", "Service", "StatefulSet"]
    assert kinds(first) == ["ConfigMap", "ServiceAccount", *database, "Service", "Deployment"]
    later = decide(situation(database={"metadata": {}}, server=deployment()))
    assert "Secret" not in kinds(later)


def test_the_password_is_in_the_secret_and_nowhere_else() -> None:
    plan = decide(situation())
    others = [manifest for manifest in plan.apply if manifest["kind"] != "Secret"]
    assert PASSWORD not in json.dumps([others, plan.status])
    assert PASSWORD not in " ".join(notice.message for notice in plan.events)


def test_lost_credentials_are_never_silently_replaced() -> None:
    message = (
        'pod mem-postgres-0 waits: MountVolume.SetUp failed for volume "credentials" : secret "mem-postgres" not found'
    )
    plan = decide(situation(database={"metadata": {}}, server=deployment(0), complaint=message))
    assert "mem-postgres" not in {item["metadata"]["name"] for item in plan.apply if item["kind"] == "Secret"}
    assert message in ready(plan)["message"]


def test_a_secret_that_pods_wait_for_is_named_in_the_words_of_the_kubelet() -> None:
    spec = {"dsnSecretRef": {"name": "db", "key": "dsn"}}
    message = 'pod mem-memory-1 waits: CreateContainerConfigError: secret "db" not found'
    plan = decide(situation(spec, server=deployment(0), complaint=message))
    assert ready(plan)["message"].endswith(f"{message}: create this Secret, or correct spec.dsnSecretRef")
    children = ["ConfigMap", "ServiceAccount", "Service", "Deployment"]
    assert kinds(plan) == children, "pods start by themselves when it is there"
    assert plan.requeue_after is not None


def test_an_own_database_needs_only_the_service() -> None:
    plan = decide(situation({"dsnSecretRef": {"name": "db", "key": "dsn"}}, server=deployment()))
    assert kinds(plan) == ["ConfigMap", "ServiceAccount", "Service", "Deployment"]
    template = plan.apply[-1]["spec"]["template"]
    env = {item["name"]: item for item in template["spec"]["containers"][0]["env"]}
    assert env["LEARNLOOP_DSN"]["valueFrom"] == {"secretKeyRef": {"name": "db", "key": "dsn"}}


def test_its_pods_have_an_account_of_their_own_and_what_a_scheduler_reckons_with() -> None:
    for item in decide(situation()).apply:
        if item["kind"] == "ServiceAccount":
            assert (item["metadata"]["name"], item["automountServiceAccountToken"]) == ("mem-memory", False)
        if item["kind"] in ("Deployment", "StatefulSet"):
            (container,) = item["spec"]["template"]["spec"]["containers"]
            assert {"cpu", "memory"} == set(container["resources"]["requests"])
    own = {"serviceAccountName": "mine", "resources": {"requests": {"memory": "2Gi"}}}
    made = decide(situation({"storage": {"size": "1Gi", "pod": {"serviceAccountName": "db"}}, "pod": own})).apply
    database, pod = (it["spec"]["template"]["spec"] for it in made if it["kind"] in ("Deployment", "StatefulSet"))
    assert pod["serviceAccountName"] == "mine"
    assert database["serviceAccount"] == database["serviceAccountName"] == "db", "both names go when it is left out"
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "50m", "memory": "2Gi"}}, "limits are theirs alone"


def test_weaviate_is_passed_on_and_its_key_stays_in_the_secret() -> None:
    weaviate = {"url": "https://w.example:443", "grpc": "g.example:443", "apiKeySecretRef": {"name": "w", "key": "k"}}
    spec = {"storage": {}, "engine": "weaviate", "weaviate": weaviate}
    plan = decide(situation(spec))
    template = plan.apply[-1]["spec"]["template"]
    env = {item["name"]: item for item in template["spec"]["containers"][0]["env"]}
    assert env["LEARNLOOP_WEAVIATE_URL"]["value"] == "https://w.example:443"
    assert env["LEARNLOOP_WEAVIATE_GRPC"]["value"] == "g.example:443"
    assert env["LEARNLOOP_WEAVIATE_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "w", "key": "k"}}


def test_it_takes_tokens_for_itself_alone() -> None:
    containers = decide(situation()).apply[-1]["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in containers[0]["env"]}
    assert env["LEARNLOOP_AUDIENCE"] == "memory.learnloop.dev/ns/mem"


def test_ready_pods_make_it_ready_with_an_address() -> None:
    plan = decide(situation(database={"metadata": {}}, server=deployment()))
    assert ready(plan)["status"] == "True"
    assert plan.status["url"] == "http://mem-memory.ns.svc:8080"
    assert plan.requeue_after is None


def test_until_then_the_pods_own_complaint_is_shown() -> None:
    plan = decide(
        situation(database={"metadata": {}}, server=deployment(0), complaint="pod x exited with 1: no vector extension")
    )
    assert "no vector extension" in ready(plan)["message"]


def test_suspending_scales_everything_to_zero_and_keeps_the_volume() -> None:
    plan = decide(situation({"storage": {}, "suspend": True}, database={"metadata": {}}))
    scaled = {item["kind"]: item["spec"]["replicas"] for item in plan.apply if "replicas" in item.get("spec", {})}
    assert scaled == {"StatefulSet": 0, "Deployment": 0}
    stateful = next(item for item in plan.apply if item["kind"] == "StatefulSet")
    assert stateful["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"


def test_the_limit_of_its_agents_goes_to_the_pods() -> None:
    def limits(spec: dict) -> dict[str, str]:
        [made] = [item for item in decide(situation({"storage": {}, **spec})).apply if item["kind"] == "Deployment"]
        env = made["spec"]["template"]["spec"]["containers"][0]["env"]
        return {item["name"]: item["value"] for item in env if "PER_AGENT" in item["name"]}

    assert limits({}) == {}
    assert limits({"agentBudget": {"memories": 500, "size": "2Mi"}}) == {
        "LEARNLOOP_MEMORIES_PER_AGENT": "500",
        "LEARNLOOP_MEMORY_BYTES_PER_AGENT": str(2 * 2**20),
    }


def test_how_often_it_consolidates_goes_to_the_pods() -> None:
    def seconds(spec: dict) -> str:
        [made] = [item for item in decide(situation({"storage": {}, **spec})).apply if item["kind"] == "Deployment"]
        env = made["spec"]["template"]["spec"]["containers"][0]["env"]
        return next(str(item["value"]) for item in env if item["name"] == "LEARNLOOP_CONSOLIDATE_SECONDS")

    assert seconds({}) == "3600"
    assert seconds({"consolidateEverySeconds": 0}) == "0"


def server(spec: dict, **changes) -> tuple[dict, dict, dict]:
    """Environment, pod and annotations of the service's own pods."""
    plan = decide(situation({"storage": {}} | spec, **changes))
    template = next(item for item in plan.apply if item["kind"] == "Deployment")["spec"]["template"]
    [container] = template["spec"]["containers"]
    env = {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}
    return env, template["spec"], template["metadata"]["annotations"]


def test_an_embedders_and_a_distillers_keys_come_from_secrets() -> None:
    key = {"name": "models", "key": "token"}
    embedder = {"url": "https://e.example/v1", "model": "small", "dimensions": 512, "apiKeySecretRef": key}
    distiller = {"url": "https://d.example/v1", "model": "large", "apiKeySecretRef": key, "timeoutSeconds": 20}
    spec = {"embedder": embedder, "distiller": distiller, "language": "german"}
    env, _, _ = server(spec)
    assert env["LEARNLOOP_EMBEDDER"] == "https://e.example/v1#small"
    assert env["LEARNLOOP_EMBEDDER_DIMENSIONS"] == "512"
    assert env["LEARNLOOP_DISTILLER"] == "https://d.example/v1#large"
    assert env["LEARNLOOP_DISTILLER_SECONDS"] == "20"
    assert env["LEARNLOOP_LANGUAGE"] == "german"
    assert env["LEARNLOOP_EMBEDDER_KEY"] == env["LEARNLOOP_DISTILLER_KEY"] == {"secretKeyRef": key}
    plain, _, _ = server({})
    assert not {name for name in plain if "EMBEDDER" in name or "DISTILLER" in name or "LANGUAGE" in name}


def test_no_field_of_a_spec_names_another_variable_of_the_pod() -> None:
    """The kubelet puts a variable in place of `$(NAME)`; this one would hand the database's login to a server."""
    env, _, _ = server({"embedder": {"url": "https://e.example/v1", "model": "$(LEARNLOOP_DSN)", "dimensions": 512}})
    assert env["LEARNLOOP_EMBEDDER"] == "https://e.example/v1#$$(LEARNLOOP_DSN)"


def test_a_models_files_come_by_a_claim_or_an_image_and_are_mounted_to_be_read() -> None:
    env, pod, _ = server({"embedder": {"volume": {"claimName": "minilm", "path": "int8"}}})
    assert env["LEARNLOOP_EMBEDDER"] == "onnx:///models/embedder/int8"
    assert {"name": "learnloop-embedder", "persistentVolumeClaim": {"claimName": "minilm", "readOnly": True}} in pod[
        "volumes"
    ]
    mount = {"name": "learnloop-embedder", "mountPath": "/models/embedder", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    rules = PodRules(volume_kinds=("image",))
    env, pod, _ = server({"embedder": {"volume": {"image": "registry.example/potion:8m"}}}, pod_rules=rules)
    assert env["LEARNLOOP_EMBEDDER"] == "onnx:///models/embedder"
    assert {"name": "learnloop-embedder", "image": {"reference": "registry.example/potion:8m"}} in pod["volumes"]
