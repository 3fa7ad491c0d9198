"""One look at spec.experiment: the last arm in the race has won.

No arm is promoted without evidence against every other one that is left, nor before it is proven to keep every
guardrail. Every experiment ends: with a winner, with stable left alone, or at maxEpisodes or maxSeconds without either.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiment.finish import finish, promote, won
from learnloop_operator.rollout.experiment.sentence import standings
from learnloop_operator.rollout.experiment.start import unready
from learnloop_operator.rollout.experiment.withdraw_arms import back_in_race, exhausted, fit, racing, watched
from learnloop_operator.rollout.judging.experiment_arms import lacking, silences
from learnloop_operator.rollout.model.experiment_state import ExperimentState, id_of
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot


def advance(snapshot: Snapshot, state: State, trial: ExperimentState) -> NextState:
    """One look at an experiment that has arms with pods."""
    asked = snapshot.spec.experiment
    if asked is None or id_of(asked) != trial.id:
        sentence = f"experiment {trial.id} withdrawn with its spec; stable keeps serving"
        return _over(replace(state, experiment=finish(snapshot, trial, sentence)), sentence)
    trial, left = watched(snapshot, state, asked, trial)
    if trial.phase == "Starting":
        return _starting(snapshot, state, trial, left)
    return _judged(snapshot, state, asked, trial, left)


def _starting(snapshot: Snapshot, state: State, trial: ExperimentState, left: tuple[str, ...]) -> NextState:
    if not trial.challengers():
        return _none_left(snapshot, state, trial, left)
    missing = unready(snapshot, trial)
    if missing:
        said = "; ".join(left) + "; " if left else ""
        sentence = f"experiment: {said}waiting for the pods of {', '.join(missing)}"
        return _move(state, trial, reasons.WAITING_FOR_PODS, sentence, left, 5.0)
    begun = replace(trial, phase="Running", started_at=stamp(snapshot.now))
    sentence = f"experiment: every arm has its pods, the episodes are split among {len(trial.challengers()) + 1} arms"
    # The shares are persisted first: the routing table never runs ahead of the status.
    return replace(_move(state, begun, reasons.EXPERIMENT_RUNNING, sentence, left, 0.0), keep_table=True)


def _judged(
    snapshot: Snapshot, state: State, asked: Experiment, trial: ExperimentState, left: tuple[str, ...]
) -> NextState:
    if not trial.challengers():
        return _none_left(snapshot, state, trial, left)
    trial = back_in_race(asked, trial)
    left_in = racing(trial)
    mute = silences(snapshot, asked, trial)
    if trial.phase == "Won" or (len(left_in) == 1 and not left_in & set(mute) and fit(asked, trial, *left_in)):
        best = trial.players[next(iter(left_in))]
        trial = trial if trial.phase == "Won" else won(snapshot.name, asked, trial, best)
        return promote(snapshot, state, asked, trial, best) or _waiting(state, trial, left)
    if limit := exhausted(snapshot, asked, trial):
        sentence = f"experiment over after {limit} without a winner: {standings(asked, trial)}; stable keeps serving"
        return _over(replace(state, experiment=finish(snapshot, trial, sentence)), sentence)
    interval = float(snapshot.spec.analysis.interval_seconds)
    problem = snapshot.evidence.unavailable
    if problem:
        sentence = f"experiment: no evidence: {problem}; the split stays as it is"
        return replace(_move(state, trial, snapshot.evidence.reason, sentence, left, interval), data=problem)
    missing = lacking(snapshot, asked, trial)
    sentence = f"experiment: {standings(asked, trial)}{f'; {missing.text}' if missing else ''}"
    going_on = _move(state, trial, reasons.EXPERIMENT_RUNNING, sentence, left, interval)
    return replace(going_on, data=missing.text if missing else "", data_reason=missing.reason if missing else "")


def _waiting(state: State, trial: ExperimentState, left: tuple[str, ...]) -> NextState:
    move = _move(state, trial, reasons.WAITING_FOR_APPROVAL, trial.message, left, 5.0)
    return replace(move, phase="Paused")


def _none_left(snapshot: Snapshot, state: State, trial: ExperimentState, left: tuple[str, ...]) -> NextState:
    said = "; ".join(left or [f"{player.name} {player.message}" for player in trial.players[1:]])
    sentence = f"experiment over, stable keeps serving: {said}"
    return _over(replace(state, experiment=replace(finish(snapshot, trial, sentence), winner=None)), sentence)


def _over(state: State, sentence: str) -> NextState:
    told = happened(reasons.EXPERIMENT_OVER, sentence)
    return NextState(state, "Progressing", reasons.EXPERIMENT_OVER, sentence, told, again_after=0.0)


def _move(
    state: State, trial: ExperimentState, reason: str, sentence: str, left: tuple[str, ...], again_after: float
) -> NextState:
    """Going on, with an event for every arm that has just left."""
    events = tuple(
        note for said in left for note in happened(reasons.ARM_WITHDRAWN, f"experiment: {said}", warning=True)
    )
    after = replace(state, experiment=replace(trial, message=sentence))
    return NextState(after, "Progressing", reason, sentence, events, again_after=again_after)
