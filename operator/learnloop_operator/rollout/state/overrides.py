"""Overrides: for a while a person's answer, the fallback or none in the policy's place."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

from pydantic import ValidationError

from learnloop_api.kinds.rollouts.rollout_steps import OverrideStatus
from learnloop_api.names import ANNOTATION_OVERRIDE
from learnloop_api.wire.routing import MOST_OVERRIDES, Override, RoutingTable
from learnloop_operator.core import plan, times
from learnloop_operator.rollout.state.orders import OrderAnnotation, noted
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot, spoken_by

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
