"""Which arms to ask Prometheus about, and since when."""

from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout.evidence.source import Window
from learnloop_operator.rollout.model.experiment_state import ExperimentState
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot

SHORTEST = 15.0
"""Seconds: `increase` needs two scrapes inside the window."""


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
        recent = 0 if at_first_weight(snapshot, state) else _seconds(state.step_started_at, snapshot)
        whole = since_rollout if recent else 0
        return (
            Window(state.canary.revision, since_rollout, whole, recent),
            Window(state.stable.revision, since_rollout, whole, recent),
            *_of_guests(snapshot, state.experiment),
        )
    if state.stable and state.previous:
        since_promotion = _seconds(state.promoted_at, snapshot)
        return (
            Window(state.stable.revision, since_promotion, since_rollout, since_promotion),
            Window(state.previous.revision, since_rollout),
        )
    return ()


def _of_guests(snapshot: Snapshot, trial: ExperimentState | None) -> tuple[Window, ...]:
    """The other arms of a step's experiment since they began to play."""
    if trial is None or trial.phase == "Starting":
        return ()
    seconds = _seconds(trial.started_at, snapshot)
    return tuple(Window(player.model.revision, seconds) for player in trial.guests())


def _of_experiment(snapshot: Snapshot, stable: str, trial: ExperimentState) -> tuple[Window, ...]:
    """All arms since they began to play."""
    if trial.phase == "Starting":
        return ()
    seconds = _seconds(trial.started_at, snapshot)
    revisions = (stable, *(player.model.revision for player in trial.challengers()))
    return tuple(Window(revision, seconds) for revision in revisions)


def at_first_weight(snapshot: Snapshot, state: State) -> bool:
    """No earlier step has got episodes; a step that was taken and whose weight was not raised yet has none either."""
    first = next((step.weight for step in snapshot.spec.rollout.steps if step.weight), 100)
    return state.weight <= first


def shadow_window(snapshot: Snapshot, state: State) -> Window | None:
    """While a canary is in shadow: its copies since the step began."""
    if state.canary is None or state.step is None or state.weight:
        return None
    if snapshot.spec.rollout.steps[state.step].shadow is None:
        return None
    return Window(state.canary.revision, _seconds(state.step_started_at, snapshot))


def _seconds(since: str | None, snapshot: Snapshot) -> int:
    return int(max(SHORTEST, seconds_since(since, snapshot.now)))
