"""Escalation by custom resources: hostile PodOptions, every field, through what the operator makes of them.

The admission policy is left out, as on a cluster that has none: here the operator itself must hold. Every pod that it
would apply is read again by rules of this file.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bench.adversary.finding import Finding
from learnloop_api import names
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.core.plan import KubeObject, Plan
from learnloop_operator.memory_services.decide_service import decide as decide_memory
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot, budgets_json
from learnloop_operator.rollout.decide_deployment import decide as decide_rollout
from learnloop_operator.rollout.state.snapshot import Defaults, Snapshot, resolve
from learnloop_operator.settings import Settings
from testing.training.training_builders import plan as training_plan, situation as training_world, spec as training_spec

RULES = PodRules(images=("registry.example.com/",), service_accounts=("trainer",))
OURS = "ours:1"
OURS_ALL = (OURS, Settings().trainer_image)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AUDIENCES = {names.TOKEN_AUDIENCE, names.RUN_AUDIENCE, names.GATE_AUDIENCE}
TOKEN = {"serviceAccountToken": {"path": "t", "audience": "https://kubernetes.default.svc"}}
FIELDS: dict[str, list[Any]] = {
    "image": ["evil/miner:1", "registry.example.com.evil/x:1", "registry.example.com/own:1"],
    "imagePullPolicy": ["Always"],
    "imagePullSecrets": [[{"name": "others"}]],
    "resources": [{"limits": {"cpu": "1"}}],
    "env": [
        [{"name": "A", "valueFrom": {"fileKeyRef": {"path": "p", "volumeName": "v", "key": "k"}}}],
        [{"name": name, "value": "http://evil"} for name in (names.ENV_DATA_URL, names.ENV_AUDIENCE)],
        [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    ],
    "nodeSelector": [{"node-role.kubernetes.io/control-plane": ""}],
    "tolerations": [[{"operator": "Exists"}]],
    "affinity": [{"nodeAffinity": {}}],
    "priorityClassName": ["system-node-critical"],
    "serviceAccountName": ["admin", "default", "trainer"],
    "volumes": [
        [{"name": "h", "hostPath": {"path": "/"}}],
        [{"name": "t", "projected": {"sources": [TOKEN]}}],
        [{"name": "n", "nfs": {"server": "10.0.0.1", "path": "/"}}],
        [{"name": "e", "emptyDir": {}, "hostPath": {"path": "/etc"}}],
        [{"name": "ok", "emptyDir": {}}],
    ],
    "volumeMounts": [[{"name": "h", "mountPath": "/var/run/secrets/learnloop.dev"}]],
    "schedulerName": ["evil"],
    "topologySpreadConstraints": [[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]],
    "resourceClaims": [[{"name": "gpu", "resourceClaimName": "others"}]],
    "labels": [{"app.kubernetes.io/component": "operator"}],
    "annotations": [{"prometheus.io/port": "22"}],
}


def attack(tries: int, seed: int) -> Finding:
    """So many hostile specs, each field of PodOptions among them."""
    rng, finding = random.Random(seed), Finding()
    made = 0
    for number in range(tries):
        # First each value alone, then several together.
        alone = [{field: value} for field, values in FIELDS.items() for value in values]
        options = alone[number] if number < len(alone) else _several(rng)
        for kind, plan in _plans(options):
            finding.tried += 1
            for pod in _pods(plan):
                made += 1
                finding.breaches += [f"{kind} with {options}: {flaw}" for flaw in flaws(pod)]
    finding.figures = {"pods": made, "fields": len(FIELDS)}
    return finding


def flaws(pod: KubeObject) -> Iterator[str]:
    """The properties of a pod that its author must not get."""
    for container in pod["containers"]:
        image = container["image"]
        if image not in OURS_ALL and not image.startswith("registry.example.com/"):
            yield f"image {image}"
        if container["securityContext"].get("allowPrivilegeEscalation") is not False:
            yield "may escalate its privileges"
        for variable in container["env"]:
            if "fileKeyRef" in variable.get("valueFrom", {}):
                yield f"env {variable['name']}"
            # A MemoryService calls no data plane; the audience of its tokens is ours.
            ours = {"postgres": "", "memory": names.ENV_AUDIENCE}.get(container["name"], names.ENV_DATA_URL)
            if variable["name"] == ours and "evil" in variable.get("value", ""):
                yield "our own variable is taken over"
    for volume in pod["volumes"]:
        for kind in volume.keys() & {"hostPath", "nfs"}:
            yield f"volume {kind}"
        for source in volume.get("projected", {}).get("sources", ()):
            if source.get("serviceAccountToken", {}).get("audience", names.TOKEN_AUDIENCE) not in AUDIENCES:
                yield "a token of another audience"
    if pod.get("serviceAccountName") in ("admin", "default"):
        yield f"ServiceAccount {pod['serviceAccountName']}"
    if pod["securityContext"].get("runAsNonRoot") is not True or pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}:
        yield "is not restricted"


def _several(rng: random.Random) -> dict[str, Any]:
    return {field: rng.choice(FIELDS[field]) for field in rng.sample(sorted(FIELDS), rng.randrange(2, 6))}


def _plans(options: dict[str, Any]) -> Iterator[tuple[str, Plan]]:
    yield "TrainingJob", training_plan(training_world(spec=training_spec(pod=options), pod_rules=RULES))
    yield "MemoryService", decide_memory(_memory({"storage": {"size": "1Gi"}, "pod": options}))
    yield "MemoryService.storage", decide_memory(_memory({"storage": {"size": "1Gi", "pod": options}}))
    yield "ModelDeployment", decide_rollout(_deployment(options))


def _memory(spec: dict[str, Any]) -> MemoryServiceSnapshot:
    return MemoryServiceSnapshot(
        now=NOW,
        object=_object("MemoryService"),
        spec=MemoryServiceSpec.model_validate(spec),
        images=(OURS, OURS),
        pull_policy="IfNotPresent",
        budgets=budgets_json("ns", {}),
        tls=True,
        pod_rules=RULES,
        fresh_password="p" * 32,
    )


def _deployment(options: dict[str, Any]) -> Snapshot:
    body = {"model": {"uri": "uniform://discrete/2?observations=4"}, "serving": {"pod": options}}
    spec = ModelDeploymentSpec.model_validate(body)
    return Snapshot(
        now=NOW,
        object=_object("ModelDeployment"),
        spec=spec,
        before=ModelDeploymentStatus(),
        desired=resolve(spec, None, "ns", RULES),
        defaults=Defaults(OURS, "http://data", pods=RULES),
    )


def _object(kind: str) -> KubeObject:
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "generation": 1}
    return {"apiVersion": "learnloop.dev/v1alpha1", "kind": kind, "metadata": metadata}


def _pods(plan: Plan) -> Iterator[KubeObject]:
    """Pod specs anywhere in what would be applied."""
    waiting: list[Any] = [item for item in plan.apply if item["kind"] != "ConfigMap"]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("containers"), list):
                yield {"volumes": [], **part}
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
