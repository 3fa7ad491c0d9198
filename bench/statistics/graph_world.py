"""The world that `bench.statistics.exploration` walks: what survives a pass, and what a look may see in it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.core.rollout.observe import arms
from learnloop_operator.core.rollout.revision import resolve
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.rollout.world import Defaults, Snapshot

ALPHA, MOST_ERRORS, MIN_EPISODES, RATIO_EPISODES = 0.01, 0.05, 20, 5
TORN = {"canary torn": "canary", "stable torn": "stable"}
"""Prometheus has lost the samples of that arm from when the rollout began."""
SEEN = (
    *("away", "no canary", "no stable", "nan", "quiet", "reset", "stale", "skewed", *TORN),
    *("equal", "bad", "errors", "few"),
)
_ENOUGH = (150.0, 0.9)
FRESH = {"equal": _ENOUGH, "bad": (150.0, 0.6), "errors": _ENOUGH, "few": (3.0, 0.9), **dict.fromkeys(TORN, _ENOUGH)}
MUTE = ("away", "no canary", "no stable", "nan", "stale", "skewed", *TORN)
BLIND = ("away", "no canary", "nan")
"""Nothing is known of the canary, so no check can speak against it."""
DEADLINE = 60
PATIENCE = 400
"""Looks in a world that works, after which a rollout ought to have ended."""
SEQUENTIAL = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.1}
THRESHOLD = {"name": "success", "type": "success", "minRatio": 0.9}
ERRORS = {"name": "errors", "type": "errors", "max": MOST_ERRORS}
DRY_RUN = {"name": "dry", "type": "success", "min": 0.99, "dryRun": True}
"""Every canary here falls below its bound, and it must change nothing."""
WEIGHTS = (10, 25, 50, 100)


Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """What one pass leaves behind. Counters: episodes and successes of the canary, then of stable."""

    now: datetime
    status: Mapping[str, Any] = field(default_factory=dict)
    config_map: Mapping[str, Any] | None = None
    deployments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counters: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


def success_ratio(status: Mapping[str, Any]) -> float:
    """Of the canary to stable at the same times, as the status has it; 0 where nothing was compared."""
    _, total, beside, *_ = _of_success(status).get("compared") or (0.0,) * 6
    return total / beside if beside else 0.0


def log_evidence(status: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of "worse" and "fine", or of "below" and "above" a ratio."""
    found = _of_success(status)
    if "logWorse" in found:
        return found["logWorse"], found["logFine"]
    return tuple(found["compared"][-2:]) if found.get("compared") else None


def comparing(status: Mapping[str, Any]) -> tuple[object, ...]:
    """Whether a ratio's next look is compared with one before, and whether it has compared enough."""
    found = _of_success(status)
    return "seen" in found, found.get("atWeight"), (found.get("compared") or [0.0])[0] >= RATIO_EPISODES


def _of_success(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((item for item in status.get("evidence") or () if item["name"] == "success"), {})


def held_for(node: Node) -> str:
    """Whether data is available, and why not where it has been missing for the deadline."""
    found = next((item for item in node.status.get("conditions", ()) if item["type"] == "DataAvailable"), None)
    if found is None or found["status"] == "True" or not node.status.get("canary"):
        return ""
    since = (node.now - datetime.fromisoformat(found["lastTransitionTime"])).total_seconds()
    return f"{found['status']} {found['reason'] if since >= DEADLINE else ''}"


def step_of(status: Mapping[str, Any]) -> int:
    return int(status.get("step", -1))


def after_time(node: Node, seen: str, ready: bool, seconds: int) -> Node:
    weight = int(node.status.get("weight") or 0)
    n, rate = FRESH.get(seen, (0.0, 0.0))
    canary = n if weight else 0.0
    stable = 3.0 * n if weight < 100 else 0.0
    a, b, c, d = node.counters
    counters = (a + canary, b + canary * rate, c + stable, d + stable * 0.9)
    if seen == "reset":
        counters = (0.0, 0.0, 0.0, 0.0)
    running = {"replicas": 1, "readyReplicas": int(ready)}
    pods = {name: {**item, "status": running} for name, item in node.deployments.items()}
    stable_name = f"md-{node.status['stable']['revision']}" if node.status.get("stable") else ""
    if stable_name in pods:
        pods[stable_name] = {**pods[stable_name], "status": {"replicas": 1, "readyReplicas": 1}}
    return replace(node, now=node.now + timedelta(seconds=seconds), counters=counters, deployments=pods)


def evidence_of(node: Node, seen: str) -> Evidence:
    if seen == "away":
        return Evidence(unavailable="away")
    n, good, m, fine = node.counters
    errors = 0.2 if seen == "errors" else 0.0
    rate = math.nan if seen == "nan" else good / n if n else None
    lately = 0 if seen in ("quiet", "nan") else None
    scraped = node.now - timedelta(seconds=600 if seen == "stale" else 0)
    canary = ArmEvidence(int(n), None, rate, math.nan if seen == "nan" else errors if n else None, seen_at=scraped)
    canary = replace(canary, lately=lately)
    stable = ArmEvidence(int(m), None, fine / m if m else None, 0.0 if m else None, seen_at=scraped)
    known = {"no canary": {"stable": stable}, "no stable": {"canary": canary}}
    roles = known.get(seen, {"canary": canary, "stable": stable})
    roles = {role: replace(arm, gap=int(TORN.get(seen) == role)) for role, arm in roles.items()}
    clock = node.now + timedelta(hours=1) if seen == "skewed" else None
    known_arms = {node.status[role]["revision"]: arm for role, arm in roles.items() if node.status.get(role)}
    return Evidence(known_arms, clock=clock)


def snapshot_of(spec: ModelDeploymentSpec, node: Node, seen: str) -> Snapshot:
    metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1}
    head = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
    return Snapshot(
        now=node.now,
        object={**head, "metadata": metadata, "status": node.status},
        spec=spec,
        before=ModelDeploymentStatus.model_validate(node.status),
        desired=resolve(spec, None),
        arms=arms(node.deployments.values(), []),
        routing=read(dict(node.config_map) if node.config_map else None),
        defaults=Defaults("image", "http://data"),
        evidence=evidence_of(node, seen),
    )


def applied(node: Node, plan: Plan, writes: int | None) -> Node:
    """The node after the first `writes` writes of the plan; None: after all of them."""
    config_map, pods = node.config_map, dict(node.deployments)
    children = writes if writes is None or not plan.status_first else writes - 1
    for item in plan.apply[:children]:
        if item["kind"] == "ConfigMap":
            config_map = item
        elif item["kind"] == "Deployment":
            name = item["metadata"]["name"]
            pods[name] = {**item, "status": pods.get(name, {}).get("status", {})}
    for ref in plan.delete if writes is None else ():
        pods.pop(ref.name, None)
    status = plan.status if writes is None or plan.status_first else node.status
    return replace(node, config_map=config_map, deployments=pods, status=status)


def state_key(node: Node) -> Key:
    """What decisions depend on, ages and evidence in buckets."""
    status = node.status
    table = read(dict(node.config_map) if node.config_map else None).table
    logs = log_evidence(status)
    began = status.get("rolloutStartedAt")
    age = (node.now - datetime.fromisoformat(began)).total_seconds() if began else 0.0
    since_step = node.counters[0] - status.get("stepBaseEpisodes", node.counters[0])
    return (
        status.get("phase"),
        step_of(status),
        status.get("weight"),
        (status.get("canary") or {}).get("revision"),
        (status.get("stable") or {}).get("revision"),
        bool(status.get("blockedRevision")),
        tuple((arm.revision, arm.weight) for arm in table.arms) if table else (),
        tuple(sorted(node.deployments)),
        age < 15.0,
        "stepBaseEpisodes" in status,
        min(max(since_step, 0.0), MIN_EPISODES) // 10,
        tuple(round(max(-4.0, min(6.0, value))) for value in logs) if logs else None,
        round(success_ratio(status), 1),
        comparing(status),
        held_for(node),
    )


def spec_with(metric: Mapping[str, Any]) -> ModelDeploymentSpec:
    steps = [{"weight": weight, "minEpisodes": MIN_EPISODES} for weight in WEIGHTS]
    body = {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": steps, "keepForSeconds": 60, "progressDeadlineSeconds": DEADLINE},
        "analysis": {"intervalSeconds": 1, "alpha": ALPHA, "metrics": [metric, ERRORS, DRY_RUN]},
    }
    return ModelDeploymentSpec.model_validate(body)


def started_node(spec: ModelDeploymentSpec) -> Node:
    """The first model serves; nobody has looked at the second yet."""
    first = spec.model_copy(update={"model": spec.model.model_copy(update={"uri": "https://models.example/0.onnx"})})
    node = Node(datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(3):
        node = after_time(applied(node, decide(snapshot_of(first, node, "quiet")), None), "quiet", True, 1)
    return node
