"""A walk through the state graph of `decide`, breadth first, whatever the nodes of the graph are.

What a node is, what may follow it and what no step may do is said by the caller; here nodes that count as one are
found, and those from which a cluster that works leads to no end.

Of nodes that count as one the first stands for all. Now and then another one is led on as well: what it alone leads to
is walked too, and counted, for it tells how much the key leaves out.
"""

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from testing.state_walk.rollout_graph import PATIENCE
from testing.state_walk.state_key import Key

N = TypeVar("N")
TWINS = 250
"""One of so many nodes that count as another is led on all the same."""
REPORT_SECONDS = 5.0
"""Seconds between two lines of progress."""


@dataclass(slots=True)
class WalkResult:
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
    """States from which a cluster that works leads nowhere."""
    exhausted: bool = False
    twins: int = 0
    """Nodes that were led on although they count as one that was."""
    by_twins: int = 0
    """States that nothing but those led to."""
    seconds: float = 0.0

    def figures(self, graph: str) -> dict[str, float]:
        """The benchmark's figures of a walk through this graph."""
        counts = {
            "broken_promises": len(self.broken),
            "states_without_an_end": self.without_end,
            "states": self.nodes,
            "transitions": self.transitions,
            "to_the_end": self.exhausted,
            "passes": self.passes,
            "promotions": self.promotions,
            "rollbacks": self.rollbacks,
            "twins": self.twins,
            "states_by_twins_alone": self.by_twins,
            "seconds": round(self.seconds, 1),
        }
        named: dict[str, float] = {f"explored_{name}_{graph}": value for name, value in counts.items()}
        return {f"false_passes_{graph}": len(self.false_passes), **named}


@dataclass(frozen=True, slots=True)
class Graph(Generic[N]):
    """One graph: where it begins, what follows a node (what was seen, whether everything worked, the next node), what
    makes two nodes one, which are ends, what to hold against a step, and what follows where everything works."""

    name: str
    first: N
    nexts: Callable[[N], Iterable[tuple[str, bool, N]]]
    key: Callable[[N], Key]
    ended: Callable[[N], bool]
    judge: Callable[[WalkResult, N, str, N], None]
    go_on: Callable[[N], N]


def walk(graph: Graph[N], most_transitions: int) -> WalkResult:
    """At most so many transitions from the first node."""
    # Nothing here is a ring, and every full collection would go through all that is known.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _walk(graph, most_transitions)
    finally:
        if collecting:
            gc.enable()


def _walk(graph: Graph[N], most_transitions: int) -> WalkResult:
    result, nodes, began = WalkResult(), {graph.key(graph.first): graph.first}, time.perf_counter()
    waiting, met, reported = deque([(graph.first, False)]), 0, began
    onward: dict[Key, set[Key]] = {}
    ends: set[Key] = set()
    while waiting and result.transitions < most_transitions:
        node, twin = waiting.popleft()
        result.nodes += not twin
        here = graph.key(node)
        if graph.ended(node):
            ends.add(here)
        for observation, works, after in graph.nexts(node):
            result.transitions += 1
            graph.judge(result, node, observation, after)
            key = graph.key(after)
            if works:
                onward.setdefault(here, set()).add(key)
            if key not in nodes:
                nodes[key] = after
                waiting.append((after, False))
                result.by_twins += twin
                continue
            met += 1
            if met % TWINS == 0:
                waiting.append((after, True))
                result.twins += 1
        if time.perf_counter() - reported >= REPORT_SECONDS:
            reported = time.perf_counter()
            print(_progress(graph.name, result, len(waiting), reported - began), file=sys.stderr, flush=True)
    result.exhausted = not waiting
    result.without_end = _stuck(graph, nodes, _leading_to(ends, onward)) if result.exhausted else 0
    result.seconds = time.perf_counter() - began
    return result


def _progress(name: str, result: WalkResult, waiting: int, seconds: float) -> str:
    return f"{name}: {result.nodes} states, {waiting} waiting, {result.transitions} transitions, {seconds:.0f} s"


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


def _stuck(graph: Graph[N], nodes: Mapping[Key, N], leading: set[Key]) -> int:
    """States that no end was found for, neither in the graph, whose buckets hide slow progress, nor by going on from
    them until a state is met that leads to one."""
    stuck = 0
    for key, node in nodes.items():
        path = [key]
        while path[-1] not in leading and not graph.ended(node) and len(path) < PATIENCE:
            node = graph.go_on(node)
            path.append(graph.key(node))
        if len(path) < PATIENCE:
            leading.update(path)
        stuck += len(path) == PATIENCE
    return stuck
