"""Which episodes count for a step: those that ended in it, not those that were merely seen in it first.

Prometheus learns of an episode when it scrapes next. Whatever ended just before a step began shows up after it, so a
step's count starts from a sample that was taken when the step had begun. What ended between the two counts for
nobody: the mistake is on the careful side, and no longer than one scrape.
"""

from dataclasses import replace
from datetime import timedelta

from learnloop_operator.core.times import parse
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence
from learnloop_operator.rollout.model.rollout_state import State

STAMP = timedelta(seconds=1)
"""A step's beginning is on record in whole seconds, rounded down."""
SOON = 1.0
"""Seconds until the next look while a step waits for its first sample."""


def begun(state: State) -> int | None:
    """The base of a step that begins now; None where it has to be taken from a later sample. A canary that never had
    a weight has no episodes that could still show up."""
    return state.step_base if state.weight == 0 else None


def settled(state: State, canary: ArmEvidence | None) -> State:
    """The state with the step's base, as soon as every pod was scraped in this step. A count that shrank (pods that
    left) takes the base along; an older sample, of the other one of two Prometheus servers, does not."""
    total = canary.episodes if canary else 0
    if state.step_base is not None and state.step_base <= total:
        return state
    began = parse(state.step_started_at)
    if began is not None and (canary is None or canary.seen_at is None or canary.seen_at < began + STAMP):
        return state
    return replace(state, step_base=total)
