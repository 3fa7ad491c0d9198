"""Arms to watch: since when Prometheus is asked about each, what counts for a step, and whose pods the fast lane reads.

A step counts the episodes that ended in it, not those that were merely seen in it first. Prometheus learns of an
episode when it scrapes next. Whatever ended just before a step began shows up after it, so a step's count starts from a
sample that was taken when the step had begun. What ended between the two counts for neither: the mistake is on the
careful side, and no longer than one scrape.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from learnloop_api.names import PORT_PROBES
from learnloop_operator.core import conditions, times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Window
from learnloop_operator.rollout.fast_lane import FRESH, UNREACHABLE, UNUSABLE, Questions, breach, of_episodes
from learnloop_operator.rollout.state.experiment_state import ExperimentState
from learnloop_operator.rollout.state.rollout_state import State
from learnloop_operator.rollout.state.snapshot import Snapshot

SHORTEST = 15.0
"""Seconds: `increase` needs two scrapes inside the window."""
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
    began = times.parse(state.step_started_at)
    if began is not None and (canary is None or canary.scraped_at is None or canary.scraped_at < began + STAMP):
        return state
    return replace(state, step_base=total)


def windows(snapshot: Snapshot, state: State) -> tuple[Window, ...]:
    """While a canary is out both arms are compared over the whole rollout: at 100 % stable has no fresh episodes left.
    A guarded arm is watched since its promotion, against the old arm's figures of the rollout. An arm in shadow plays
    no episodes."""
    if shadow_window(snapshot, state) is not None:
        return ()
    if state.stable and not state.canary and state.experiment and state.experiment.running:
        return _of_experiment(snapshot, state.stable.revision, state.experiment)
    since_rollout = _seconds(state.rollout_started_at, snapshot)
    if state.stable and state.canary:
        # Asked before the first weight too: without a source of evidence the canary gets no episode.
        return Window(state.canary.revision, since_rollout), Window(state.stable.revision, since_rollout)
    if state.stable and state.previous:
        return (
            Window(state.stable.revision, _seconds(state.promoted_at, snapshot)),
            Window(state.previous.revision, since_rollout),
        )
    return ()


def young(snapshot: Snapshot, state: State) -> bool:
    """For its first seconds Prometheus' window also covers an earlier rollout of this revision, which may have failed:
    only the fast lane may roll back then."""
    return times.seconds_since(state.rollout_started_at, snapshot.now) < SHORTEST


def _of_experiment(snapshot: Snapshot, stable: str, trial: ExperimentState) -> tuple[Window, ...]:
    """All arms since they began to play."""
    if trial.phase == "Starting":
        return ()
    seconds = _seconds(trial.started_at, snapshot)
    revisions = (stable, *(player.model.revision for player in trial.challengers()))
    return tuple(Window(revision, seconds) for revision in revisions)


def shadow_window(snapshot: Snapshot, state: State) -> Window | None:
    """While a canary is in shadow: its copies since the step began."""
    if state.canary is None or state.step is None or state.weight:
        return None
    if snapshot.spec.rollout.steps[state.step].shadow is None:
        return None
    return Window(state.canary.revision, _seconds(state.step_started_at, snapshot))


def _seconds(since: str | None, snapshot: Snapshot) -> int:
    return int(max(SHORTEST, times.seconds_since(since, snapshot.now)))


# The fast lane.


READING, DISABLED, NOT_NEEDED = "Reading", "Disabled", "NotNeeded"
_ALONE = "Prometheus alone rolls a bad canary back"
_SENTENCES = {
    UNREACHABLE: (
        f"pods of the arm on trial do not answer the operator on port {PORT_PROBES}: let it through, if a "
        f"NetworkPolicy keeps it out; {_ALONE}"
    ),
    UNUSABLE: f"pods of the arm on trial answer without the counters of their revision: is their image older? {_ALONE}",
}


@dataclass(frozen=True, slots=True)
class WatchedArm:
    """An arm to read, the rollout it is on trial in, the percent of new episodes it gets, and the questions to it."""

    revision: str
    rollout: str
    weight: int
    questions: Questions


def watched_arms(snapshot: Snapshot, state: State) -> tuple[WatchedArm, ...]:
    """Arms to watch: the canary once it has pods, the promoted arm under guard, or the challengers of an experiment
    that runs."""
    if not snapshot.spec.analysis.fast_lane.enabled or state.stable is None:
        return ()
    if state.experiment and state.experiment.running and not state.canary:
        return _challengers(snapshot, state.experiment)
    if state.rollout_started_at is None:
        return ()
    if state.canary and (state.step is not None or snapshot.arm(state.canary.revision).ready):
        wanted = of_episodes(snapshot.spec, state.weight)
        return (WatchedArm(state.canary.revision, state.rollout_started_at, state.weight, wanted),)
    if state.previous and not state.canary:
        return (WatchedArm(state.stable.revision, state.rollout_started_at, 100, of_episodes(snapshot.spec, 100)),)
    return ()


def gross_breach(snapshot: Snapshot, state: State, revision: str, candidate_name: str) -> str:
    """Hard bounds that the arm's own counters break beyond doubt, in one sentence; "" for none or stale readings."""
    direct = snapshot.direct.get(revision)
    if direct is None or direct.last_read is None or abs(snapshot.now - direct.last_read) > FRESH:
        return ""
    wanted = next((item for item in watched_arms(snapshot, state) if item.revision == revision), None)
    if wanted is None or direct.revision != revision or direct.rollout != wanted.rollout:
        return ""
    return breach(wanted.questions, direct.alarms, candidate_name)


def breached(snapshot: Snapshot, state: State) -> bool:
    """Whether `decide` will roll an arm back for what its own counters say: nothing else need be asked."""
    return any(gross_breach(snapshot, state, revision, "the arm") for revision in snapshot.direct)


def _challengers(snapshot: Snapshot, trial: ExperimentState) -> tuple[WatchedArm, ...]:
    if not trial.started_at:
        return ()
    began, spec, arms = trial.started_at, snapshot.spec, len(trial.players) - 1
    return tuple(
        WatchedArm(revision, began, share, of_episodes(spec, share, arms)) for revision, share in trial.shares().items()
    )


def fast_lane_condition(snapshot: Snapshot) -> dict[str, Any]:
    """FastLane: True while pods are read; False where Prometheus has to do alone; Unknown with nothing on trial."""
    name, generation, direct = reasons.FAST_LANE, snapshot.generation, snapshot.direct
    if not snapshot.spec.analysis.fast_lane.enabled:
        text = f"spec.analysis.fastLane.enabled is false: {_ALONE}"
        return conditions.condition(name, conditions.FALSE, DISABLED, text, generation)
    if not direct:
        return conditions.condition(name, conditions.UNKNOWN, NOT_NEEDED, "no arm is on trial", generation)
    problem = next((item.problem for item in direct.values() if item.problem), "")
    if problem:
        return conditions.condition(name, conditions.FALSE, problem, _SENTENCES[problem], generation)
    return conditions.condition(
        name, conditions.TRUE, READING, "the pods of the arm on trial are read each second", generation
    )
