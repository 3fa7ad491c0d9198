"""States that `testing.state_walk.manual_rollout_walk` walks: a rollout that pauses for approval, and people who
steer it. What they write stays in the object until it is answered, whatever the operator lives through meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.names import verb_annotation
from learnloop_operator.core.plan import Plan
from learnloop_operator.rollout.decide_deployment import decide
from testing.state_walk.rollout_graph import (
    DEADLINE,
    ERRORS,
    KEEP_SECONDS,
    MIN_EPISODES,
    THRESHOLD,
    Node,
    after_time,
    applied,
    revision_of,
    snapshot_of,
    started_node,
    step_of,
)
from testing.state_walk.state_key import Key, standing, state_key, unfinished

WEIGHTS = (10, 100)
PAUSED_STEP = 0
"""The step that a person has to approve, counted from 0."""
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


def first_node(desired: ModelDeploymentSpec) -> SteeredNode:
    """The first model serves; the second has not been looked at yet."""
    node = started_node(desired)
    return SteeredNode(node.now, node.status, node.config_map, node.deployments)


def deeds(node: SteeredNode) -> tuple[str, ...]:
    """The acts of people that have a meaning now: they wait for the answer to their last word, but to an approval."""
    if pending_verbs(node) - {"approve"}:
        return ("suspend",)
    warm: tuple[str, ...] = OF_PROMOTED if revision_of(node, "previous") else ()
    possible = OF_CANARIES if revision_of(node, "canary") else warm
    if node.suspended:
        return (*(verb for verb in possible if verb in WHILE_SUSPENDED), "suspend")
    return (*possible, *(("retry",) if node.status.get("blockedRevision") else ()), "suspend")


def done(node: SteeredNode, deed: str) -> SteeredNode:
    """The node after the deed, of which the operator knows nothing yet. Every value is new: it says when. Only an
    approval may wait next to another word."""
    if deed in ("", "suspend"):
        return replace(node, suspended=node.suspended ^ bool(deed))
    canary, at = revision_of(node, "canary"), node.now.isoformat()
    target = (node.status.get("blockedRevision") or {}).get("revision") if deed == "retry" else canary
    where = (
        f"/{step_of(node.status) + 1}" if deed in ("approve", "reject", "skip") and step_of(node.status) >= 0 else ""
    )
    value = f"{target or revision_of(node, 'stable')}{where} at {at}"
    return replace(node, notes={**node.notes, deed: value})


def pending(status: Mapping[str, Any], notes: Mapping[str, str]) -> dict[str, str]:
    """The orders without an answer, without the moment: `REVISION[/STEP]` by verb."""
    answered = {item["verb"]: item["value"] for item in status.get("decisions") or ()}
    return {verb: value.partition(" at ")[0] for verb, value in notes.items() if answered.get(verb) != value}


def pending_verbs(node: SteeredNode) -> frozenset[str]:
    """Verbs of the words that were not answered yet and mean something here. Every other word is answered before
    anything happens that could give it a meaning again, and changes nothing: no one waits for that."""
    return frozenset(verb for verb, what in pending(node.status, node.notes).items() if _means(node, verb, what))


def _means(node: SteeredNode, verb: str, what: str) -> bool:
    revision, _, step = what.partition("/")
    canary, stable, here = revision_of(node, "canary"), revision_of(node, "stable"), max(0, step_of(node.status))
    if verb == "retry":
        return revision == revision_of(node, "blockedRevision")
    if verb == "undo" or (verb == "abort" and not canary and revision_of(node, "previous")):
        return revision == stable
    if verb == "approve" and here != PAUSED_STEP:
        return False
    return revision == canary and step in ("", str(here + 1))


def passed(node: SteeredNode, desired: ModelDeploymentSpec, observation: str) -> SteeredNode:
    """The node after one whole pass."""
    return written(node, decided(node, desired, observation), None)


def decided(
    node: SteeredNode, desired: ModelDeploymentSpec, observation: str, before: ModelDeploymentStatus | None = None
) -> Plan:
    """The plan of one pass. `before`: the node's status as a model, where the caller has it already."""
    in_force = desired.model_copy(update={"suspend": True}) if node.suspended else desired
    snapshot = snapshot_of(in_force, node, observation, before)
    notes = {verb_annotation(verb): value for verb, value in node.notes.items()}
    metadata = {**snapshot.object["metadata"], "annotations": notes}
    return decide(replace(snapshot, object={**snapshot.object, "metadata": metadata}))


def written(node: SteeredNode, plan: Plan, writes: int | None) -> SteeredNode:
    """The node after the first `writes` writes of the plan; None: after all of them. A new rollout begins with counters
    at 0."""
    following = applied(node, plan, writes)
    assert isinstance(following, SteeredNode)
    fresh = following.status.get("rolloutStartedAt") != node.status.get("rolloutStartedAt")
    return replace(following, counters=(0.0, 0.0, 0.0, 0.0)) if fresh else following


def waited(node: SteeredNode, observation: str, ready: bool, seconds: int) -> SteeredNode:
    """Time passes, and both arms play."""
    following = after_time(node, observation, ready, seconds)
    assert isinstance(following, SteeredNode)
    return following


def key_of(node: SteeredNode) -> Key:
    """The inputs of any decision, the order in force, what people have said, and a suspension."""
    words = pending_verbs(node)
    orders = (tuple(sorted(words)), node.suspended)
    if _over(node, words):
        return (*standing(node), *orders)
    return (*state_key(node), (node.status.get("standingOrder") or {}).get("verb"), *orders)


def _over(node: SteeredNode, words: frozenset[str]) -> bool:
    """Whether a word takes the canary away at the next look, whatever that may see."""
    canary, hand = revision_of(node, "canary"), (node.status.get("standingOrder") or {}).get("verb")
    if not canary or unfinished(node):
        return False
    ends = step_of(node.status) <= PAUSED_STEP or hand is not None
    starts_again = hand != "undo" and not node.suspended and revision_of(node, "blockedRevision") != canary
    return "abort" in words or ("reject" in words and ends) or ("restart" in words and starts_again)
