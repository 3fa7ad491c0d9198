"""The state graph of `decide`, walked breadth first: does any path pass a step without its evidence?

A node is what survives between two passes: status, routing table, pods and counters. From each node every combination
of what the evidence may look like, whether the pods are ready, and where the operator dies in its writes is tried.
Nodes that differ in nothing a decision depends on (ages and evidence in buckets) count as one. The oracle knows nothing
of the operator's code but its status: it says what a pass of a step requires, what the routing table may hold, and
that no check takes a canary back which it has not seen. Afterwards every state is led to an end, by a world in which
everything works.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from unittest.mock import patch

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.rollout import canary
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.core.rollout.judge import Judgement
from learnloop_operator.core.rollout.observe import arms
from learnloop_operator.core.rollout.revision import resolve
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.rollout.world import Defaults, Snapshot
from learnloop_operator.core.times import stamp

ALPHA, MOST_ERRORS, MIN_EPISODES = 0.01, 0.05, 20
SEEN = ("away", "no canary", "no stable", "nan", "quiet", "reset", "stale", "skewed", "equal", "bad", "errors", "few")
FRESH = {"equal": (150.0, 0.9), "bad": (150.0, 0.6), "errors": (150.0, 0.9), "few": (3.0, 0.9)}
MUTE = ("away", "no canary", "no stable", "nan", "stale", "skewed")
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


@dataclass(slots=True)
class Found:
    """How far the walk came. `exhausted`: nothing new was left to visit."""

    nodes: int = 0
    transitions: int = 0
    passes: int = 0
    promotions: int = 0
    rollbacks: int = 0
    false_passes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Other promises that do not hold."""
    without_end: int = 0
    """States from which a world that works leads nowhere."""
    exhausted: bool = False


def explore(metric: Mapping[str, Any], most_transitions: int) -> Found:
    """Walk at most so many transitions from a deployment whose second model has just been asked for."""
    spec = _spec(metric)
    first = _started(spec)
    found, known, waiting = Found(), {_key(first): first}, deque([first])
    onward: dict[Key, set[Key]] = {}
    ends: set[Key] = set()
    while waiting and found.transitions < most_transitions:
        node = waiting.popleft()
        found.nodes += 1
        here = _key(node)
        if _ended(node):
            ends.add(here)
        for seen, works, after in _next(spec, node):
            found.transitions += 1
            _judge(found, node, seen, after, metric is SEQUENTIAL)
            found.broken += _broken(node, seen, after)
            key = _key(after)
            if works:
                onward.setdefault(here, set()).add(key)
            if key not in known:
                known[key] = after
                waiting.append(after)
    found.exhausted = not waiting
    found.without_end = _stuck(spec, known, _leading_to(ends, onward)) if found.exhausted else 0
    return found


def explore_sabotaged(metric: Mapping[str, Any], most_transitions: int) -> Found:
    """The same walk with every check answering yes: the oracle must object, or it sees nothing."""
    with patch.object(canary, "judge_canary", lambda *_: Judgement(passed="yes")):
        return explore(metric, most_transitions)


def _leading_to(ends: set[Key], onward: Mapping[Key, set[Key]]) -> set[Key]:
    """The states from which an end can be reached."""
    back: dict[Key, set[Key]] = {}
    for here, nexts in onward.items():
        for there in nexts:
            back.setdefault(there, set()).add(here)
    reached, waiting = set(ends), deque(ends)
    while waiting:
        fresh = back.get(waiting.popleft(), set()) - reached
        reached |= fresh
        waiting.extend(fresh)
    return reached


def _stuck(spec: ModelDeploymentSpec, known: Mapping[Key, Node], leading: set[Key]) -> int:
    """States that no end was found for, neither in the graph, whose buckets hide slow progress, nor by going on from
    them until a state is met that leads to one."""
    stuck = 0
    for key, node in known.items():
        path = [key]
        while path[-1] not in leading and not _ended(node) and len(path) < PATIENCE:
            world = _after_time(node, "equal", True, 20)
            node = _applied(world, decide(_snapshot(spec, world, "equal")), None)
            path.append(_key(node))
        if len(path) < PATIENCE:
            leading.update(path)
        stuck += len(path) == PATIENCE
    return stuck


def _next(spec: ModelDeploymentSpec, node: Node) -> Iterator[tuple[str, bool, Node]]:
    """What is seen, whether everything works, and the node after it."""
    for seen, ready, seconds in product(SEEN, (True, False), (1, 70)):
        if not ready and seen != "equal":
            continue
        world = _after_time(node, seen, ready, seconds)
        plan = decide(_snapshot(spec, world, seen))
        for writes in (1, None):
            yield seen, seen == "equal" and ready and writes is None, _applied(world, plan, writes)


def _judge(found: Found, before: Node, seen: str, after: Node, tested: bool) -> None:
    old, new = before.status, after.status
    was, now = old.get("canary") or {}, new.get("canary") or {}
    promoted = bool(was) and new["stable"]["revision"] == was["revision"]
    passed = promoted or (was.get("revision") == now.get("revision") and _step(new) > _step(old))
    found.rollbacks += bool(new.get("blockedRevision")) and not old.get("blockedRevision")
    if tested and seen in (*BLIND, "no stable", "reset") and _logs(new) not in (_logs(old) or (0.0, 0.0), None):
        found.false_passes.append(f"{seen} moved the evidence from {_logs(old)} to {_logs(new)}")
    if not passed or _step(old) < 0:
        return
    found.passes += 1
    found.promotions += promoted
    episodes = after.counters[0] - old.get("stepBaseEpisodes", math.inf)
    logs = _logs(new) or _logs(old)
    wrong = [
        said
        for said, is_wrong in (
            ("no evidence at this look", seen in MUTE),
            ("too many errors", seen == "errors"),
            (f"{episodes:g} episodes at this step", episodes < MIN_EPISODES),
            (f"log e-value {logs}", tested and (logs is None or logs[1] < math.log(1 / ALPHA) - 1e-9)),
            ("a success rate below the bar", not tested and _ratio(after.counters) < 0.9),
        )
        if is_wrong
    ]
    found.false_passes += [f"step {_step(old) + 1} passed with {said} (seen: {seen})" for said in wrong]


def _broken(before: Node, seen: str, after: Node) -> list[str]:
    """Weights above their step, a stable arm that is lost, and rollbacks by checks that saw nothing."""
    status, wrong = after.status, []
    table = read(dict(after.config_map) if after.config_map else None).table
    for arm in table.arms if table else ():
        if arm.role == "canary" and status.get("canary") and arm.weight > WEIGHTS[max(0, _step(status))]:
            wrong.append(f"the table gives {arm.weight} % at step {_step(status) + 1}")
    if table and table.arms and [arm.role for arm in table.arms].count("stable") != 1:
        wrong.append("the table has no stable arm, or two")
    if table and table.arms and sum(arm.weight for arm in table.arms) != 100:
        wrong.append("the weights of the table do not add up")
    pin = status.get("blockedRevision")
    fresh = pin and not before.status.get("blockedRevision") and pin["at"] == stamp(after.now)
    if fresh and seen in BLIND and pin["reason"] == "CheckFailed":
        wrong.append(f"taken back by a check that saw nothing ({seen})")
    if fresh and "at least 0.99" in pin["message"]:
        wrong.append("taken back by a dry run")
    return wrong


def _ended(node: Node) -> bool:
    status = node.status
    return bool(status.get("stable")) and not status.get("canary") and not status.get("previous")


def _ratio(counters: tuple[float, float, float, float]) -> float:
    n, good, m, fine = counters
    return (good / n) / (fine / m) if n and m else 0.0


def _logs(status: Mapping[str, Any]) -> tuple[float, float] | None:
    found = next((item for item in status.get("evidence") or () if item["name"] == "success"), None)
    return (found["logWorse"], found["logFine"]) if found else None


def _held(node: Node) -> str:
    """Whether data is available, and why not where it has been missing for the deadline."""
    found = next((item for item in node.status.get("conditions", ()) if item["type"] == "DataAvailable"), None)
    if found is None or found["status"] == "True" or not node.status.get("canary"):
        return ""
    since = (node.now - datetime.fromisoformat(found["lastTransitionTime"])).total_seconds()
    return f"{found['status']} {found['reason'] if since >= DEADLINE else ''}"


def _step(status: Mapping[str, Any]) -> int:
    return int(status.get("step", -1))


def _after_time(node: Node, seen: str, ready: bool, seconds: int) -> Node:
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


def _evidence(node: Node, seen: str) -> Evidence:
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
    clock = node.now + timedelta(hours=1) if seen == "skewed" else None
    known_arms = {node.status[role]["revision"]: arm for role, arm in roles.items() if node.status.get(role)}
    return Evidence(known_arms, clock=clock)


def _snapshot(spec: ModelDeploymentSpec, node: Node, seen: str) -> Snapshot:
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
        evidence=_evidence(node, seen),
    )


def _applied(node: Node, plan: Plan, writes: int | None) -> Node:
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


def _key(node: Node) -> Key:
    """What decisions depend on, ages and evidence in buckets."""
    status = node.status
    table = read(dict(node.config_map) if node.config_map else None).table
    logs = _logs(status)
    began = status.get("rolloutStartedAt")
    age = (node.now - datetime.fromisoformat(began)).total_seconds() if began else 0.0
    since_step = node.counters[0] - status.get("stepBaseEpisodes", node.counters[0])
    return (
        status.get("phase"),
        _step(status),
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
        round(_ratio(node.counters), 1),
        _held(node),
    )


def _spec(metric: Mapping[str, Any]) -> ModelDeploymentSpec:
    steps = [{"weight": weight, "minEpisodes": MIN_EPISODES} for weight in WEIGHTS]
    body = {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": steps, "keepForSeconds": 60, "progressDeadlineSeconds": DEADLINE},
        "analysis": {"intervalSeconds": 1, "alpha": ALPHA, "metrics": [metric, ERRORS, DRY_RUN]},
    }
    return ModelDeploymentSpec.model_validate(body)


def _started(spec: ModelDeploymentSpec) -> Node:
    """The first model serves; nobody has looked at the second yet."""
    first = spec.model_copy(update={"model": spec.model.model_copy(update={"uri": "https://models.example/0.onnx"})})
    node = Node(datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(3):
        node = _after_time(_applied(node, decide(_snapshot(first, node, "quiet")), None), "quiet", True, 1)
    return node
