"""The state graph of `decide`, walked breadth first: does any path pass a step without its evidence?

A node is what survives between two passes: status, routing table, pods and counters. From each node every combination
of what the evidence may look like, whether the pods are ready, and where the operator dies in its writes is tried.
Nodes that differ in nothing a decision depends on count as one (`state_key`). The oracle knows nothing
of the operator's code but its status: it says what a pass of a step requires, what the routing table may hold, and
that no check rolls a canary back which it has not seen. Afterwards every state is led to an end, by a rig in which
everything works.
"""

import math
from collections.abc import Iterator
from itertools import product
from unittest.mock import patch

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks import thresholds
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.judging.judgement import Judgement
from learnloop_operator.rollout.steps import canary_steps
from testing.state_walk.breadth_first import Graph, WalkResult, walk
from testing.state_walk.rollout_graph import (
    ALPHA,
    BLIND,
    DUMB,
    LEAST_RATIO,
    MIN_EPISODES,
    MUTE,
    OBSERVATIONS,
    SEQUENTIAL,
    THRESHOLD,
    TORN,
    WEIGHTS,
    Node,
    after_time,
    applied,
    compared,
    log_evidence,
    routing_of,
    snapshot_of,
    spec_with,
    started_node,
    step_of,
)
from testing.state_walk.state_key import state_key
from testing.state_walk.table_shares import unfair

METRICS = {"sequential": SEQUENTIAL, "threshold": THRESHOLD}


def explore(name: str, most_transitions: int) -> WalkResult:
    """Walk at most so many transitions from a deployment whose second model has just been asked for, judged by the
    metric of that name."""
    return _walked(name, spec_with(METRICS[name]), most_transitions)


def explore_agreeing(name: str, most_transitions: int) -> WalkResult:
    """The same walk with every check answering yes: the oracle must object, or it sees nothing."""
    with patch.object(canary_steps, "judge_canary", lambda *_: Judgement(passed="yes")):
        return explore(name, most_transitions)


def explore_hasty(name: str, most_transitions: int) -> WalkResult:
    """The same walk with steps that ask for one episode less than the oracle does: a key that took the last episodes
    for enough, or for none, would not let it see that."""
    return _walked(name, spec_with(METRICS[name], MIN_EPISODES - 1), most_transitions)


def explore_apart(name: str, most_transitions: int) -> WalkResult:
    """The same walk with ratios that neither hold nor break, as if stable had never played: whatever was compared at
    the same time is passed by."""
    with patch.object(thresholds, "_of_ratios", lambda *_: ("so it is said", [])):
        return explore(name, most_transitions)


def _walked(name: str, spec: ModelDeploymentSpec, most_transitions: int) -> WalkResult:
    tested = name == "sequential"

    def go_on(node: Node) -> Node:
        rig = after_time(node, "equal", True, 20)
        return applied(rig, decide(snapshot_of(spec, rig, "equal")), None)

    def held_against(result: WalkResult, before: Node, observation: str, after: Node) -> None:
        _judge(result, before, observation, after, tested)
        result.broken += _broken(before, observation, after)

    first = started_node(spec)
    return walk(
        Graph(name, first, lambda node: _next(spec, node), state_key, ended, held_against, go_on), most_transitions
    )


def _next(spec: ModelDeploymentSpec, node: Node) -> Iterator[tuple[str, bool, Node]]:
    """The observation, whether everything works, and the node after it."""
    before = ModelDeploymentStatus.model_validate(node.status)
    for observation, ready, seconds in product(OBSERVATIONS, (True, False), (1, 70)):
        if not ready and observation != "equal":
            continue
        rig = after_time(node, observation, ready, seconds)
        plan = decide(snapshot_of(spec, rig, observation, before))
        for writes in (1, None):
            yield observation, observation == "equal" and ready and writes is None, applied(rig, plan, writes)


def _judge(result: WalkResult, before: Node, observation: str, after: Node, tested: bool) -> None:
    old, new = before.status, after.status
    was, now = old.get("canary") or {}, new.get("canary") or {}
    promoted = bool(was) and new["stable"]["revision"] == was["revision"]
    passed = promoted or (was.get("revision") == now.get("revision") and step_of(new) > step_of(old))
    result.rollbacks += bool(new.get("blockedRevision")) and not old.get("blockedRevision")
    before_log, says = log_evidence(old), log_evidence(new)
    if observation in (*BLIND, *TORN, "no stable", "reset") and says not in (before_log or (0.0, 0.0), None):
        result.false_passes.append(f"{observation} moved the evidence from {before_log} to {says}")
    if not passed or step_of(old) < 0:
        return
    result.passes += 1
    result.promotions += promoted
    episodes = after.counters[0] - old.get("stepBaseEpisodes", math.inf)
    logs = says or before_log
    together, ratio = compared(new if says else old)
    wrong = [
        why
        for why, is_wrong in (
            ("no evidence at this look", observation in (DUMB if old.get("weight") == 100 else MUTE)),
            ("too many errors", observation == "errors"),
            (f"{episodes:g} episodes at this step", episodes < MIN_EPISODES),
            (f"log e-value {logs}", tested and (logs is None or logs[1] < math.log(1 / ALPHA) - 1e-9)),
            (f"{together:g} episodes compared", not tested and together < MIN_EPISODES),
            (f"a success of {ratio:.3g} of stable's", not tested and ratio < LEAST_RATIO),
        )
        if is_wrong
    ]
    result.false_passes += [f"step {step_of(old) + 1} passed with {why} (seen: {observation})" for why in wrong]


def _broken(before: Node, observation: str, after: Node) -> list[str]:
    """Weights above their step, stable below its floor or lost, and rollbacks by checks that saw nothing."""
    status, wrong = after.status, []
    table = routing_of(after).table
    if table and table.arms:
        wrong += unfair(table, WEIGHTS[max(0, step_of(status))] if status.get("canary") else 100)
    block = status.get("blockedRevision")
    if block is None or before.status.get("blockedRevision") or block["at"] != stamp(after.now):
        return wrong
    if observation in BLIND and block["reason"] == "CheckFailed":
        wrong.append(f"rolled back by a check that saw nothing ({observation})")
    if "at least 0.99" in block["message"]:
        wrong.append("rolled back by a dry run")
    return wrong


def ended(node: Node) -> bool:
    """Whether nothing is on trial and nothing is kept warm."""
    status = node.status
    return bool(status.get("stable")) and not status.get("canary") and not status.get("previous")
