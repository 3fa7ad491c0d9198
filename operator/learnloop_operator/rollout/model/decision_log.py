"""The record of what people decided: kept short, never without the last answer to each verb."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from learnloop_api.kinds.rollouts.decision import AnsweredDecision
from learnloop_operator.core.plan import Notice
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.model.order_annotations import OrderAnnotation
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot

NEWEST = 10
Outcome = Literal["obeyed", "ignored", "refused"]
EVENT: Mapping[str, str] = {"obeyed": "DecisionObeyed", "ignored": "DecisionIgnored", "refused": "DecisionRefused"}


def noted(snapshot: Snapshot, state: State, word: OrderAnnotation, outcome: Outcome, message: str) -> State:
    """The state with one more decision on record."""
    verified = True if word.by and snapshot.defaults.names_are_verified else None
    decision = AnsweredDecision(
        verb=word.verb,
        revision=word.revision,
        step=word.step,
        by=word.by,
        verified=verified,
        at=stamp(snapshot.now),
        outcome=outcome,
        message=message[:1024],
        value=word.value,
    )
    return replace(state, decisions=_kept((*state.decisions, decision)))


def who(snapshot: Snapshot, word: OrderAnnotation) -> str:
    """The person in a sentence; a name that nobody checked is called a claim."""
    if not word.by:
        return "somebody who gave no name"
    return word.by if snapshot.defaults.names_are_verified else f"{word.by} (as claimed)"


def fresh(before: State, after: State) -> tuple[AnsweredDecision, ...]:
    """What was decided between the two."""
    return tuple(decision for decision in after.decisions if decision not in before.decisions)


def notices(decisions: Iterable[AnsweredDecision]) -> tuple[Notice, ...]:
    """Events."""
    return tuple(
        Notice("Normal" if item.outcome == "obeyed" else "Warning", EVENT[item.outcome], _told(item)[:1024])
        for item in decisions
    )


def audit(snapshot: Snapshot, decision: AnsweredDecision) -> dict[str, Any]:
    """One line of the audit log."""
    return {"kind": "ModelDeployment", "namespace": snapshot.namespace, "name": snapshot.name, **decision.to_kube()}


def _told(decision: AnsweredDecision) -> str:
    by = f" by {decision.by}" if decision.by else ""
    claim = " (as claimed)" if decision.by and not decision.verified else ""
    return f"{decision.verb} {decision.revision or ''}{by}{claim}: {decision.message}".replace("  ", " ")


def _kept(decisions: tuple[AnsweredDecision, ...]) -> tuple[AnsweredDecision, ...]:
    last = {decision.verb: index for index, decision in enumerate(decisions)}
    first = len(decisions) - NEWEST
    return tuple(item for index, item in enumerate(decisions) if index >= first or last[item.verb] == index)
