"""Arms that the fast lane reads, and what it says of them."""

from dataclasses import dataclass
from typing import Any

from learnloop_api.names import PORT_PROBES
from learnloop_operator.core import conditions
from learnloop_operator.rollout import arm_pods, reasons
from learnloop_operator.rollout.fast_lane import FRESH, UNREACHABLE, UNUSABLE, Questions, breach, of_episodes
from learnloop_operator.rollout.model.experiment_state import ExperimentState
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot

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
    if state.canary and (state.step is not None or arm_pods.ready(snapshot, state.canary.revision)):
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
