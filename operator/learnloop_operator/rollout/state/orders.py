"""Orders of people: annotations as read, answers on record, and four eyes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from learnloop_api.kinds.rollouts.rollout_steps import AnsweredDecision, Verb
from learnloop_api.names import ANNOTATION_AUTHOR, VERBS, verb_annotation
from learnloop_operator.core import plan, times
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot

_REVISION = re.compile(r"[0-9a-f]{8}")
_STEP = re.compile(r"[1-9][0-9]{0,2}")
_ANNOTATIONS = tuple((verb, verb_annotation(verb)) for verb in VERBS)


@dataclass(frozen=True, slots=True)
class OrderAnnotation:
    """One annotation's value. `revision` is None where it names none; `step` counts from 1."""

    verb: Verb
    value: str
    revision: str | None = None
    step: int | None = None
    by: str | None = None
    everything: bool = False
    """retry: all that is blocked, not one."""
    problem: str = ""
    """Why it cannot be obeyed, whatever the rollout does."""


def read(verb: Verb, value: str) -> OrderAnnotation:
    """The value's parts. Everything after the first ` by ` is the name: the admission policy compares just that."""
    head, _, by = value.partition(" by ")
    what = head.partition(" at ")[0].strip()
    revision, slash, step = what.partition("/")
    who = by[:256] or None
    if verb == "retry":
        recorded = revision if _REVISION.fullmatch(revision) else None
        return OrderAnnotation(verb, value, recorded, by=who, everything=what == "all")
    if not _REVISION.fullmatch(revision):
        return OrderAnnotation(
            verb, value, by=who, problem=f"{what[:64]!r} names no revision: set REVISION or REVISION/STEP"
        )
    if slash and not _STEP.fullmatch(step):
        problem = f"{step[:64]!r} is not a step: set a number from 1, or the revision alone"
        return OrderAnnotation(verb, value, revision, by=who, problem=problem)
    return OrderAnnotation(verb, value, revision, int(step) if slash else None, who)


def unanswered(annotations: Mapping[str, str], decisions: Iterable[AnsweredDecision]) -> list[OrderAnnotation]:
    """The values that were not answered yet, most cautious first."""
    if not annotations:
        return []
    answered = {decision.verb: decision.value for decision in decisions}
    result = []
    for verb, annotation in _ANNOTATIONS:
        value = annotations.get(annotation)
        if value is not None and value != answered.get(verb):  # type: ignore[call-overload]
            result.append(read(verb, value))  # type: ignore[arg-type]
    return result


# The record of what people decided: kept short, never without the last answer to each verb.


NEWEST = 10
Outcome = Literal["obeyed", "ignored", "refused"]
EVENT: Mapping[str, str] = {"obeyed": "DecisionObeyed", "ignored": "DecisionIgnored", "refused": "DecisionRefused"}


def noted(snapshot: Snapshot, state: State, order: OrderAnnotation, outcome: Outcome, message: str) -> State:
    """The state with one more decision on record."""
    verified = True if order.by and snapshot.defaults.names_are_verified else None
    decision = AnsweredDecision(
        verb=order.verb,
        revision=order.revision,
        step=order.step,
        by=order.by,
        verified=verified,
        at=times.stamp(snapshot.now),
        outcome=outcome,
        message=message[:1024],
        value=order.value,
    )
    return replace(state, decisions=_retained((*state.decisions, decision)))


def who(snapshot: Snapshot, order: OrderAnnotation) -> str:
    """The person in a sentence; an unverified name is called a claim."""
    if not order.by:
        return "an unnamed person"
    return order.by if snapshot.defaults.names_are_verified else f"{order.by} (as claimed)"


def fresh(before: State, after: State) -> tuple[AnsweredDecision, ...]:
    """Decisions made between the two."""
    return tuple(decision for decision in after.decisions if decision not in before.decisions)


def notices(decisions: Iterable[AnsweredDecision]) -> tuple[plan.Notice, ...]:
    return tuple(
        plan.Notice("Normal" if item.outcome == "obeyed" else "Warning", EVENT[item.outcome], _sentence(item)[:1024])
        for item in decisions
    )


def _sentence(decision: AnsweredDecision) -> str:
    by = f" by {decision.by}" if decision.by else ""
    claim = " (as claimed)" if decision.by and not decision.verified else ""
    return f"{decision.verb} {decision.revision or ''}{by}{claim}: {decision.message}".replace("  ", " ")


def _retained(decisions: tuple[AnsweredDecision, ...]) -> tuple[AnsweredDecision, ...]:
    last = {decision.verb: index for index, decision in enumerate(decisions)}
    first = len(decisions) - NEWEST
    return tuple(item for index, item in enumerate(decisions) if index >= first or last[item.verb] == index)


# Four eyes: who has written what is rolled out does not let it on.
#
# The API server does not tell an operator who wrote a spec. As with decisions, an annotation carries the name, and the
# chart's admission policy lets no one write another's (docs/decisions/0011-verified-authors-of-decisions.md).


RAISING = ("approve", "promote", "skip")
"""Orders that let a canary on without evidence, or past a pause. Rolling back needs no second person."""


def one_pair(snapshot: Snapshot, order: OrderAnnotation) -> str:
    """Why two people have not looked yet; "" when they have, or need not."""
    if not snapshot.defaults.four_eyes or order.verb not in RAISING:
        return ""
    author = snapshot.annotations.get(ANNOTATION_AUTHOR, "")
    if not author:
        return (
            f"approvals.fourEyes is on, and the spec is not signed: its author sets {ANNOTATION_AUTHOR} to "
            "their name first"
        )
    if not order.by:
        return "approvals.fourEyes is on, and this names no one: use kubectl learnloop, or end it with ' by NAME'"
    if order.by == author:
        return f"approvals.fourEyes is on, and {author} wrote this spec: another person must order it"
    return ""
