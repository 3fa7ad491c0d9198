"""Every object that the operator makes: each kind, each training backend, each shape of its pods.

The operator's own decisions make them, with TLS and with NetworkPolicies, as the chart's defaults have it. Its users
set no pod option that they need not set.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LearningAgentSpec, LearningAgentStatus
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_api.wire.reward import AgentStats
from learnloop_operator.agents.agent_snapshot import AgentDefaults, AgentSnapshot, MemoryHome, Policy
from learnloop_operator.agents.decide_agent import decide as decide_agent
from learnloop_operator.core.plan import KubeObject
from learnloop_operator.core.times import stamp
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.memory_services.decide_service import decide as decide_memory
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot, budgets_json
from learnloop_operator.rollout.decide_deployment import decide as decide_rollout
from learnloop_operator.rollout.state.snapshot import Callers, Defaults, Snapshot, resolve
from learnloop_operator.training.backends import BACKENDS, RAY_JOB, Backends
from learnloop_operator.training.ranks import RankDefaults
from learnloop_operator.training.run_snapshot import RunRequest
from testing.language.spoken import DIGEST, SPOKEN
from testing.simulation.gated_cluster import GatedCluster
from testing.simulation.rollout_cluster import BETTER
from testing.simulation.shadow_cluster import ShadowCluster

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMESPACE, SYSTEM = "team-a", "learnloop-system"
DATA_URL = f"https://learnloop-data.{SYSTEM}.svc:8080"
HOME = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}}
NETWORK = WorkloadNetwork((HOME,), api_server_ports=(443, 6443))
IMAGES = {part: f"registry.example.com/learnloop/{part}:0.1.0" for part in ("memory", "serving", "trainer")}
POSTGRES = "registry.example.com/pgvector/pgvector:0.8.6-pg17"
MODEL_SERVERS = {
    "vllm": "registry.example.com/vllm/vllm-openai:v0.11.0",
    "llama.cpp": "registry.example.com/ggml-org/llama.cpp:server-b6700",
}
MODEL = {"uri": "https://models.example.com/walker.onnx", "sha256": "ab" * 32}
LANGUAGE_MODEL = {"uri": f"base://{DIGEST}", "sha256": DIGEST}
ON_A_GPU = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"}}
QUEUED = {"queue": {"name": "team"}, "pod": {"resources": ON_A_GPU}}


def everything() -> dict[str, tuple[KubeObject, ...]]:
    """Case → the objects that the operator applies for it."""
    return dict(
        [
            *_training_jobs(),
            *_memory_services(),
            *_agents(),
            *_model_deployments(),
            ("routes", _routes()),
            ("gates", _gates()),
        ]
    )


def templates(tree: Any) -> Iterator[KubeObject]:
    """Every core/v1 PodTemplateSpec of what was made, wherever a kind keeps it."""
    if isinstance(tree, dict):
        spec = tree.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield tree
        for item in tree.values():
            yield from templates(item)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from templates(item)


def _object(kind: str, name: str) -> KubeObject:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": "0a1b", "generation": 1, "annotations": {}}
    metadata["creationTimestamp"] = stamp(NOW - timedelta(days=1))
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata}


def _training_jobs() -> Iterator[tuple[str, tuple[KubeObject, ...]]]:
    defaults = RankDefaults(
        image=IMAGES["trainer"], pull_policy="IfNotPresent", data_url=DATA_URL, runtime="learnloop", network=NETWORK
    )
    for backend in BACKENDS:
        gang = {"workers": 0 if backend.name == "job" else 2}
        numbers = {"algorithm": "ppo", "data": {"environment": "Own-v1", "environmentConfigMap": {"name": "own"}}}
        spoken = {"algorithm": "rloo", "data": {"environment": "ToolLookup-v1", "languageModel": SPOKEN}}
        for shape, algorithm in (("numbers", numbers), ("language", spoken | QUEUED)):
            if backend is RAY_JOB:
                program = {"image": "registry.example/own:1.0.0", "command": ["/train"], "resources": ON_A_GPU}
                algorithm = algorithm | numbers | {"algorithm": "custom", "pod": program}
            spec = TrainingJobSpec.model_validate({"totalSteps": 1000, **gang, **algorithm})
            request = RunRequest(
                job=_object("TrainingJob", "walker-1"),
                spec=spec,
                attempt=0,
                agent="walker",
                baseline_uri=None,
                baseline_sha256=None,
            )
            yield f"training/{backend.name}/{shape}", Backends(defaults=defaults).render(backend, request)


def _memory_services() -> Iterator[tuple[str, tuple[KubeObject, ...]]]:
    weaviate = {"url": "http://weaviate.vectors.svc:8080", "apiKeySecretRef": {"name": "vectors", "key": "api-key"}}
    own = {"dsnSecretRef": {"name": "db", "key": "dsn"}, "replicas": 2, "weaviate": weaviate}
    for shape, spec in (("own-database", own), ("embedded", {"storage": {"size": "1Gi"}})):
        snapshot = MemoryServiceSnapshot(
            now=NOW,
            object=_object("MemoryService", "memory"),
            spec=MemoryServiceSpec.model_validate(spec),
            images=(IMAGES["memory"], POSTGRES),
            pull_policy="IfNotPresent",
            budgets=budgets_json(NAMESPACE, {}),
            tls=True,
            network=NETWORK,
            fresh_password="p" * 32,
        )
        yield f"memory/{shape}", tuple(decide_memory(snapshot).apply)


def _agents() -> Iterator[tuple[str, tuple[KubeObject, ...]]]:
    actors = {"replicas": 2, "maxStepsPerSecond": 900}
    played = {"name": "Own-v1", "successReturn": 195, "environmentConfigMap": {"name": "own"}, "actors": actors}
    numbers = {"observations": 4, "actions": 2, "environment": played}
    spoken = {"external": {"trainingEnvironment": "ToolLookup-v1"}, "languageModel": SPOKEN}
    for shape, task, algorithm in (("numbers", numbers, "ppo"), ("language", spoken, "rloo")):
        spec = {
            "rewardPolicyRef": {"name": "solving"},
            "task": task,
            "memory": {"serviceRef": {"name": "memory"}},
            "training": {"triggers": {"episodes": 100}, "template": {"algorithm": algorithm, "totalSteps": 1000}},
        }
        serving = {"stable": {"revision": "11111111", "uri": "uniform://discrete/2?observations=4"}, "phase": "Healthy"}
        snapshot = AgentSnapshot(
            now=NOW,
            object=_object("LearningAgent", "walker"),
            spec=LearningAgentSpec.model_validate(spec),
            before=LearningAgentStatus.model_validate({"registered": "solving/r1"}),
            policy=Policy(True, "r1"),
            stats=AgentStats(agent="walker", trajectories=900, rewarded=900, recent_episodes=0, training_request=None),
            deployment=ModelDeploymentStatus.model_validate(serving),
            memory=MemoryHome(True, f"https://memory-memory.{NAMESPACE}.svc:8080"),
            defaults=AgentDefaults(IMAGES["serving"], DATA_URL, tls=(NAMESPACE,), network=NETWORK),
        )
        yield f"agent/{shape}", tuple(decide_agent(snapshot).apply)


def _model_deployments() -> Iterator[tuple[str, tuple[KubeObject, ...]]]:
    gateway = {"mode": "gateway", "gateway": {"name": "edge"}}
    server = {"resources": ON_A_GPU}
    for shape, model, more in (
        ("numbers", MODEL, {}),
        ("gateway", MODEL, {"routing": gateway}),
        ("vllm", LANGUAGE_MODEL, {"languageModel": SPOKEN, "serving": {"language": {"server": server}}}),
        (
            "llama.cpp",
            LANGUAGE_MODEL,
            {
                "languageModel": SPOKEN,
                "serving": {"language": {"server": server | {"kind": "llama.cpp", "file": "tiny.gguf"}}},
            },
        ),
    ):
        spec = ModelDeploymentSpec.model_validate({"model": model, **more})
        snapshot = Snapshot(
            now=NOW,
            object=_object("ModelDeployment", "walker"),
            spec=spec,
            before=ModelDeploymentStatus(),
            desired=resolve(spec, None),
            defaults=_defaults(),
            fresh_key="drawn",
        )
        yield f"deployment/{shape}", tuple(decide_rollout(snapshot).apply)


def _defaults() -> Defaults:
    return Defaults(
        IMAGES["serving"],
        DATA_URL,
        callers=Callers("token", (), (HOME,)),
        model_servers=MODEL_SERVERS,
    )


def _routes() -> tuple[KubeObject, ...]:
    """mode: gateway, as a rollout begins: an arm alone, copies for an arm in shadow, weights."""
    cluster = ShadowCluster().by("gateway")
    routes: list[KubeObject] = []

    def play(seconds: int) -> None:
        for _ in range(seconds):
            cluster.run(1)
            if cluster.route is not None and cluster.route not in routes:
                routes.append(cluster.route)

    play(8)
    cluster.wish(1, BETTER)
    play(40)
    return tuple(routes)


def _gates() -> tuple[KubeObject, ...]:
    """A candidate's suites, of a rollout that is played until they start."""
    cluster = GatedCluster()
    del cluster.spec["gates"]
    cluster.run(4)
    own = {"name": "red-team", "image": "registry.example.com/garak:0.17", "timeout": "20m"}
    judge = {"url": "http://judge.ai.svc/v1", "model": "m", "apiKeySecretRef": {"name": "judge"}}
    toxicity = {
        "name": "toxicity",
        "builtin": "toxicity",
        "detector": judge,
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}],
    }
    refusal = {"name": "refusal", "builtin": "refusal", "data": {"configMap": "prompts"}}
    cluster.spec["gates"] = {"suites": [own, toxicity, refusal]}
    cluster.wish(1, BETTER)
    gates: dict[tuple[str, str], KubeObject] = {}
    for _ in range(40):
        for item in decide_rollout(replace(cluster.snapshot(), defaults=_defaults())).apply:
            if "gate" in item["metadata"]["name"]:
                gates[item["kind"], item["metadata"]["name"]] = item
        cluster.reconcile()
        cluster.tick(1)
    return tuple(gates.values())
