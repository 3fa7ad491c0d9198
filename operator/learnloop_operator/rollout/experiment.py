"""One look at spec.experiment: the last arm in the race has won.

No arm is promoted without evidence against every other one that is left, nor before it is proven to keep every
guardrail. Every experiment ends: with a winner, with stable left alone, or at maxEpisodes or maxSeconds without either.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiment_arms import back_in_race, exhausted, fit, racing, standings, unready, watched
from learnloop_operator.rollout.judging.arms import world
from learnloop_operator.rollout.judging.experiment_arms import lacking, silences
from learnloop_operator.rollout.model.experiment_state import CANARY, ExperimentState, Player, asked_for, id_of
from learnloop_operator.rollout.model.rollout_state import (
    ArmState,
    NextState,
    State,
    happened,
    load_pins,
    of_revision,
    past,
)
from learnloop_operator.rollout.model.snapshot import Desired, Snapshot


def advance(snapshot: Snapshot, state: State, trial: ExperimentState) -> NextState:
    """One look at an experiment that has arms with pods."""
    wanted = snapshot.spec.experiment
    if wanted is None or id_of(wanted) != trial.id:
        sentence = f"experiment {trial.id} withdrawn with its spec; stable keeps serving"
        return _over(replace(state, experiment=finish(snapshot, trial, sentence)), sentence)
    trial, left = watched(snapshot, state, wanted, trial)
    if trial.phase == "Starting":
        return _starting(snapshot, state, trial, left)
    return _judged(snapshot, state, wanted, trial, left)


def _starting(snapshot: Snapshot, state: State, trial: ExperimentState, left: tuple[str, ...]) -> NextState:
    if not trial.challengers():
        return _none_left(snapshot, state, trial, left)
    missing = unready(snapshot, trial)
    if missing:
        text = "; ".join(left) + "; " if left else ""
        sentence = f"experiment: {text}waiting for the pods of {', '.join(missing)}"
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
    text = "; ".join(left or [f"{player.name} {player.message}" for player in trial.players[1:]])
    sentence = f"experiment over, stable keeps serving: {text}"
    return _over(replace(state, experiment=replace(finish(snapshot, trial, sentence), winner=None)), sentence)


def _over(state: State, sentence: str) -> NextState:
    message = happened(reasons.EXPERIMENT_OVER, sentence)
    return NextState(state, "Progressing", reasons.EXPERIMENT_OVER, sentence, message, again_after=0.0)


def _move(
    state: State, trial: ExperimentState, reason: str, sentence: str, left: tuple[str, ...], again_after: float
) -> NextState:
    """Going on, with an event for every arm that has just left."""
    events = tuple(
        note for text in left for note in happened(reasons.ARM_WITHDRAWN, f"experiment: {text}", warning=True)
    )
    after = replace(state, experiment=replace(trial, message=sentence))
    return NextState(after, "Progressing", reason, sentence, events, again_after=again_after)


# How an experiment ends: with a winner that takes over or waits for a person, or without one.


def finish(snapshot: Snapshot, trial: ExperimentState, sentence: str) -> ExperimentState:
    """The experiment without arms of its own; what was found stays on record."""
    now = stamp(snapshot.now)
    players = tuple(replace(player, since=now) if player.standing == "playing" else player for player in trial.players)
    return replace(trial, phase="Finished", players=players, finished_at=now, message=sentence)


def won(name: str, asked: Experiment, trial: ExperimentState, best: Player) -> ExperimentState:
    """The experiment whose winner is known; the others have left the race."""
    sentence = f"experiment won by {best.name} ({best.model.revision}): {standings(asked, trial)}"
    if asked.on_winner == "wait":
        sentence += f"; waiting for `kubectl learnloop promote {name}`"
    return replace(trial, phase="Won", winner=best.name, message=sentence)


def promote(
    snapshot: Snapshot, state: State, asked: Experiment, trial: ExperimentState, best: Player
) -> NextState | None:
    """Hand everything over to the winner, once it may be and has the pods for it: the arm becomes stable as it is, no
    pod restarts, and the old one stays warm. None: not yet."""
    enough = world(snapshot, best.model.revision).ready >= snapshot.spec.serving.replicas
    if not (trial.approved_by or asked.on_winner == "promote") or not enough or not best.ready or state.stable is None:
        return None
    now, by = stamp(snapshot.now), f", as {trial.approved_by} says" if trial.approved_by else ""
    sentence = f"promoted {best.name} ({best.model.revision}){by}: {standings(asked, trial)}"
    over = replace(finish(snapshot, trial, sentence), promoted_over=state.stable.revision)
    after = replace(
        state.without_canary(),
        stable=ArmState(best.model, best.since, was_ready=True),
        previous=state.stable,
        last_stable=past(state.stable),
        rollout_started_at=trial.started_at,
        promoted_at=now,
        experiment=over,
    )
    return NextState(
        after,
        "Guarding",
        reasons.PROMOTED,
        sentence,
        happened(reasons.PROMOTED, sentence),
        again_after=0.0,
        keep_table=True,
        data="",
    )


def outcome(snapshot: Snapshot) -> Desired:
    """The model to serve: an experiment's winner instead of the model it was promoted over.

    spec.model is the user's and stays as it is. So the outcome holds as long as the experiment stands in the spec and
    spec.model means what it meant then. A winner of spec.experiment that was rolled back is not wanted any more; one of
    a rollout's step stays wanted, and blocked: the canary it has beaten would otherwise try again forever.
    """
    wanted, result = snapshot.desired, snapshot.before.experiment
    if result is None or asked_for(snapshot.spec, result) is None or wanted.model is None:
        return wanted
    # While an experiment plays at a step, the canary is what is wanted: it may have won at an earlier one.
    name = CANARY if result.step is not None and (result.phase != "Finished" or not result.winner) else result.winner
    arm = next((arm for arm in result.arms if arm.name == name), None)
    if arm is None or result.promoted_over != wanted.model.revision:
        return wanted
    if result.step is None and of_revision(load_pins(snapshot.before), arm.revision):
        return wanted
    winner = replace(wanted.model, revision=arm.revision, uri=arm.uri, sha256=arm.sha256)
    return replace(wanted, model=winner, over=wanted.model.revision)


# What a person may say to an experiment: take an arm out, or promote the arm that has won.


Answered = tuple[str, NextState | None]


def take_out(snapshot: Snapshot, state: State, revision: str, by: str) -> Answered | None:
    """Withdraw one arm; the others go on. None where the revision is not a guest: a canary is rolled back."""
    trial, index = state.experiment, _place(state.experiment, revision)
    if trial is None or index is None:
        return None
    player = trial.players[index]
    why = f"aborted by {by}"
    after = trial.with_player(index, player.out("withdrawn", why, snapshot.now))
    sentence = f"experiment: {player.name} withdrawn: {why}"
    return sentence, _moved(state, replace(after, message=sentence), reasons.ARM_WITHDRAWN, sentence)


def let_win(state: State, revision: str, by: str) -> Answered | None:
    """Promote the winner that waits for it. Without a move: why not. None where the revision has no pods here."""
    trial, index = state.experiment, _place(state.experiment, revision)
    if trial is None or index is None:
        return None
    player = trial.players[index]
    if trial.step is not None:
        return f"{player.name} ({revision}) goes on when it wins the experiment of step {trial.step + 1}", None
    if trial.phase != "Won":
        problem = (
            f"{player.name} ({revision}) has not won the experiment: set spec.model to roll it out in steps instead"
        )
        return problem, None
    sentence = f"experiment: the winner {player.name} ({revision}) is promoted, as {by} says"
    return sentence, _moved(state, replace(trial, approved_by=by), reasons.EXPERIMENT_RUNNING, sentence)


def _place(trial: ExperimentState | None, revision: str) -> int | None:
    if trial is None:
        return None
    guests = [player.model.revision for player in trial.guests()]
    if revision not in guests:
        return None
    return next(index for index, player in enumerate(trial.players) if index and player.model.revision == revision)


def _moved(state: State, trial: ExperimentState, reason: str, sentence: str) -> NextState:
    after = replace(state, experiment=trial)
    return NextState(after, "Progressing", reason, sentence, happened(reason, sentence), again_after=0.0)
