"""What people wrote into the annotations, read: `WHAT[ at WHEN][ by WHO]`, with WHAT = `REVISION[/STEP]`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from learnloop_api.kinds.rollouts.decision import AnsweredDecision, Verb
from learnloop_api.names import VERBS, verb_annotation

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
        known = revision if _REVISION.fullmatch(revision) else None
        return OrderAnnotation(verb, value, known, by=who, everything=what == "all")
    if not _REVISION.fullmatch(revision):
        return OrderAnnotation(
            verb, value, by=who, problem=f"{what[:64]!r} names no revision: set REVISION or REVISION/STEP"
        )
    if slash and not _STEP.fullmatch(step):
        problem = f"{step[:64]!r} is no step: set a number from 1, or the revision alone"
        return OrderAnnotation(verb, value, revision, by=who, problem=problem)
    return OrderAnnotation(verb, value, revision, int(step) if slash else None, who)


def unanswered(annotations: Mapping[str, str], decisions: Iterable[AnsweredDecision]) -> list[OrderAnnotation]:
    """The values that were not answered yet, most cautious first."""
    if not annotations:
        return []
    answered = {decision.verb: decision.value for decision in decisions}
    found = []
    for verb, annotation in _ANNOTATIONS:
        value = annotations.get(annotation)
        if value is not None and value != answered.get(verb):  # type: ignore[call-overload]
            found.append(read(verb, value))  # type: ignore[arg-type]
    return found
