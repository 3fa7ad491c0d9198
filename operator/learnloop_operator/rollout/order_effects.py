"""Effects of each order on a rollout, and the reasons to refuse it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from learnloop_api.kinds.rollouts.rollout_steps import Hand, Verb
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import experiments, reasons
from learnloop_operator.rollout.judging import analysis, release_gates
from learnloop_operator.rollout.judging.shadow import judge_shadow
from learnloop_operator.rollout.model.orders_and_overrides import (
    OrderAnnotation,
    Outcome,
    noted,
    one_pair,
    unanswered,
    who,
)
from learnloop_operator.rollout.model.rollout_state import (
    ArmState,
    NextState,
    State,
    done,
    named,
    of_revision,
    shown,
    with_pin,
    without,
)
from learnloop_operator.rollout.model.snapshot import Snapshot, model_here
from learnloop_operator.rollout.steps.rollback_and_guard import (
    drop_canary,
    ended,
    pinned,
    roll_back,
    swap_back,
    waiting,
)

Answer = tuple[Outcome, str]
Effect = NextState | Answer | None
"""The move that obeys an order, or an answer that moves nothing; None: it is too early for one, or another rule's
turn. A move that is Degraded waits for pods: its order is answered when it is done."""
OrderRule = Callable[[Snapshot, State, OrderAnnotation], Effect]


def effect(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """The first rule of its verb that has an answer."""
    if word.problem:
        return "ignored", word.problem
    if alone := one_pair(snapshot, word):
        return "refused", alone
    return next((result for rule in ORDERS[word.verb] if (result := rule(snapshot, state, word))), None)


def _stray(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """A value that does not name the canary, or not the step it is at."""
    if state.canary is None:
        return "ignored", f"{word.revision} is not being rolled out: no canary is under way"
    if word.revision != state.canary.revision:
        return "ignored", f"{word.revision} is not being rolled out: the canary is {state.canary.revision}"
    if word.step is not None and word.step != (state.step or 0) + 1:
        return "ignored", f"step {word.step} is not the current one: the canary is at step {(state.step or 0) + 1}"
    return None


def _is_blocked(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    pin = of_revision(state.pins, word.revision)
    return ("obeyed", f"{word.revision} is rolled back: {pin.message}") if pin else None


def _goes_back(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    if state.hand is None or state.hand.verb != "undo":
        return None
    return "refused", f"on the way back to the earlier model: `kubectl learnloop abort {snapshot.name}` stops that"


def _takes_out(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    return experiments.take_out(snapshot, state, word.revision or "", who(snapshot, word))


def _aborts(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    why = f"aborted by {who(snapshot, word)}"
    if state.canary and state.canary.revision == word.revision:
        return roll_back(snapshot, state, state.canary, reasons.ABORTED, why)
    if state.previous and state.stable and state.stable.revision == word.revision:
        return swap_back(snapshot, state, state.stable, state.previous, reasons.ABORTED, why)
    return None


def _rejects(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    assert state.canary is not None, "a stray order has its answer"
    step = state.step or 0
    at_gates = release_gates.canary_waits(snapshot, state)
    if not at_gates and not snapshot.spec.rollout.steps[step].pause and state.hand is None:
        text = f"step {step + 1} waits for no approval; `kubectl learnloop abort {snapshot.name}` rolls back the canary"
        return "ignored", text
    subject = "its gates were" if at_gates else f"step {step + 1} was"
    why = f"{subject} rejected by {who(snapshot, word)}"
    return roll_back(snapshot, state, state.canary, reasons.REJECTED, why)


def _does_not_serve(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    stable, canary = state.stable, state.canary
    if stable and stable.revision == word.revision:
        return None
    if canary and canary.revision == word.revision:
        text = f"{word.revision} was not promoted yet: `kubectl learnloop abort {snapshot.name}` rolls it back"
        return _is_blocked(snapshot, state, word) or ("ignored", text)
    text = f"{word.revision} does not serve: stable is {stable.revision if stable else 'none'}"
    return _is_blocked(snapshot, state, word) or ("ignored", text)


def _undoes(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """Swap back to the old arm. Where its pods are gone, start the recorded model again, and leave as soon as it can
    serve."""
    stable, old, why = state.stable, state.last_stable, f"undone by {who(snapshot, word)}"
    assert stable is not None, "what does not serve has its answer"
    if state.canary:
        if state.hand and state.hand.verb == "undo":
            return "obeyed", f"already on the way back to {state.canary.revision}"
        return "refused", f"the canary {state.canary.revision} is being rolled out: abort it first"
    if state.previous:
        return swap_back(snapshot, state, stable, state.previous, reasons.UNDONE, why)
    if old is None:
        return "refused", "no earlier model is on record: set spec.model to the one that shall serve"
    back = model_here(snapshot.spec, old.uri, old.sha256)
    if back.revision == stable.revision:
        return "refused", f"{stable.revision} is the earlier model already: set spec.model to go elsewhere"
    sentence = f"{stable.revision} is {why}; {back.revision} ({back.uri}) starts and serves as soon as its pods can"
    now = stamp(snapshot.now)
    after = replace(
        state.without_canary(),
        canary=ArmState(back, now),
        rollout_started_at=now,
        promoted_at=None,
        pins=with_pin(state.pins, pinned(snapshot, stable, reasons.UNDONE, f"RolledBack after its promotion: {why}")),
        hand=Hand(verb="undo", by=who(snapshot, word), at=now),
    )
    return done(after, "Progressing", reasons.REVERTED, sentence, warning=True, again_after=1.0)


def _pauses(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    if state.hand and state.hand.verb == "pause":
        return "obeyed", f"already on hold since {state.hand.at}"
    by = who(snapshot, word)
    sentence = f"on hold at {state.weight} % by {by}; `kubectl learnloop resume {snapshot.name}` lets it go on"
    after = replace(state, hand=Hand(verb="pause", by=by, at=stamp(snapshot.now)))
    return NextState(after, "Paused", reasons.ON_HOLD, sentence, again_after=0.0, data="")


def _resumes(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    if state.hand is None or state.hand.verb != "pause":
        return "ignored", "it is not on hold"
    return _stepping(replace(state, hand=None), f"goes on at {state.weight} %, as {who(snapshot, word)} says")


def _needs_retry(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    if of_revision(state.pins, word.revision) is None:
        return None
    return "ignored", f"{word.revision} is blocked: `kubectl learnloop retry {snapshot.name}` tries it again"


def _restarts(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    sentence = f"canary {word.revision} starts over at the first step, as {who(snapshot, word)} says"
    return drop_canary(state, reasons.RESTARTED, sentence)


def _retries(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    pins, stable = state.pins, state.stable.model if state.stable else None
    gone = shown(pins, snapshot.desired.model, stable) if word.revision is None else of_revision(pins, word.revision)
    if not pins:
        return "ignored", "nothing is blocked"
    if gone is None:
        return "ignored", f"{word.revision} is not blocked: {named(pins)} {'is' if len(pins) == 1 else 'are'}"
    names = named(pins) if word.everything else gone.revision
    judged = state.gates if state.gates and state.gates.phase != "Failed" else None
    after = replace(state, pins=() if word.everything else without(pins, gone), gates=judged)
    return done(after, "Progressing", reasons.RETRYING, f"{names} may try again, as {who(snapshot, word)} says")


def _ends_guard(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """The model that waits for the guard's end is named: it begins now, as a canary without episodes."""
    model = waiting(snapshot, state)
    if model is None or model.revision != word.revision or state.stable is None or state.previous is None:
        return None
    result = ended(snapshot, state, state.stable, state.previous, who(snapshot, word))
    return ("refused", result) if isinstance(result, str) else result


def _too_bad(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """Refuses to raise the weight of a canary that is on hold, or that a check has just found bad."""
    if state.hand and state.hand.verb == "pause":
        return "refused", f"on hold by {state.hand.by}: resume it first"
    if state.hand:
        return "ignored", f"{state.hand.verb} is under way already"
    if _at_gates(snapshot, state, word):
        return "refused", "its gates are not passed: wait for them"
    if state.canary is None or state.stable is None or state.step is None or analysis.young(snapshot, state):
        return None
    counted = analysis.observed(snapshot, state, state.canary)
    shadow = snapshot.spec.rollout.steps[state.step].shadow
    copies = judge_shadow(snapshot, counted, shadow).breach if shadow else ""
    breach = copies or analysis.judge_canary(snapshot, counted, state.canary, state.stable).breach
    return ("refused", f"a check is breached: {breach}") if breach else None


def _skips(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    if state.step is None:
        return "ignored", "the canary's pods are not ready yet: no step can be skipped"
    step, steps = state.step, snapshot.spec.rollout.steps
    if step + 1 >= len(steps):
        return _promotes(snapshot, state, word)
    sentence = f"step {step + 1}/{len(steps)} was skipped without its evidence by {who(snapshot, word)}"
    return _stepping(replace(state, step=step + 1), sentence)


def _is_stable(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    same = state.stable and state.stable.revision == word.revision and state.canary is None
    return ("obeyed", f"{word.revision} is stable already") if same else None


def _wins(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    result = experiments.let_win(state, word.revision or "", who(snapshot, word))
    return ("refused", result) if isinstance(result, str) else result


def _promotes(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    by = who(snapshot, word)
    sentence = f"{by} promotes {word.revision} by hand, without the evidence of the remaining steps"
    return _stepping(replace(state, hand=Hand(verb="promote", by=by, at=stamp(snapshot.now))), sentence)


def _approves(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Effect:
    """An approval is used where it is waited for; here only those are answered that no pause will ever ask for."""
    model = snapshot.desired.model
    if state.canary is None and model is not None and word.revision == model.revision and not state.in_the_way(model):
        return None
    gates = release_gates.gates_of(snapshot, state)
    if gates is not None and word.step is None and _at_gates(snapshot, state, word):
        why = release_gates.untimely_word(snapshot, state, gates, word)
        return ("refused", why) if why else None
    if word.step is not None and state.canary and word.step > (state.step or 0):
        return _stray(snapshot, state, replace(word, step=None))
    return _stray(snapshot, state, word)


def _at_gates(snapshot: Snapshot, state: State, word: OrderAnnotation) -> bool:
    """Whether the word is about a canary that its gates still judge, or will."""
    begun = state.weight > 0 or (state.step or 0) > 0
    named = state.canary is not None and state.canary.revision == word.revision
    return named and not begun and release_gates.closed(snapshot, state, word.revision or "")


def _stepping(state: State, sentence: str) -> NextState:
    return NextState(state, "Progressing", reasons.STEPPING, sentence, again_after=0.0, data="")


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


def listen(snapshot: Snapshot, state: State, to: frozenset[str] | None = None) -> tuple[State, NextState | None]:
    """The state with the answers to all that people said since the last look, and the move of the most cautious order,
    if there is one. `to`: the verbs that are heard at present, all when left out; the others stay unanswered."""
    order: tuple[OrderAnnotation, NextState] | None = None
    for word in unanswered(snapshot.annotations, state.decisions):
        result = effect(snapshot, state, word) if to is None or word.verb in to else None
        if isinstance(result, NextState):
            if order is not None:
                text = f"{order[0].verb} was set at the same time and comes first"
                state = noted(snapshot, state, word, "ignored", text)
            order = order or (word, result)
        elif result is not None:
            state = noted(snapshot, state, word, *result)
    if order is None:
        return state, None
    word, move = order
    if move.phase != "Degraded":
        state = noted(snapshot, state, word, "obeyed", move.sentence)
    # The move was made from the state before the answers: they go with it.
    return state, replace(move, state=replace(move.state, decisions=state.decisions))
