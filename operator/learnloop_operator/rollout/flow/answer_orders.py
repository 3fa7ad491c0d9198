"""What people said since the last look: the most cautious order is obeyed, every value is answered once."""

from dataclasses import replace

from learnloop_operator.rollout.flow.order_effects import Answer, answer
from learnloop_operator.rollout.model.decision_log import noted
from learnloop_operator.rollout.model.next_state import NextState
from learnloop_operator.rollout.model.order_annotations import OrderAnnotation, unanswered
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot


def listen(snapshot: Snapshot, state: State, to: frozenset[str] | None = None) -> tuple[State, NextState | None]:
    """The state with its answers on record, and the move of the order that is obeyed, if there is one. `to`: the verbs
    that are heard at present, all when left out; the others stay unanswered."""
    order: tuple[OrderAnnotation, Answer] | None = None
    for word in unanswered(snapshot.annotations, state.decisions):
        if to is not None and word.verb not in to:
            continue
        found = answer(snapshot, state, word)
        if found is None:
            continue
        if found.move is not None and order is not None:
            state = noted(snapshot, state, word, "ignored", f"{order[0].verb} was set at the same time and comes first")
        elif found.move is not None:
            order = (word, found)
        elif found.outcome is not None:
            state = noted(snapshot, state, word, found.outcome, found.message)
    if order is None or order[1].move is None:
        return state, None
    word, found = order
    # The move was made from the state before the answers: they go with it.
    if found.outcome is not None:
        state = noted(snapshot, state, word, found.outcome, found.message)
    move = found.move
    assert move is not None, "an order moves the rollout"
    return state, replace(move, state=replace(move.state, decisions=state.decisions))
