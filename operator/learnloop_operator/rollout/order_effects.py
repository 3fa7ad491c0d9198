"""Effects of each order on a rollout, and the reasons to refuse it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from learnloop_api.kinds.rollouts.rollout_steps import StandingOrder, Verb
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.judging import judgement, release_gates, shadow_step, watched_arms
from learnloop_operator.rollout.state.experiment_state import ExperimentState
from learnloop_operator.rollout.state.orders import OrderAnnotation, Outcome, noted, one_pair, unanswered, who
from learnloop_operator.rollout.state.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    done,
    named,
    of_revision,
    shown,
    with_block,
    without,
)
from learnloop_operator.rollout.state.snapshot import Snapshot, model_here
from learnloop_operator.rollout.steps.rollback import block_of, drop_canary, roll_back, swap_back
from learnloop_operator.rollout.steps.stable_arm import ended, next_model

Answer = tuple[Outcome, str]
Effect = NextState | Answer | None
"""The move that obeys an order, or an answer that moves nothing; None: it is too early for one, or another rule's
turn. A move that is Degraded waits for pods: its order is answered when it is done."""
OrderRule = Callable[[Snapshot, State, OrderAnnotation], Effect]


def effect(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """The first rule of its verb that has an answer."""
    if order.problem:
        return "ignored", order.problem
    if alone := one_pair(snapshot, order):
        return "refused", alone
    return next((result for rule in ORDERS[order.verb] if (result := rule(snapshot, state, order))), None)


def _stray(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """A value that does not name the canary, or not the step it is at."""
    if state.canary is None:
        return "ignored", f"{order.revision} is not being rolled out: no canary is under way"
    if order.revision != state.canary.revision:
        return "ignored", f"{order.revision} is not being rolled out: the canary is {state.canary.revision}"
    if order.step is not None and order.step != (state.step or 0) + 1:
        return "ignored", f"step {order.step} is not the current one: the canary is at step {(state.step or 0) + 1}"
    return None


def _is_blocked(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    block = of_revision(state.blocks, order.revision)
    return ("obeyed", f"{order.revision} is rolled back: {block.message}") if block else None


def _goes_back(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    if state.standing_order is None or state.standing_order.verb != "undo":
        return None
    return "refused", f"rolling back to the earlier model: `kubectl learnloop abort {snapshot.name}` stops that"


def _take_out(snapshot: Snapshot, state: State, revision: str, by: str) -> NextState | None:
    """Withdraw one challenger; the others continue. None where the revision is not one."""
    trial, index = state.experiment, _challenger(state.experiment, revision)
    if trial is None or index is None:
        return None
    player, why = trial.players[index], f"aborted by {by}"
    sentence = f"experiment: {player.name} withdrawn: {why}"
    after = replace(trial.with_player(index, player.out("withdrawn", why, snapshot.now)), message=sentence)
    return done(replace(state, experiment=after), "Progressing", reasons.ARM_WITHDRAWN, sentence)


def _let_win(state: State, revision: str, by: str) -> NextState | str | None:
    """Promote the winner that waits for it, or say why not. None where the revision is not a challenger."""
    trial, index = state.experiment, _challenger(state.experiment, revision)
    if trial is None or index is None:
        return None
    arm = f"{trial.players[index].name} ({revision})"
    if trial.phase != "Won":
        return f"{arm} has not won the experiment: set spec.model to roll it out in steps instead"
    sentence, after = f"experiment: the winner {arm} is promoted, as {by} says", replace(trial, approved_by=by)
    return done(replace(state, experiment=after), "Progressing", reasons.EXPERIMENT_RUNNING, sentence)


def _challenger(trial: ExperimentState | None, revision: str) -> int | None:
    if trial is None or revision not in [player.model.revision for player in trial.challengers()]:
        return None
    return next(index for index, player in enumerate(trial.players) if index and player.model.revision == revision)


def _takes_out(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    return _take_out(snapshot, state, order.revision or "", who(snapshot, order))


def _aborts(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    why = f"aborted by {who(snapshot, order)}"
    if state.canary and state.canary.revision == order.revision:
        return roll_back(snapshot, state, state.canary, reasons.ABORTED, why)
    if state.previous and state.stable and state.stable.revision == order.revision:
        return swap_back(snapshot, state, state.stable, state.previous, reasons.ABORTED, why)
    return None


def _rejects(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    assert state.canary is not None, "a stray order is answered before"
    step = state.step or 0
    at_gates = release_gates.canary_waits(snapshot, state)
    if not at_gates and not snapshot.spec.rollout.steps[step].pause and state.standing_order is None:
        text = f"step {step + 1} waits for no approval; `kubectl learnloop abort {snapshot.name}` rolls back the canary"
        return "ignored", text
    subject = "its gates were" if at_gates else f"step {step + 1} was"
    why = f"{subject} rejected by {who(snapshot, order)}"
    return roll_back(snapshot, state, state.canary, reasons.REJECTED, why)


def _does_not_serve(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    stable, canary = state.stable, state.canary
    if stable and stable.revision == order.revision:
        return None
    if canary and canary.revision == order.revision:
        text = f"{order.revision} was not promoted yet: `kubectl learnloop abort {snapshot.name}` rolls it back"
        return _is_blocked(snapshot, state, order) or ("ignored", text)
    text = f"{order.revision} does not serve: stable is {stable.revision if stable else 'none'}"
    return _is_blocked(snapshot, state, order) or ("ignored", text)


def _undoes(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """Swap back to the old arm. Where its pods are gone, start the recorded model again, and leave as soon as it can
    serve."""
    stable, old, why = state.stable, state.last_stable, f"undone by {who(snapshot, order)}"
    assert stable is not None, "an order about another revision is answered before"
    if state.canary:
        if state.standing_order and state.standing_order.verb == "undo":
            return "obeyed", f"already rolling back to {state.canary.revision}"
        return "refused", f"the canary {state.canary.revision} is being rolled out: abort it first"
    if state.previous:
        return swap_back(snapshot, state, stable, state.previous, reasons.UNDONE, why)
    if old is None:
        return "refused", "no earlier model is on record: set spec.model to the one to serve"
    back = model_here(snapshot.spec, old.uri, old.sha256)
    if back.revision == stable.revision:
        return "refused", f"{stable.revision} is the earlier model already: set spec.model to serve another"
    sentence = f"{stable.revision} is {why}; {back.revision} ({back.uri}) starts and serves as soon as its pods can"
    now = stamp(snapshot.now)
    after = replace(
        state.without_canary(),
        canary=ArmState(back, now),
        rollout_started_at=now,
        promoted_at=None,
        blocks=with_block(
            state.blocks, block_of(snapshot, stable, reasons.UNDONE, f"RolledBack after its promotion: {why}")
        ),
        standing_order=StandingOrder(verb="undo", by=who(snapshot, order), at=now),
    )
    return done(after, "Progressing", reasons.REVERTED, sentence, warning=True, again_after=1.0)


def _pauses(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    if state.standing_order and state.standing_order.verb == "pause":
        return "obeyed", f"already on hold since {state.standing_order.at}"
    by = who(snapshot, order)
    sentence = f"on hold at {state.weight} % by {by}; `kubectl learnloop resume {snapshot.name}` continues it"
    after = replace(state, standing_order=StandingOrder(verb="pause", by=by, at=stamp(snapshot.now)))
    return NextState(after, "Paused", reasons.ON_HOLD, sentence, again_after=0.0, missing=COMPLETE)


def _resumes(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    if state.standing_order is None or state.standing_order.verb != "pause":
        return "ignored", "it is not on hold"
    return _stepping(
        replace(state, standing_order=None), f"continues at {state.weight} %, as {who(snapshot, order)} says"
    )


def _needs_retry(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    if of_revision(state.blocks, order.revision) is None:
        return None
    return "ignored", f"{order.revision} is blocked: `kubectl learnloop retry {snapshot.name}` tries it again"


def _restarts(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    sentence = f"canary {order.revision} starts over at the first step, as {who(snapshot, order)} says"
    return drop_canary(state, reasons.RESTARTED, sentence)


def _retries(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    blocks, stable = state.blocks, state.stable.model if state.stable else None
    gone = (
        shown(blocks, snapshot.desired.model, stable) if order.revision is None else of_revision(blocks, order.revision)
    )
    if not blocks:
        return "ignored", "nothing is blocked"
    if gone is None:
        return "ignored", f"{order.revision} is not blocked: {named(blocks)} {'is' if len(blocks) == 1 else 'are'}"
    names = named(blocks) if order.everything else gone.revision
    judged = state.gates if state.gates and state.gates.phase != "Failed" else None
    after = replace(state, blocks=() if order.everything else without(blocks, gone), gates=judged)
    return done(after, "Progressing", reasons.RETRYING, f"{names} may try again, as {who(snapshot, order)} says")


def _ends_guard(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """The model that waits for the guard's end is named: it begins now, as a canary without episodes."""
    model = next_model(snapshot, state)
    if model is None or model.revision != order.revision or state.stable is None or state.previous is None:
        return None
    result = ended(snapshot, state, state.stable, state.previous, who(snapshot, order))
    return ("refused", result) if isinstance(result, str) else result


def _too_bad(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """Refuses to raise the weight of a canary that is on hold, or that a check has just found bad."""
    if state.standing_order and state.standing_order.verb == "pause":
        return "refused", f"on hold by {state.standing_order.by}: resume it first"
    if state.standing_order:
        return "ignored", f"{state.standing_order.verb} is under way already"
    if _at_gates(snapshot, state, order):
        return "refused", "its gates are not passed: wait for them"
    if state.canary is None or state.stable is None or state.step is None or watched_arms.young(snapshot, state):
        return None
    counted = judgement.with_comparisons(snapshot, state, state.canary)
    shadow = snapshot.spec.rollout.steps[state.step].shadow
    copies = shadow_step.judge_shadow(snapshot, counted, shadow).breach if shadow else ""
    breach = copies or judgement.judge_canary(snapshot, counted, state.canary, state.stable).breach
    return ("refused", f"a check is breached: {breach}") if breach else None


def _skips(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    if state.step is None:
        return "ignored", "the canary's pods are not ready yet: no step can be skipped"
    step, steps = state.step, snapshot.spec.rollout.steps
    if step + 1 >= len(steps):
        return _promotes(snapshot, state, order)
    sentence = f"step {step + 1}/{len(steps)} was skipped without its evidence by {who(snapshot, order)}"
    return _stepping(replace(state, step=step + 1), sentence)


def _is_stable(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    same = state.stable and state.stable.revision == order.revision and state.canary is None
    return ("obeyed", f"{order.revision} is stable already") if same else None


def _wins(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    result = _let_win(state, order.revision or "", who(snapshot, order))
    return ("refused", result) if isinstance(result, str) else result


def _promotes(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    by = who(snapshot, order)
    sentence = f"{by} promotes {order.revision} by hand, without the evidence of the remaining steps"
    return _stepping(
        replace(state, standing_order=StandingOrder(verb="promote", by=by, at=stamp(snapshot.now))), sentence
    )


def _approves(snapshot: Snapshot, state: State, order: OrderAnnotation) -> Effect:
    """An approval is used where it is waited for; here only those are answered that no pause will ever ask for."""
    model = snapshot.desired.model
    if state.canary is None and model is not None and order.revision == model.revision and not state.in_the_way(model):
        return None
    gates = release_gates.gates_of(snapshot, state)
    if gates is not None and order.step is None and _at_gates(snapshot, state, order):
        why = release_gates.untimely_order(snapshot, state, gates, order)
        return ("refused", why) if why else None
    if order.step is not None and state.canary and order.step > (state.step or 0):
        return _stray(snapshot, state, replace(order, step=None))
    return _stray(snapshot, state, order)


def _at_gates(snapshot: Snapshot, state: State, order: OrderAnnotation) -> bool:
    """Whether the order is about a canary that its gates still judge, or will."""
    begun = state.weight > 0 or (state.step or 0) > 0
    named = state.canary is not None and state.canary.revision == order.revision
    return named and not begun and release_gates.closed(snapshot, state, order.revision or "")


def _stepping(state: State, sentence: str) -> NextState:
    return NextState(state, "Progressing", reasons.STEPPING, sentence, again_after=0.0, missing=COMPLETE)


ORDERS: Mapping[Verb, tuple[OrderRule, ...]] = {
    "abort": (_takes_out, _aborts, _is_blocked, _stray),
    "reject": (_is_blocked, _stray, _rejects),
    "undo": (_does_not_serve, _undoes),
    "pause": (_stray, _goes_back, _pauses),
    "restart": (_needs_retry, _stray, _goes_back, _restarts),
    "retry": (_retries,),
    "resume": (_stray, _resumes),
    "skip": (_ends_guard, _stray, _too_bad, _skips),
    "promote": (_is_stable, _wins, _ends_guard, _stray, _too_bad, _promotes),
    "approve": (_approves,),
}
"""The rules of each order, in their order: the first one that answers decides."""


def obey(snapshot: Snapshot, state: State, to: frozenset[str] | None = None) -> tuple[State, NextState | None]:
    """The state with the answers to all that people said since the last look, and the move of the most cautious order,
    if there is one. `to`: the verbs that are heard at present, all when left out; the others stay unanswered."""
    first: tuple[OrderAnnotation, NextState] | None = None
    for order in unanswered(snapshot.annotations, state.decisions):
        result = effect(snapshot, state, order) if to is None or order.verb in to else None
        if isinstance(result, NextState):
            if first is not None:
                text = f"{first[0].verb} was set at the same time and comes first"
                state = noted(snapshot, state, order, "ignored", text)
            first = first or (order, result)
        elif result is not None:
            state = noted(snapshot, state, order, *result)
    if first is None:
        return state, None
    order, move = first
    if move.phase != "Degraded":
        state = noted(snapshot, state, order, "obeyed", move.sentence)
    # The move was made from the state before the answers: they go with it.
    return state, replace(move, state=replace(move.state, decisions=state.decisions))
