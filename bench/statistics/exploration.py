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
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from unittest.mock import patch

from bench.statistics.graph_world import (
    ALPHA,
    BLIND,
    MIN_EPISODES,
    MUTE,
    PATIENCE,
    SEEN,
    SEQUENTIAL,
    WEIGHTS,
    Key,
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

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.rollout import canary
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.judge import Judgement
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.times import stamp


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
    spec = spec_with(metric)
    first = started_node(spec)
    found, known, waiting = Found(), {state_key(first): first}, deque([first])
    onward: dict[Key, set[Key]] = {}
    ends: set[Key] = set()
    while waiting and found.transitions < most_transitions:
        node = waiting.popleft()
        found.nodes += 1
        here = state_key(node)
        if _ended(node):
            ends.add(here)
        for seen, works, after in _next(spec, node):
            found.transitions += 1
            _judge(found, node, seen, after, metric is SEQUENTIAL)
            found.broken += _broken(node, seen, after)
            key = state_key(after)
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
            world = after_time(node, "equal", True, 20)
            node = applied(world, decide(snapshot_of(spec, world, "equal")), None)
            path.append(state_key(node))
        if len(path) < PATIENCE:
            leading.update(path)
        stuck += len(path) == PATIENCE
    return stuck


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
    if tested and seen in (*BLIND, "no stable", "reset") and says not in (said or (0.0, 0.0), None):
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
            ("a success rate below the bar", not tested and success_ratio(after.counters) < 0.9),
        )
        if is_wrong
    ]
    found.false_passes += [f"step {step_of(old) + 1} passed with {why} (seen: {seen})" for why in wrong]


def _broken(before: Node, seen: str, after: Node) -> list[str]:
    """Weights above their step, a stable arm that is lost, and rollbacks by checks that saw nothing."""
    status, wrong = after.status, []
    table = read(dict(after.config_map) if after.config_map else None).table
    for arm in table.arms if table else ():
        if arm.role == "canary" and status.get("canary") and arm.weight > WEIGHTS[max(0, step_of(status))]:
            wrong.append(f"the table gives {arm.weight} % at step {step_of(status) + 1}")
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
