"""The state graph of a rollout that people steer: does any path pass a pause without its approval, or rise while it is
held, suspended or bad?

The oracle knows the status, what people have written and the routing table, and nothing of the code.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any
from unittest.mock import patch

from learnloop_api.kinds.model_deployment import ModelDeploymentStatus
from learnloop_operator.rollout.judging.judgement import Judgement
from learnloop_operator.rollout.state.orders import OrderAnnotation
from learnloop_operator.rollout.steps import canary_steps, waits
from testing.state_walk.breadth_first import Graph, WalkResult, walk
from testing.state_walk.manual_rollout_graph import (
    PAUSED_STEP,
    WEIGHTS,
    SteeredNode,
    decided,
    deeds,
    done,
    first_node,
    key_of,
    passed,
    pending,
    spec,
    waited,
    written,
)
from testing.state_walk.rollout_graph import (
    LEAST_RATIO,
    MIN_EPISODES,
    MUTE,
    compared,
    log_evidence,
    revision_of,
    routing_of,
    step_of,
)
from testing.state_walk.rollout_walk import ended
from testing.state_walk.state_key import BROKEN
from testing.state_walk.table_shares import unfair

OBSERVATIONS = ("equal", "bad", "few", "away")
TOUCHING = ("equal", "bad", "away")
"""The observations that go with acts of people."""
UPWARD = ("promote", "skip")
SPEC = spec()


def explore(most_transitions: int) -> WalkResult:
    """Walk at most so many transitions from a deployment whose second model has just been asked for."""
    return walk(Graph("steered", first_node(SPEC), _next, key_of, ended, _judge, _go_on), most_transitions)


def explore_agreeing(most_transitions: int) -> WalkResult:
    """The same walk with every check answering yes: the oracle must object, or it sees nothing."""
    with patch.object(canary_steps, "judge_canary", lambda *_: Judgement(passed="yes")):
        return explore(most_transitions)


def explore_unasked(most_transitions: int) -> WalkResult:
    """The same walk with a pause that anybody passes."""
    anybody = OrderAnnotation("approve", "anybody")
    with (
        patch.object(canary_steps, "approval", lambda *_: anybody),
        patch.object(waits, "approval", lambda *_: anybody),
    ):
        return explore(most_transitions)


def _next(node: SteeredNode) -> Iterator[tuple[str, bool, SteeredNode]]:
    """The observation, whether everything works and people let it, and the node after it."""
    quiet = [(observation, "", True, 20) for observation in OBSERVATIONS] + [
        ("equal", "", True, 70),
        ("equal", "", False, 70),
    ]
    touched = [(observation, deed, True, 20) for deed, observation in product(deeds(node), TOUCHING)]
    before = ModelDeploymentStatus.model_validate(node.status)
    for observation, deed, ready, seconds in (*quiet, *touched):
        rig = done(waited(node, observation, ready, seconds), deed)
        plan = decided(rig, SPEC, observation, before)
        works = observation == "equal" and ready and deed in ("", _helpful(node))
        if not deed or observation == "equal":  # dying in the middle is tried where most is written
            yield observation, False, written(rig, plan, 1)
        yield observation, works, written(rig, plan, None)


def _helpful(node: SteeredNode) -> str:
    """The acts of people who want the rollout to go on."""
    if node.suspended:
        return "suspend"
    if (node.status.get("standingOrder") or {}).get("verb") == "pause":
        return "resume"
    return "approve" if step_of(node.status) == PAUSED_STEP else ""


def _go_on(node: SteeredNode) -> SteeredNode:
    return passed(done(waited(node, "equal", True, 20), _helpful(node)), SPEC, "equal")


def _judge(result: WalkResult, before: SteeredNode, observation: str, after: SteeredNode) -> None:
    old, new = before.status, after.status
    was, now, stable = revision_of(before, "canary"), revision_of(after, "canary"), revision_of(after, "stable")
    words, hand = pending(old, after.notes), (old.get("standingOrder") or {}).get("verb")
    promoted = bool(was) and stable == was
    rose = promoted or (bool(was) and was == now and step_of(new) > step_of(old))
    result.rollbacks += bool(new.get("blockedRevision")) and not old.get("blockedRevision")
    wrong = _risen_while_held(old, new, was == now, words, hand, after.suspended)
    if rose and step_of(old) >= 0:
        result.passes += 1
        result.promotions += promoted
        by_hand = hand in ("promote", "undo") or any(_of(words, verb) == was for verb in UPWARD)
        wrong += _by_hand(before, after, observation, hand) if by_hand else _unproven(before, after, observation, words)
    result.false_passes += [f"step {step_of(old) + 1}: {why} (seen: {observation})" for why in wrong]
    result.broken += _broken(before, after, words)


def _of(words: Mapping[str, str], verb: str) -> str:
    """The revision that an unanswered word names."""
    return words.get(verb, "").partition("/")[0]


def _risen_while_held(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    same: bool,
    words: Mapping[str, str],
    hand: str | None,
    suspended: bool,
) -> list[str]:
    """Nothing rises under a suspension, nor on hold before anybody says so."""
    if not same or not (step_of(new) > step_of(old) >= 0 or (new.get("weight") or 0) > (old.get("weight") or 0)):
        return []
    freed = {"resume", "restart"} & words.keys()
    claims = ((suspended, "rose while suspended"), (hand == "pause" and not freed, "rose while on hold"))
    return [why for is_wrong, why in claims if is_wrong]


def _by_hand(before: SteeredNode, after: SteeredNode, observation: str, hand: str | None) -> list[str]:
    """People go without missing evidence, never against what was found."""
    evidence, playing = log_evidence(after.status), 0 < (before.status.get("weight") or 0) < 100
    sure = evidence is not None and evidence[0] >= BROKEN and compared(after.status)[1] < LEAST_RATIO
    bad = observation == "bad" and playing and sure
    return ["raised by hand while a check was breached"] if bad and hand != "undo" else []


def _unproven(before: SteeredNode, after: SteeredNode, observation: str, words: Mapping[str, str]) -> list[str]:
    """The flaws of a step that was not passed by hand."""
    old, was = before.status, revision_of(before, "canary")
    episodes = after.counters[0] - old.get("stepBaseEpisodes", after.counters[0])
    together, ratio = compared(after.status if log_evidence(after.status) else old)
    approved = words.get("approve") in (was, f"{was}/{PAUSED_STEP + 1}")
    flaws = (
        (observation in MUTE, "no evidence at this look"),
        (episodes < MIN_EPISODES, f"{episodes:g} episodes"),
        (together < MIN_EPISODES, f"{together:g} episodes compared"),
        (ratio < LEAST_RATIO, f"a success of {ratio:.3g} of stable's"),
        (step_of(old) == PAUSED_STEP and not approved, "not approved"),
    )
    return [why for is_wrong, why in flaws if is_wrong]


def _broken(before: SteeredNode, after: SteeredNode, words: Mapping[str, str]) -> list[str]:
    """Weights above their step, stable below its floor, a blocked canary, and orders that were not obeyed."""
    status, canary, wrong = after.status, revision_of(after, "canary"), []
    table = routing_of(after).table
    if table and table.arms:
        wrong += unfair(table, WEIGHTS[max(0, step_of(status))] if canary else 100)
    was, block = revision_of(before, "canary"), revision_of(before, "blockedRevision")
    back = before.status.get("standingOrder") or {}
    if block and canary == block and was != block and "retry" not in words and back.get("verb") != "undo":
        wrong.append("a blocked revision came back without a retry")
    answered = {item["verb"]: item for item in status.get("decisions") or ()}
    abort = answered.get("abort", {})
    if was and abort.get("value") == after.notes.get("abort") and abort.get("outcome") == "obeyed" and canary == was:
        wrong.append("an abort was obeyed, and the canary is still there")
    return wrong
