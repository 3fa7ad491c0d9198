"""Effects of each order on a rollout, and the reasons to refuse it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from learnloop_api.kinds.rollouts.decision import Hand, Verb
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiments.flow import let_win, take_out
from learnloop_operator.rollout.judging.analysis import judge_canary, observed, young
from learnloop_operator.rollout.judging.gates import canary_waits, closed, gates_of, untimely_word
from learnloop_operator.rollout.judging.shadow import judge_shadow
from learnloop_operator.rollout.model.orders import OrderAnnotation, Outcome, noted, one_pair, unanswered, who
from learnloop_operator.rollout.model.rollout_state import (
    ArmState,
    NextState,
    State,
    happened,
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an order. `move` alone: it is under way and will be answered when it is done."""

    outcome: Outcome | None
    message: str
    move: NextState | None = None


def ignored(message: str) -> Answer:
    """It fits nothing that is there."""
    return Answer("ignored", message)


def answer(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    """The answer to one value; None while it is too early to give one."""
    if word.problem:
        return ignored(word.problem)
    alone = one_pair(snapshot, word)
    return Answer("refused", alone) if alone else _ORDERS[word.verb](snapshot, state, word)


def _stray(state: State, word: OrderAnnotation) -> Answer | None:
    """The answer to a value that does not name the canary, or not the step it is at."""
    if state.canary is None:
        return ignored(f"{word.revision} is not being rolled out: no canary is under way")
    if word.revision != state.canary.revision:
        return ignored(f"{word.revision} is not being rolled out: the canary is {state.canary.revision}")
    if word.step is not None and word.step != (state.step or 0) + 1:
        return ignored(f"step {word.step} is not the current one: the canary is at step {(state.step or 0) + 1}")
    return None


def _is_blocked(state: State, word: OrderAnnotation) -> Answer | None:
    pin = of_revision(state.pins, word.revision)
    return Answer("obeyed", f"{word.revision} is rolled back: {pin.message}") if pin else None


def _rolling_back(move: NextState, sentence: str) -> Answer:
    return Answer("obeyed" if move.phase == "RolledBack" else None, sentence, move)


def _abort(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    taken_out = take_out(snapshot, state, word.revision or "", who(snapshot, word))
    if taken_out:
        return Answer("obeyed", *taken_out)
    why = f"aborted by {who(snapshot, word)}"
    if state.canary and state.canary.revision == word.revision:
        return _rolling_back(roll_back(snapshot, state, state.canary, reasons.ABORTED, why), f"rolled back: {why}")
    if state.previous and state.stable and state.stable.revision == word.revision:
        move = swap_back(snapshot, state, state.stable, state.previous, reasons.ABORTED, why)
        return _rolling_back(move, f"{state.previous.revision} serves again")
    return _is_blocked(state, word) or _stray(state, word) or ignored("nothing to roll back")


def _reject(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stray = _is_blocked(state, word) or _stray(state, word)
    if stray or state.canary is None:
        return stray
    step = state.step or 0
    if canary_waits(snapshot, state):
        why = f"its gates were rejected by {who(snapshot, word)}"
        return _rolling_back(roll_back(snapshot, state, state.canary, reasons.REJECTED, why), f"rolled back: {why}")
    if not snapshot.spec.rollout.steps[step].pause and state.hand is None:
        return ignored(
            f"step {step + 1} waits for no approval; `kubectl learnloop abort {snapshot.name}` rolls back the canary"
        )
    why = f"step {step + 1} was rejected by {who(snapshot, word)}"
    return _rolling_back(roll_back(snapshot, state, state.canary, reasons.REJECTED, why), f"rolled back: {why}")


def _undo(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stable, why = state.stable, f"undone by {who(snapshot, word)}"
    if stable is None or stable.revision != word.revision:
        canary = state.canary and state.canary.revision == word.revision
        return _is_blocked(state, word) or ignored(
            f"{word.revision} was not promoted yet: `kubectl learnloop abort {snapshot.name}` rolls it back"
            if canary
            else f"{word.revision} does not serve: stable is {stable.revision if stable else 'none'}"
        )
    if state.canary:
        if state.hand and state.hand.verb == "undo":
            return Answer("obeyed", f"already on the way back to {state.canary.revision}")
        return Answer("refused", f"the canary {state.canary.revision} is being rolled out: abort it first")
    if state.previous:
        move = swap_back(snapshot, state, stable, state.previous, reasons.UNDONE, why)
        return _rolling_back(move, f"{state.previous.revision} serves again")
    return _cold(snapshot, state, word, stable, why)


def _cold(snapshot: Snapshot, state: State, word: OrderAnnotation, stable: ArmState, why: str) -> Answer:
    """The old arm's pods are gone: start the recorded model again, and leave as soon as it can serve."""
    old = state.last_stable
    if old is None:
        return Answer("refused", "no earlier model is on record: set spec.model to the one that shall serve")
    back = model_here(snapshot.spec, old.uri, old.sha256)
    if back.revision == stable.revision:
        return Answer("refused", f"{stable.revision} is the earlier model already: set spec.model to go elsewhere")
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
    events = happened(reasons.REVERTED, sentence, warning=True)
    move = NextState(after, "Progressing", reasons.REVERTED, sentence, events, again_after=1.0)
    return Answer("obeyed", sentence, move)


def _pause(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stray = _stray(state, word)
    if stray:
        return stray
    if state.hand and state.hand.verb == "undo":
        return Answer(
            "refused", f"on the way back to the earlier model: `kubectl learnloop abort {snapshot.name}` stops that"
        )
    if state.hand and state.hand.verb == "pause":
        return Answer("obeyed", f"already on hold since {state.hand.at}")
    by = who(snapshot, word)
    sentence = f"on hold at {state.weight} % by {by}; `kubectl learnloop resume {snapshot.name}` lets it go on"
    after = replace(state, hand=Hand(verb="pause", by=by, at=stamp(snapshot.now)))
    return Answer("obeyed", sentence, NextState(after, "Paused", reasons.ON_HOLD, sentence, again_after=0.0, data=""))


def _resume(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stray = _stray(state, word)
    if stray:
        return stray
    if state.hand is None or state.hand.verb != "pause":
        return ignored("it is not on hold")
    sentence = f"goes on at {state.weight} %, as {who(snapshot, word)} says"
    return Answer("obeyed", sentence, _stepping(replace(state, hand=None), sentence))


def _restart(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stray = _is_blocked(state, word) and ignored(
        f"{word.revision} is blocked: `kubectl learnloop retry {snapshot.name}` tries it again"
    )
    stray = stray or _stray(state, word)
    if stray or state.canary is None:
        return stray
    if state.hand and state.hand.verb == "undo":
        return Answer(
            "refused", f"on the way back to the earlier model: `kubectl learnloop abort {snapshot.name}` stops that"
        )
    sentence = f"canary {word.revision} starts over at the first step, as {who(snapshot, word)} says"
    return Answer("obeyed", sentence, drop_canary(state, reasons.RESTARTED, sentence))


def _retry(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    pins, stable = state.pins, state.stable.model if state.stable else None
    gone = shown(pins, snapshot.desired.model, stable) if word.revision is None else of_revision(pins, word.revision)
    if not pins:
        return ignored("nothing is blocked")
    if gone is None:
        return ignored(f"{word.revision} is not blocked: {named(pins)} {'is' if len(pins) == 1 else 'are'}")
    left = () if word.everything else without(pins, gone)
    names = named(pins) if word.everything else gone.revision
    sentence = f"{names} may try again, as {who(snapshot, word)} says"
    events = happened(reasons.RETRYING, sentence)
    judged = state.gates if state.gates and state.gates.phase != "Failed" else None
    after = replace(state, pins=left, gates=judged)
    return Answer(
        "obeyed", sentence, NextState(after, "Progressing", reasons.RETRYING, sentence, events, again_after=0.0)
    )


def _skip(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    stopped = _ends_guard(snapshot, state, word) or _stray(state, word) or _too_bad(snapshot, state)
    if stopped:
        return stopped
    if state.step is None:
        return ignored("the canary's pods are not ready yet: no step can be skipped")
    step, steps = state.step, snapshot.spec.rollout.steps
    if step + 1 >= len(steps):
        return _promote(snapshot, state, word)
    sentence = f"step {step + 1}/{len(steps)} was skipped without its evidence by {who(snapshot, word)}"
    return Answer("obeyed", sentence, _stepping(replace(state, step=step + 1), sentence))


def _promote(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    if state.stable and state.stable.revision == word.revision and state.canary is None:
        return Answer("obeyed", f"{word.revision} is stable already")
    text = let_win(state, word.revision or "", who(snapshot, word))
    if text:
        return Answer("obeyed" if text[1] else "refused", *text)
    stopped = _ends_guard(snapshot, state, word) or _stray(state, word) or _too_bad(snapshot, state)
    if stopped:
        return stopped
    by = who(snapshot, word)
    sentence = f"{by} promotes {word.revision} by hand, without the evidence of the remaining steps"
    after = replace(state, hand=Hand(verb="promote", by=by, at=stamp(snapshot.now)))
    return Answer("obeyed", sentence, _stepping(after, sentence))


def _ends_guard(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    """The model that waits for the guard's end is named: it begins now, as a canary without episodes."""
    model = waiting(snapshot, state)
    if model is None or model.revision != word.revision or state.stable is None or state.previous is None:
        return None
    result = ended(snapshot, state, state.stable, state.previous, who(snapshot, word))
    return Answer("refused", result) if isinstance(result, str) else Answer("obeyed", result.sentence, result)


def _too_bad(snapshot: Snapshot, state: State) -> Answer | None:
    """Refuses to raise the weight of a canary that is on hold, or that a check has just found bad."""
    if state.hand and state.hand.verb == "pause":
        return Answer("refused", f"on hold by {state.hand.by}: resume it first")
    if state.hand:
        return ignored(f"{state.hand.verb} is under way already")
    begun = state.weight > 0 or (state.step or 0) > 0
    if state.canary and not begun and closed(snapshot, state, state.canary.revision):
        return Answer("refused", "its gates are not passed: wait for them")
    if state.canary is None or state.stable is None or state.step is None or young(snapshot, state):
        return None
    counted = observed(snapshot, state, state.canary)
    shadow = snapshot.spec.rollout.steps[state.step].shadow
    copies = judge_shadow(snapshot, counted, shadow).breach if shadow else ""
    breach = copies or judge_canary(snapshot, counted, state.canary, state.stable).breach
    return Answer("refused", f"a check is breached: {breach}") if breach else None


def _approve(snapshot: Snapshot, state: State, word: OrderAnnotation) -> Answer | None:
    """An approval is used where it is waited for; here only those are answered that no pause will ever ask for."""
    model = snapshot.desired.model
    if state.canary is None and model is not None and word.revision == model.revision and not state.in_the_way(model):
        return None
    gates = gates_of(snapshot, state)
    if gates is not None and word.step is None and _at_gates(snapshot, state, word):
        why = untimely_word(snapshot, state, gates, word)
        return Answer("refused", why) if why else None
    if word.step is not None and state.canary and word.step > (state.step or 0):
        return _stray(state, replace(word, step=None))
    return _stray(state, word)


def _at_gates(snapshot: Snapshot, state: State, word: OrderAnnotation) -> bool:
    """Whether the word is about a canary that its gates still judge, or will."""
    begun = state.weight > 0 or (state.step or 0) > 0
    named = state.canary is not None and state.canary.revision == word.revision
    return named and not begun and closed(snapshot, state, word.revision or "")


def _stepping(state: State, sentence: str) -> NextState:
    return NextState(state, "Progressing", reasons.STEPPING, sentence, again_after=0.0, data="")


_ORDERS: Mapping[Verb, Callable[[Snapshot, State, OrderAnnotation], Answer | None]] = {
    "abort": _abort,
    "reject": _reject,
    "undo": _undo,
    "pause": _pause,
    "restart": _restart,
    "retry": _retry,
    "resume": _resume,
    "skip": _skip,
    "promote": _promote,
    "approve": _approve,
}


# What people said since the last look: the most cautious order is obeyed, every value is answered once.


def listen(snapshot: Snapshot, state: State, to: frozenset[str] | None = None) -> tuple[State, NextState | None]:
    """The state with its answers on record, and the move of the order that is obeyed, if there is one. `to`: the verbs
    that are heard at present, all when left out; the others stay unanswered."""
    order: tuple[OrderAnnotation, Answer] | None = None
    for word in unanswered(snapshot.annotations, state.decisions):
        if to is not None and word.verb not in to:
            continue
        result = answer(snapshot, state, word)
        if result is None:
            continue
        if result.move is not None and order is not None:
            state = noted(snapshot, state, word, "ignored", f"{order[0].verb} was set at the same time and comes first")
        elif result.move is not None:
            order = (word, result)
        elif result.outcome is not None:
            state = noted(snapshot, state, word, result.outcome, result.message)
    if order is None or order[1].move is None:
        return state, None
    word, result = order
    # The move was made from the state before the answers: they go with it.
    if result.outcome is not None:
        state = noted(snapshot, state, word, result.outcome, result.message)
    move = result.move
    assert move is not None, "an order moves the rollout"
    return state, replace(move, state=replace(move.state, decisions=state.decisions))
