"""States that `testing.state_walk.rollout_walk` walks: what survives a pass, and what a look may see in it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import ROUTING_KEY
from learnloop_operator.core.plan import Plan
from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.state.snapshot import Defaults, LiveRouting, Snapshot, resolve
from testing.simulation.opened_episodes import ended_at_once

ALPHA, MOST_ERRORS, MIN_EPISODES = 0.01, 0.05, 20
TORN = {"canary torn": "canary", "stable torn": "stable"}
"""Prometheus has lost the samples of that arm from when the rollout began."""
OBSERVATIONS = (
    *("away", "no canary", "no stable", "nan", "quiet", "reset", "stale", "skewed", *TORN),
    *("equal", "bad", "errors", "few"),
)
_ENOUGH = (150.0, 0.9)
FEW = MIN_EPISODES - 1.0
"""One episode short of what a step, and a ratio, need: a rule that asks for one less is exposed, and two such looks are
enough, so that the grid of `of_needed` is all there is between nothing and enough."""
FRESH = {"equal": _ENOUGH, "bad": (150.0, 0.6), "errors": _ENOUGH, "few": (FEW, 0.9), **dict.fromkeys(TORN, _ENOUGH)}
MUTE = ("away", "no canary", "no stable", "nan", "stale", "skewed", *TORN)
DUMB = tuple(fault for fault in MUTE if fault not in ("no stable", "stable torn"))
"""At 100 %, where stable receives no more episodes: what was compared until then stands."""
BLIND = ("away", "no canary", "nan")
"""Nothing is known of the canary, so no check can speak against it."""
DEADLINE, KEEP_SECONDS = 60, 60
PATIENCE = 400
"""Looks in a cluster that works, after which a rollout ought to have ended."""
LEAST_RATIO = 0.9
SEQUENTIAL = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.1}
THRESHOLD = {"name": "success", "type": "success", "minRatio": LEAST_RATIO, "minEpisodes": MIN_EPISODES}
ERRORS = {"name": "errors", "type": "errors", "max": MOST_ERRORS}
"""Every canary here falls below its bound, and it must change nothing."""
WEIGHTS = (10, 25, 50, 100)


@dataclass(frozen=True, slots=True)
class Node:
    """The state after one pass. Counters: episodes and successes of the canary, then of stable."""

    now: datetime
    status: Mapping[str, Any] = field(default_factory=dict)
    config_map: Mapping[str, Any] | None = None
    deployments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counters: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


def compared(status: Mapping[str, Any]) -> tuple[float, float]:
    """Episodes of the canary that were compared with stable's of the same time, and its success as a share of stable's,
    as the status has them; 0 where nothing was compared."""
    metric = of_success(status)
    n, total, *_ = metric.get("judged") or (0.0, 0.0)
    return n, total / metric["stableTotal"] if metric.get("stableTotal") else 0.0


def log_evidence(status: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of "worse" and of "fine"."""
    metric = of_success(status)
    return (metric["logWorse"], metric["logFine"]) if metric else None


def of_success(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the metric of success."""
    return next((item for item in status.get("evidence") or () if item["name"] == "success"), {})


def revision_of(node: Node, role: str) -> str:
    """Of stable, canary, previous or blockedRevision; "" where there is none."""
    return str((node.status.get(role) or {}).get("revision", ""))


def routing_of(node: Node) -> LiveRouting:
    """The live ConfigMap. Many nodes have the same one."""
    if node.config_map is None:
        return LiveRouting()
    return _routing(node.config_map["data"][ROUTING_KEY], json.dumps(node.config_map["metadata"].get("annotations")))


@lru_cache(maxsize=4096)
def _routing(table: str, annotations: str) -> LiveRouting:
    return read({"data": {ROUTING_KEY: table}, "metadata": {"annotations": json.loads(annotations)}})


def step_of(status: Mapping[str, Any]) -> int:
    return int(status.get("step", -1))


def after_time(node: Node, observation: str, ready: bool, seconds: int) -> Node:
    guarded = node.status.get("previous") and not node.status.get("canary")
    weight = 100 if guarded else int(node.status.get("weight") or 0)
    n, rate = FRESH.get(observation, (0.0, 0.0))
    canary = n if weight else 0.0
    stable = 3.0 * n if weight < 100 else 0.0
    a, b, c, d = node.counters
    counters = (a + canary, b + canary * rate, c + stable, d + stable * 0.9)
    if observation == "reset":
        counters = (0.0, 0.0, 0.0, 0.0)
    running = {"replicas": 1, "readyReplicas": int(ready)}
    pods = {name: {**item, "status": running} for name, item in node.deployments.items()}
    stable_name = f"md-{node.status['stable']['revision']}" if node.status.get("stable") else ""
    if stable_name in pods:
        pods[stable_name] = {**pods[stable_name], "status": {"replicas": 1, "readyReplicas": 1}}
    return replace(node, now=node.now + timedelta(seconds=seconds), counters=counters, deployments=pods)


def evidence_of(node: Node, observation: str) -> Evidence:
    if observation == "away":
        return Evidence(unavailable="away")
    n, good, m, fine = node.counters
    errors = 0.2 if observation == "errors" else 0.0
    rate = math.nan if observation == "nan" else good / n if n else None
    lately = 0 if observation in ("quiet", "nan") else None
    scraped = node.now - timedelta(seconds=600 if observation == "stale" else 0)
    canary = ArmEvidence(
        int(n), None, rate, math.nan if observation == "nan" else errors if n else None, scraped_at=scraped
    )
    canary = replace(canary, lately=lately, openings=ended_at_once(n))
    stable = ArmEvidence(int(m), None, fine / m if m else None, 0.0 if m else None, scraped_at=scraped)
    stable = replace(stable, openings=ended_at_once(m))
    special = {"no canary": {"stable": stable}, "no stable": {"canary": canary}}
    roles = special.get(observation, {"canary": canary, "stable": stable})
    roles = {role: replace(arm, gap=int(TORN.get(observation) == role)) for role, arm in roles.items()}
    clock = node.now + timedelta(hours=1) if observation == "skewed" else None
    who = dict(zip(("canary", "stable"), on_trial(node), strict=True))
    return Evidence({who[role]: arm for role, arm in roles.items() if who[role]}, clock=clock)


def on_trial(node: Node) -> tuple[str, str]:
    """Revisions of the arm that is watched, and of the one that it is measured by: in the guard the promoted arm and
    the old one."""
    guarded = bool(node.status.get("previous")) and not node.status.get("canary")
    subject, reference = ("stable", "previous") if guarded else ("canary", "stable")
    return revision_of(node, subject), revision_of(node, reference)


def snapshot_of(
    spec: ModelDeploymentSpec, node: Node, observation: str, before: ModelDeploymentStatus | None = None
) -> Snapshot:
    """The snapshot of one pass. `before`: the node's status as a model, where the caller has it already."""
    metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1}
    head = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
    return Snapshot(
        now=node.now,
        object={**head, "metadata": metadata, "status": node.status},
        spec=spec,
        before=before or ModelDeploymentStatus.model_validate(node.status),
        desired=resolve(spec, None),
        arms=arms(node.deployments.values(), []),
        routing=routing_of(node),
        defaults=Defaults("image", "http://data"),
        evidence=evidence_of(node, observation),
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


def spec_with(metric: Mapping[str, Any], min_episodes: int = MIN_EPISODES) -> ModelDeploymentSpec:
    """Four steps of so many episodes each, judged by this metric of success and by errors."""
    steps = [{"weight": weight, "minEpisodes": min_episodes} for weight in WEIGHTS]
    body = {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": steps, "keepForSeconds": KEEP_SECONDS, "progressDeadlineSeconds": DEADLINE},
        "analysis": {"intervalSeconds": 1, "alpha": ALPHA, "metrics": [metric, ERRORS]},
    }
    return ModelDeploymentSpec.model_validate(body)


def started_node(spec: ModelDeploymentSpec) -> Node:
    """The first model serves; the second has not been looked at yet."""
    first = spec.model_copy(update={"model": spec.model.model_copy(update={"uri": "https://models.example/0.onnx"})})
    node = Node(datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(3):
        node = after_time(applied(node, decide(snapshot_of(first, node, "quiet")), None), "quiet", True, 1)
    return node
