"""The state graph of a rollout with an experiment as a step: does any path pass it without its proof, or never end?

The oracle knows the status and the bar by Ville's inequality, written down here a second time, and nothing of the code.
"""

import math
from collections.abc import Iterator
from unittest.mock import patch

from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import experiment_arms
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.steps import experiment_step
from testing.state_walk.breadth_first import Found, Graph, walk
from testing.state_walk.experiment_step_graph import (
    ALPHA,
    BLIND,
    GUEST_WEIGHT,
    MIN_EPISODES,
    SEEN,
    WEIGHTS,
    StepNode,
    after_time,
    first_node,
    key_of,
    passed,
    revision_of,
    snapshot_of,
    spec,
    written,
)
from testing.state_walk.rollout_graph import routing_of, step_of
from testing.state_walk.rollout_walk import ended

EXPERIMENT = 0
MUTE = ("away", "no canary", "reset", "nan")
"""Nothing is known of the arm that would go on. (No check of this rollout compares outside the experiment.)"""
FLOOR = 5
ASKED = spec()


def explore(most_transitions: int) -> Found:
    """Walk at most so many transitions."""
    graph = Graph("step", first_node(ASKED), _next, key_of, ended, _judge, _go_on)
    return walk(graph, most_transitions)


def explore_sabotaged(most_transitions: int) -> Found:
    """The same walk with a race in which everybody counts as proven: the oracle must object."""
    with (
        patch.object(experiment_arms, "_enough", lambda *_: -math.inf),
        patch.object(experiment_step, "fit", lambda *_: True),
    ):
        return explore(most_transitions)


def _next(node: StepNode) -> Iterator[tuple[str, bool, StepNode]]:
    """What is seen, whether everything works, and the node after it."""
    fates = (*((seen, "") for seen in SEEN), ("nobody", "canary"), ("nobody", "guest"))
    for seen, unready in fates:
        world = after_time(node, seen, unready, 70 if unready else 20)
        plan = decide(snapshot_of(ASKED, world, seen))
        for writes in (1, None):
            works = seen not in BLIND and not unready and writes is None
            yield seen, works, written(world, plan, writes)


def _go_on(node: StepNode) -> StepNode:
    return passed(after_time(node, "canary", "", 20), ASKED, "canary")


def _judge(found: Found, before: StepNode, seen: str, after: StepNode) -> None:
    old, new = before.status, after.status
    found.rollbacks += bool(new.get("blockedRevision")) and not old.get("blockedRevision")
    was, now = revision_of(before, "canary"), revision_of(after, "canary")
    promoted = bool(was) and revision_of(after, "stable") == was
    found.promotions += promoted
    wrong = ["promoted before the last step"] if promoted and step_of(old) + 1 < len(WEIGHTS) else []
    if was and now and was != now and step_of(old) != EXPERIMENT:
        wrong.append("another canary without an experiment")
    if was and now and step_of(old) >= 0 and step_of(new) > step_of(old):
        found.passes += 1
        wrong += _unproven(after, now) if step_of(old) == EXPERIMENT else []
        wrong += ["no evidence at this look"] if seen in MUTE and was == now else []
    found.false_passes += [f"step {step_of(old) + 1}: {why} (seen: {seen})" for why in wrong]
    found.broken += _broken(before, seen, after)


def _unproven(after: StepNode, winner: str) -> list[str]:
    """What is missing of the proof that this arm is better than stable and than every other arm that was left."""
    arms = after.status["experiment"]["arms"]
    best = next(arm for arm in arms if arm["revision"] == winner)
    bar = math.log(2.0 * (len(arms) - 1) / ALPHA)
    proofs = max(arm["logBetter"][0] for arm in arms[1:])
    return [
        why
        for why, is_wrong in (
            (f"{best['name']} is not the winner", after.status["experiment"].get("winner") != best["name"]),
            ("others are still in the race", any(arm["standing"] == "playing" for arm in arms if arm is not best)),
            (f"log e-value {proofs:g} against stable, bar {bar:g}", proofs < bar - 1e-9),
            (f"{best['episodes']} episodes", best["episodes"] < MIN_EPISODES),
        )
        if is_wrong
    ]


def _broken(before: StepNode, seen: str, after: StepNode) -> list[str]:
    """Weights above the split, a stable arm below its floor, and canaries that were rolled back for nothing."""
    status, wrong, table = after.status, [], routing_of(after).table
    step, canary = step_of(status), revision_of(after, "canary")
    for arm in table.arms if table else ():
        if arm.role == "stable" and 0 <= step < len(WEIGHTS) - 1 and arm.weight < FLOOR:
            wrong.append(f"stable has {arm.weight} % at step {step + 1}")
        if arm.role == "canary" and canary and arm.revision == canary and arm.weight > WEIGHTS[max(0, step)]:
            wrong.append(f"the canary has {arm.weight} % at step {step + 1}")
        if arm.role == "canary" and canary and arm.revision == revision_of(after, "guest") != canary:
            wrong += [f"the guest has {arm.weight} %"] if arm.weight > GUEST_WEIGHT else []
    if table and table.arms and sum(arm.weight for arm in table.arms) != 100:
        wrong.append("the weights of the table do not add up")
    pin = status.get("blockedRevision")
    if pin is None or before.status.get("blockedRevision") or pin["at"] != stamp(after.now):
        return wrong
    if seen in ("away", "nan") and pin["reason"] == "CheckFailed":
        wrong.append("rolled back by a check that saw nothing")
    return wrong
