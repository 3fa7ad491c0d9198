"""The state graph of `decide`, walked breadth first: does any path pass a step without its evidence?

A node is what survives between two passes: status, routing table, pods and counters. From each node every combination
of what the evidence may look like, whether the pods are ready, and where the operator dies in its writes is tried.
Nodes that differ in nothing a decision depends on (ages and evidence in buckets) count as one. The oracle knows nothing
of the operator's code but its status: it says what a pass of a step requires, what the routing table may hold, and
that no check takes a canary back which it has not seen. Afterwards every state is led to an end, by a world in which
everything works.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any
from unittest.mock import patch

from bench.statistics.graph_world import (
    ALPHA,
    BLIND,
    MIN_EPISODES,
    MUTE,
    SEEN,
    SEQUENTIAL,
    TORN,
    WEIGHTS,
    Node,
    after_time,
    applied,
    log_evidence,
    snapshot_of,
    spec_with,
    started_node,
    state_key,
    step_of,
    success_ratio,
)
from bench.statistics.shares import unfair
from bench.statistics.walk import Found, Graph, walk

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.rollout import canary
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.judge import Judgement
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.times import stamp


def explore(metric: Mapping[str, Any], most_transitions: int) -> Found:
    """Walk at most so many transitions from a deployment whose second model has just been asked for."""
    spec = spec_with(metric)

    def judge(found: Found, before: Node, seen: str, after: Node) -> None:
        _judge(found, before, seen, after, metric is SEQUENTIAL)
        found.broken += _broken(before, seen, after)

    def go_on(node: Node) -> Node:
        world = after_time(node, "equal", True, 20)
        return applied(world, decide(snapshot_of(spec, world, "equal")), None)

    first = started_node(spec)
    return walk(Graph(first, lambda node: _next(spec, node), state_key, ended, judge, go_on), most_transitions)


def explore_sabotaged(metric: Mapping[str, Any], most_transitions: int) -> Found:
    """The same walk with every check answering yes: the oracle must object, or it sees nothing."""
    with patch.object(canary, "judge_canary", lambda *_: Judgement(passed="yes")):
        return explore(metric, most_transitions)


def _next(spec: ModelDeploymentSpec, node: Node) -> Iterator[tuple[str, bool, Node]]:
    """What is seen, whether everything works, and the node after it."""
    for seen, ready, seconds in product(SEEN, (True, False), (1, 70)):
        if not ready and seen != "equal":
            continue
        world = after_time(node, seen, ready, seconds)
        plan = decide(snapshot_of(spec, world, seen))
        for writes in (1, None):
            yield seen, seen == "equal" and ready and writes is None, applied(world, plan, writes)


def _judge(found: Found, before: Node, seen: str, after: Node, tested: bool) -> None:
    old, new = before.status, after.status
    was, now = old.get("canary") or {}, new.get("canary") or {}
    promoted = bool(was) and new["stable"]["revision"] == was["revision"]
    passed = promoted or (was.get("revision") == now.get("revision") and step_of(new) > step_of(old))
    found.rollbacks += bool(new.get("blockedRevision")) and not old.get("blockedRevision")
    said, says = log_evidence(old), log_evidence(new)
    if seen in (*BLIND, *TORN, "no stable", "reset") and says not in (said or (0.0, 0.0), None):
        found.false_passes.append(f"{seen} moved the evidence from {said} to {says}")
    if not passed or step_of(old) < 0:
        return
    found.passes += 1
    found.promotions += promoted
    episodes = after.counters[0] - old.get("stepBaseEpisodes", math.inf)
    logs = says or said
    wrong = [
        why
        for why, is_wrong in (
            ("no evidence at this look", seen in MUTE),
            ("too many errors", seen == "errors"),
            (f"{episodes:g} episodes at this step", episodes < MIN_EPISODES),
            (f"log e-value {logs}", tested and (logs is None or logs[1] < math.log(1 / ALPHA) - 1e-9)),
            ("a success rate below the bar", not tested and max(map(success_ratio, (old, new))) < 0.9),
        )
        if is_wrong
    ]
    found.false_passes += [f"step {step_of(old) + 1} passed with {why} (seen: {seen})" for why in wrong]


def _broken(before: Node, seen: str, after: Node) -> list[str]:
    """Weights above their step, stable below its floor or lost, and rollbacks by checks that saw nothing."""
    status, wrong = after.status, []
    table = read(dict(after.config_map) if after.config_map else None).table
    if table and table.arms:
        wrong += unfair(table, WEIGHTS[max(0, step_of(status))] if status.get("canary") else 100)
    pin = status.get("blockedRevision")
    fresh = pin and not before.status.get("blockedRevision") and pin["at"] == stamp(after.now)
    if fresh and seen in BLIND and pin["reason"] == "CheckFailed":
        wrong.append(f"taken back by a check that saw nothing ({seen})")
    if fresh and "at least 0.99" in pin["message"]:
        wrong.append("taken back by a dry run")
    return wrong


def ended(node: Node) -> bool:
    """Whether nothing is on trial and nothing is kept warm."""
    status = node.status
    return bool(status.get("stable")) and not status.get("canary") and not status.get("previous")
