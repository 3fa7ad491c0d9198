"""Orders of people: annotations as read, answers on record, four eyes, and overrides in the policy's place."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal
from urllib.parse import parse_qs

from pydantic import ValidationError

from learnloop_api.kinds.rollouts.rollout_steps import MOST_OVERRIDES, AnsweredDecision, OverrideStatus, Verb
from learnloop_api.names import ANNOTATION_AUTHOR, ANNOTATION_OVERRIDE, VERBS, verb_annotation
from learnloop_api.wire.routing import Override, RoutingTable
from learnloop_operator.core import plan, times
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot, spoken_by

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


VERB: Final = "override"
MOST_IN_FORCE = 16
LONGEST = timedelta(days=7)
RETENTION_SECONDS = 86_400.0
"""So long an override stays in the table after its end: no episode that it has touched counts after a longer time."""
FIELDS = frozenset({"instead", "agent", "for", "until", "reason", "choice", "numbers", "answer"})
NONE = "none"
_SECONDS = re.compile(r"[0-9]{1,7}", re.ASCII)


class UnusableOverride(ValueError):
    """The order cannot be obeyed; the message says why."""


def take_override(snapshot: Snapshot, state: State) -> State:
    """The state with its overrides as they are now, and with the answer to a new order."""
    remaining = _aged(state.overrides, snapshot.cluster_now)
    state = state if remaining == state.overrides else replace(state, overrides=remaining)
    value = snapshot.annotations.get(ANNOTATION_OVERRIDE)
    answered = next((item.value for item in reversed(state.decisions) if item.verb == VERB), None)
    if value is None or value == answered:
        return state
    head, _, by = value.partition(" by ")
    order = OrderAnnotation(VERB, value, by=by[:256] or None)
    try:
        fields = _fields(head.partition(" at ")[0].strip(), value)
        overrides, message = _ordered(snapshot, state, order, fields)
    except UnusableOverride as problem:
        return noted(snapshot, state, order, "ignored", str(problem))
    return noted(snapshot, replace(state, overrides=overrides), order, "obeyed", message)


def with_overrides(table: RoutingTable, live: RoutingTable | None, state: State) -> RoutingTable:
    """The table with what people have ordered: the live one where it says the same."""
    wanted = [_wire(item) for item in state.overrides] or None
    if wanted == table.overrides:
        return table
    generation = table.generation + (live is not None and table.generation == live.generation)
    return table.model_copy(update={"overrides": wanted, "generation": generation})


def in_force(state: State) -> list[OverrideStatus]:
    return [item for item in state.overrides if not item.over]


def next_end(state: State, now: datetime) -> float | None:
    """Seconds until the next one ends by itself."""
    ends = [moment for item in in_force(state) if (moment := times.parse(item.until)) is not None]
    return max(0.5, (min(ends) - now).total_seconds()) if ends else None


def sentence(item: OverrideStatus) -> str:
    """One override in words."""
    what = {"fixed": "one fixed answer", "fallback": "the fallback", "stop": "no answer"}[item.instead]
    who = item.by or "an unnamed person"
    return f"{item.agent or 'every agent'} gets {what} until {item.until}, as {who} ordered: {item.reason}"


def _fields(text: str, value: str) -> dict[str, str]:
    if len(value) >= plan.LONGEST_NOTE:  # the rest of it was not read
        raise UnusableOverride(
            f"the annotation has {plan.LONGEST_NOTE} characters or more: give a shorter reason or answer"
        )
    try:
        read = parse_qs(text, strict_parsing=True, max_num_fields=len(FIELDS))
    except ValueError:
        raise UnusableOverride(f"{text[:64]!r} is not an order: use kubectl learnloop override") from None
    if unknown := sorted(set(read) - FIELDS):
        raise UnusableOverride(f"{unknown[0][:64]!r} is not a field of an order: use {', '.join(sorted(FIELDS))}")
    if twice := [name for name, values in read.items() if len(values) > 1]:
        raise UnusableOverride(f"{twice[0]} is given twice")
    return {name: values[0] for name, values in read.items()}


def _ordered(
    snapshot: Snapshot, state: State, order: OrderAnnotation, fields: dict[str, str]
) -> tuple[tuple[OverrideStatus, ...], str]:
    """The overrides with the order obeyed, and what is said of it. Raises UnusableOverride."""
    agent, now = fields.get("agent"), times.stamp(snapshot.cluster_now)
    same = [item for item in state.overrides if item.agent == agent and not item.over]
    ended = tuple([_over(item, now) if item in same else item for item in state.overrides])
    subject = agent or "all agents"
    if fields.get("instead") == NONE:
        if not same:
            raise UnusableOverride(f"nothing is ordered for {subject}")
        return ended, f"the policy decides again for {subject}"
    item = _read(snapshot, order, fields, now)
    if len(in_force(state)) - len(same) >= MOST_IN_FORCE:
        raise UnusableOverride(f"{MOST_IN_FORCE} overrides are in force, the limit: end one first")
    after = (*ended, item)
    spare = [old for old in after if old.over][: max(0, len(after) - MOST_OVERRIDES)]
    return tuple([old for old in after if old not in spare]), sentence(item)


def _read(snapshot: Snapshot, order: OrderAnnotation, fields: dict[str, str], now: str) -> OverrideStatus:
    until = _end(fields, snapshot.cluster_now)
    if not fields.get("reason", "").strip():
        raise UnusableOverride("reason: missing; say why, for the record")
    instead = fields.get("instead")
    message = {name: fields[name] for name in ("choice", "answer") if name in fields}
    try:
        numbers = [float(item) for item in fields["numbers"].split(",")] if "numbers" in fields else None
    except ValueError:
        raise UnusableOverride(f"numbers: {fields['numbers'][:40]!r}: give numbers with commas between") from None
    given = len(message) + (numbers is not None)
    if given != (instead == "fixed"):
        raise UnusableOverride("instead: fixed takes one of choice, numbers and answer, and nothing else takes any")
    if instead == "fixed" and ("answer" in message) != (spoken_by(snapshot.spec) is not None):
        raise UnusableOverride(
            "a language model's fixed answer is `answer`, any other policy's is `choice` or `numbers`"
        )
    verified = True if order.by and snapshot.defaults.names_are_verified else None
    text = {"agent": fields.get("agent"), "instead": instead, "numbers": numbers, "reason": fields["reason"].strip()}
    try:
        choice = {"choice": int(message.pop("choice"))} if "choice" in message else {}
        item = OverrideStatus.model_validate(
            text | message | choice | {"since": now, "until": times.stamp(until), "by": order.by, "verified": verified}
        )
        _wire(item)
    except ValidationError as error:
        first = error.errors()[0]
        raise UnusableOverride(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]) from None
    except ValueError:
        raise UnusableOverride(f"choice: {fields['choice'][:40]!r} is not a whole number") from None
    return item


def _end(fields: dict[str, str], now: datetime) -> datetime:
    """When the order ends by itself, a whole second. Raises UnusableOverride."""
    if "for" in fields:
        span = fields["for"]
        if "until" in fields:
            raise UnusableOverride("until: for says it too: give one of the two")
        if not _SECONDS.fullmatch(span) or not timedelta() < timedelta(seconds=int(span)) <= LONGEST:
            raise UnusableOverride(f"for: {span[:40]!r} is not a number of seconds from 1 to seven days")
        return (now + timedelta(seconds=int(span) + 1)).replace(microsecond=0)
    until = times.parse(fields.get("until"))
    if until is None:
        raise UnusableOverride(
            f"until: {fields.get('until', '')[:40]!r} is not a time: give RFC 3339, e.g. 2026-01-31T12:00:00Z"
        )
    if not now < until <= now + LONGEST:
        raise UnusableOverride(f"until: {fields['until']} is not within the next seven days")
    return until


def _wire(item: OverrideStatus) -> Override:
    return Override.model_validate(item.model_dump(exclude={"verified"}))


def _aged(overrides: tuple[OverrideStatus, ...], now: datetime) -> tuple[OverrideStatus, ...]:
    """Without those that ended a day ago; the ones whose time has come are over."""
    remaining = []
    for item in overrides:
        until = times.parse(item.until)
        if until is None or (item.over and times.seconds_since(item.until, now) > RETENTION_SECONDS):
            continue
        ends = until <= now and not item.over
        remaining.append(item.model_copy(update={"over": True, "answer": None}) if ends else item)
    return tuple(remaining)


def _over(item: OverrideStatus, now: str) -> OverrideStatus:
    return item.model_copy(update={"over": True, "until": now, "answer": None})
