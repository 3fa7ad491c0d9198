"""The world that `bench.statistics.steered_exploration` walks: a rollout that pauses for approval, and the people who
steer it. What they write stays in the object until it is answered, whatever the operator lives through meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bench.statistics.graph_world import (
    DEADLINE,
    ERRORS,
    MIN_EPISODES,
    THRESHOLD,
    Key,
    Node,
    after_time,
    applied,
    comparing,
    held_for,
    snapshot_of,
    started_node,
    step_of,
    success_ratio,
)

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.names import verb_annotation
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.table import read

WEIGHTS = (10, 100)
PAUSED_STEP = 0
"""The step that a person has to approve, counted from 0."""
KEEP_SECONDS = 60
CERTAIN = 0.7
"""Success of the canary as a share of stable's below which a look's episodes leave no doubt that 0.9 is missed."""
OF_CANARIES = ("approve", "reject", "promote", "skip", "abort", "pause", "resume", "restart")
OF_PROMOTED = ("undo", "abort")
WHILE_SUSPENDED = ("approve", "promote", "abort", "reject")


@dataclass(frozen=True, slots=True)
class SteeredNode(Node):
    """A node with what people have written: the last value of each verb, and whether they suspended it."""

    notes: Mapping[str, str] = field(default_factory=dict)
    suspended: bool = False


def spec() -> ModelDeploymentSpec:
    """Two steps, of which the first is passed by approval only, judged by a threshold."""
    steps: list[dict[str, Any]] = [{"weight": weight, "minEpisodes": MIN_EPISODES} for weight in WEIGHTS]
    steps[PAUSED_STEP]["pause"] = True
    body = {
        "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
        "rollout": {"steps": steps, "keepForSeconds": KEEP_SECONDS, "progressDeadlineSeconds": DEADLINE},
        "analysis": {"intervalSeconds": 1, "metrics": [THRESHOLD, ERRORS]},
    }
    return ModelDeploymentSpec.model_validate(body)


def first_node(asked: ModelDeploymentSpec) -> SteeredNode:
    """The first model serves; nobody has looked at the second yet."""
    node = started_node(asked)
    return SteeredNode(node.now, node.status, node.config_map, node.deployments)


def revision_of(node: Node, role: str) -> str:
    """Of stable, canary or previous; "" where there is none."""
    return str((node.status.get(role) or {}).get("revision", ""))


def deeds(node: SteeredNode) -> tuple[str, ...]:
    """What people may do now that means something: they wait for the answer to their last word, but to an approval."""
    if pending(node.status, node.notes).keys() - {"approve"}:
        return ("suspend",)
    warm: tuple[str, ...] = OF_PROMOTED if revision_of(node, "previous") else ()
    possible = OF_CANARIES if revision_of(node, "canary") else warm
    if node.suspended:
        return (*(verb for verb in possible if verb in WHILE_SUSPENDED), "suspend")
    return (*possible, *(("retry",) if node.status.get("blockedRevision") else ()), "suspend")


def done(node: SteeredNode, deed: str) -> SteeredNode:
    """The node after the deed, of which the operator knows nothing yet. Every value is new: it says when. Only an
    approval may wait beside another word."""
    if deed in ("", "suspend"):
        return replace(node, suspended=node.suspended ^ bool(deed))
    canary, at = revision_of(node, "canary"), node.now.isoformat()
    whom = (node.status.get("blockedRevision") or {}).get("revision") if deed == "retry" else canary
    where = (
        f"/{step_of(node.status) + 1}" if deed in ("approve", "reject", "skip") and step_of(node.status) >= 0 else ""
    )
    value = f"{whom or revision_of(node, 'stable')}{where} at {at}"
    return replace(node, notes={**node.notes, deed: value})


def pending(status: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, str]:
    """What was written and not answered, without the moment: `REVISION[/STEP]` by verb."""
    answered = {item["verb"]: item["value"] for item in status.get("decisions") or ()}
    return {verb: value.partition(" at ")[0] for verb, value in notes.items() if answered.get(verb) != value}


def fits(node: SteeredNode, what: str) -> bool:
    """Whether a word still means what is there; of those that do not it does not matter what they say."""
    revision, _, step = what.partition("/")
    known = {revision_of(node, role) for role in ("canary", "stable", "blockedRevision")}
    return revision in known and step in ("", str(step_of(node.status) + 1))


def passed(node: SteeredNode, asked: ModelDeploymentSpec, seen: str, writes: int | None = None) -> SteeredNode:
    """The node after one pass, of which so many writes were done. A new rollout begins with counters at 0."""
    told = asked.model_copy(update={"suspend": node.suspended})
    snapshot = snapshot_of(told, node, seen)
    notes = {verb_annotation(verb): value for verb, value in node.notes.items()}
    metadata = {**snapshot.object["metadata"], "annotations": notes}
    found = applied(node, decide(replace(snapshot, object={**snapshot.object, "metadata": metadata})), writes)
    assert isinstance(found, SteeredNode)
    fresh = found.status.get("rolloutStartedAt") != node.status.get("rolloutStartedAt")
    return replace(found, counters=(0.0, 0.0, 0.0, 0.0)) if fresh else found


def waited(node: SteeredNode, seen: str, ready: bool, seconds: int) -> SteeredNode:
    """Time passes, and both arms play."""
    found = after_time(node, seen, ready, seconds)
    assert isinstance(found, SteeredNode)
    return found


def key_of(node: SteeredNode) -> Key:
    """What decisions depend on, ages and evidence in buckets."""
    status, hand = node.status, node.status.get("hand") or {}
    table = read(dict(node.config_map) if node.config_map else None).table
    since_step = node.counters[0] - status.get("stepBaseEpisodes", node.counters[0])
    return (
        status.get("phase"),
        step_of(status),
        status.get("weight"),
        *(revision_of(node, role) for role in ("stable", "canary", "previous", "blockedRevision")),
        hand.get("verb"),
        tuple(sorted((verb, fits(node, what)) for verb, what in pending(status, node.notes).items())),
        node.suspended,
        tuple((arm.revision, arm.weight) for arm in table.arms) if table else (),
        tuple(sorted(node.deployments)),
        _age(node, "rolloutStartedAt") < 15.0,
        _age(node, "promotedAt") >= KEEP_SECONDS,
        "stepBaseEpisodes" in status,
        since_step >= MIN_EPISODES,
        (success_ratio(status) >= 0.9) + (success_ratio(status) >= CERTAIN),
        comparing(status),
        bool(held_for(node)),
    )


def _age(node: Node, since: str) -> float:
    at = node.status.get(since)
    return (node.now - datetime.fromisoformat(at)).total_seconds() if at else 0.0
