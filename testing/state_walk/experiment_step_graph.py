"""The world that `experiment_step_walk` walks: a rollout with an experiment of three arms as its step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.plan import Plan
from learnloop_operator.rollout.children.manifests import arms
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.rollout.judging.arms import DRAIN_SECONDS, SHORTEST
from learnloop_operator.rollout.model.snapshot import Defaults, Snapshot, resolve
from testing.simulation.opened_episodes import ended_at_once
from testing.state_walk.rollout_graph import DEADLINE, ERRORS, Node, applied, routing_of, step_of
from testing.state_walk.state_key import Key, age_of, unfinished

GOOD, POOR = 0.9, 0.6
BETTER = ("canary", "guest", "stable", "nobody")
"""Who succeeds more often in the time before a look."""
BLIND = ("away", "no canary", "no guest", "no stable", "reset", "nan")
SEEN = (*BETTER, *BLIND)
PER_LOOK = 300.0
"""Episodes of each arm between two looks, whatever its weight: the graph is about what is decided, not about luck."""
ALPHA, MIN_EPISODES, MAX_EPISODES, MAX_SECONDS = 0.05, 100, 3_000, 3_600
BAR = math.log(2.0 * 2 / ALPHA)
"""Log e-value at which one of three arms is proven better than another."""
WEIGHTS = (30, 100)
GUEST_WEIGHT = 20


@dataclass(frozen=True, slots=True)
class StepNode(Node):
    """A node with episodes and successes by revision."""

    played: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def spec() -> ModelDeploymentSpec:
    """An experiment at 30 % with one guest, then 100 %."""
    guest = {"name": "a", "uri": "https://models.example/5.onnx", "sha256": f"{5:064x}", "weight": GUEST_WEIGHT}
    limits = {"minEpisodes": MIN_EPISODES, "maxEpisodes": MAX_EPISODES, "maxSeconds": MAX_SECONDS, "alpha": ALPHA}
    steps: list[dict[str, Any]] = [{"weight": weight, "minEpisodes": 20} for weight in WEIGHTS]
    steps[0]["experiment"] = {"arms": [guest], **limits}
    body = {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": steps, "keepForSeconds": 60, "progressDeadlineSeconds": DEADLINE},
        "analysis": {"intervalSeconds": 1, "metrics": [ERRORS]},
    }
    return ModelDeploymentSpec.model_validate(body)


def first_node(asked: ModelDeploymentSpec) -> StepNode:
    """The first model serves; nobody has looked at the second yet."""
    old = asked.model_copy(update={"model": asked.model.model_copy(update={"uri": "https://models.example/0.onnx"})})
    node = StepNode(datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(3):
        node = after_time(passed(node, old, "nobody"), "nobody", "", 1)
    return node


def passed(node: StepNode, asked: ModelDeploymentSpec, seen: str) -> StepNode:
    """The node after one whole pass."""
    return written(node, decide(snapshot_of(asked, node, seen)), None)


def written(node: StepNode, plan: Plan, writes: int | None) -> StepNode:
    """The node after the first `writes` writes of the plan; None: after all of them."""
    found = applied(node, plan, writes)
    assert isinstance(found, StepNode)
    return found


def revision_of(node: Node, who: str) -> str:
    """Of stable, the canary, or the guest; "" where there is none."""
    if who != "guest":
        return str((node.status.get(who) or {}).get("revision", ""))
    found = (node.status.get("experiment") or {}).get("arms") or ()
    return next((str(arm["revision"]) for arm in found if arm["name"] == "a"), "")


def after_time(node: StepNode, seen: str, unready: str, seconds: int) -> StepNode:
    """Every arm with a weight has played; the pods of `unready` are not ready."""
    played, best = dict(node.played), revision_of(node, seen) if seen in BETTER else ""
    table = routing_of(node).table
    for arm in table.arms if table else ():
        if arm.weight:
            n, good = played.get(arm.revision, (0.0, 0.0))
            rate = GOOD if arm.revision == best else POOR
            played[arm.revision] = (n + PER_LOOK, good + PER_LOOK * rate)
    if seen == "reset":
        played = {}
    lost = f"md-{revision_of(node, unready)}" if unready else ""
    pods = {
        name: {**item, "status": {"replicas": 1, "readyReplicas": int(name != lost)}}
        for name, item in node.deployments.items()
    }
    return replace(node, now=node.now + timedelta(seconds=seconds), played=played, deployments=pods)


def snapshot_of(asked: ModelDeploymentSpec, node: StepNode, seen: str) -> Snapshot:
    """What one pass sees."""
    metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1}
    head = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
    hidden, stable = revision_of(node, seen.removeprefix("no ")), revision_of(node, "stable")
    known = {
        revision: _evidence(node, n, math.nan if seen == "nan" and revision != stable else good)
        for revision, (n, good) in node.played.items()
        if not (seen.startswith("no ") and revision == hidden)
    }
    return Snapshot(
        now=node.now,
        object={**head, "metadata": metadata, "status": node.status},
        spec=asked,
        before=ModelDeploymentStatus.model_validate(node.status),
        desired=resolve(asked, None),
        arms=arms(node.deployments.values(), []),
        routing=routing_of(node),
        defaults=Defaults("image", "http://data"),
        evidence=Evidence(unavailable="away") if seen == "away" else Evidence(known),
    )


def _evidence(node: StepNode, n: float, good: float) -> ArmEvidence:
    return ArmEvidence(
        int(n), None, good / n if n else None, 0.0 * good if n else None, seen_at=node.now, openings=ended_at_once(n)
    )


def key_of(node: StepNode) -> Key:
    """What decisions depend on, and no more of it than they ask: of evidence whether it is missing, undecided or
    proven (a log e-value is only ever compared with its bar), of episodes and ages on which side of a limit they are.
    An experiment that is over is its winner: its figures are read no more. A rollback that the table tells of and the
    status does not is finished first."""
    status, table = node.status, routing_of(node).table
    since_step = node.played.get(revision_of(node, "canary"), (0.0, 0.0))[0] - status.get("stepBaseEpisodes", 0)
    return (
        status.get("phase"),
        step_of(status),
        status.get("weight"),
        *(revision_of(node, who) for who in ("stable", "canary")),
        (status.get("canary") or {}).get("readyReplicas"),
        (status.get("blockedRevision") or {}).get("revision"),
        tuple((arm.revision, arm.weight) for arm in table.arms) if table else (),
        tuple(sorted(node.deployments)),
        unfinished(node) is not None,
        "stepBaseEpisodes" in status,
        since_step >= 20,
        *_experiment_key(node, status.get("experiment") or {}),
    )


def _experiment_key(node: StepNode, found: Mapping[str, Any]) -> Key:
    phase = found.get("phase")
    if phase in (None, "Finished"):
        return (phase, found.get("winner"), age_of(node, found.get("finishedAt")) >= DRAIN_SECONDS)
    arms = tuple(
        (
            arm["name"],
            arm["standing"],
            arm["ready"],
            arm["episodes"] >= MIN_EPISODES,
            arm.get("seen") is None,
            tuple(value >= BAR for value in arm["logBetter"]),
        )
        for arm in found["arms"]
    )
    age, played = age_of(node, found.get("startedAt")), sum(arm["episodes"] for arm in found["arms"])
    return (phase, found.get("winner"), arms, (age >= SHORTEST) + (age >= MAX_SECONDS), played >= MAX_EPISODES)
