"""spec.experiment from its beginning to its end: n challengers next to stable, and the last arm in the race wins.

The winner is promoted like a canary, immediately or when a person says so. No arm is promoted without evidence against
every other one that is left. Every experiment ends: with a winner, with stable left alone, or at maxEpisodes or
maxSeconds without a winner.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.core.artifacts import foreign
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiments.evidence import fresh
from learnloop_operator.rollout.experiments.looks import (
    back_in_race,
    breaks_a_ratio,
    exhausted,
    lacking,
    racing,
    silences,
    standings,
    watched,
)
from learnloop_operator.rollout.experiments.state import STABLE, ExperimentState, Player, asked_for, id_of
from learnloop_operator.rollout.judging.analysis import world
from learnloop_operator.rollout.model.rollout_state import (
    ArmState,
    NextState,
    State,
    happened,
    load_pins,
    of_revision,
    past,
)
from learnloop_operator.rollout.model.rollout_state import sentence as why_blocked
from learnloop_operator.rollout.model.snapshot import Desired, Snapshot, model_here

# How it begins.


def due(snapshot: Snapshot, state: State) -> Experiment | None:
    """The experiment that has not run yet. It waits for a rollout and its guard to be over."""
    wanted = snapshot.spec.experiment
    if wanted is None or state.canary or state.previous:
        return None
    return wanted if state.experiment is None or state.experiment.id != id_of(wanted) else None


def begin(snapshot: Snapshot, state: State, stable: ArmState, asked: Experiment) -> NextState:
    """Create the arms. They get no episode before all of them have pods."""
    now = stamp(snapshot.now)
    players = [
        Player(arm.name, model_here(snapshot.spec, arm.uri, arm.sha256), arm.weight, since=now) for arm in asked.arms
    ]
    for index, player in enumerate(players):
        if problem := _problem(snapshot, state, stable, player):
            sentence = f"spec.experiment.arms[{index}]{problem}"
            return NextState(state, "Degraded", reasons.EXPERIMENT_INVALID, sentence, degraded=True)
    left = 100 - sum(player.weight for player in players)
    players.insert(0, Player(STABLE, stable.model, left, ready=stable.was_ready, since=now))
    named = ", ".join(f"{player.name} {player.weight} %" for player in players[1:])
    sentence = f"experiment {id_of(asked)} begins: {named}, stable {left} %; waiting for the arms' pods"
    trial = ExperimentState(
        id_of(asked),
        "Starting",
        tuple(replace(player, tally=tally) for player, tally in zip(players, fresh(len(players)), strict=True)),
        started_at=now,
        message=sentence,
    )
    events = happened(reasons.EXPERIMENT_STARTED, sentence)
    after = replace(state, experiment=trial)
    return NextState(after, "Progressing", reasons.EXPERIMENT_STARTED, sentence, events, again_after=5.0)


def _problem(snapshot: Snapshot, state: State, stable: ArmState, player: Player) -> str:
    """Why the arm cannot take part, as the rest of its field's path; "" when it can."""
    if player.model.revision == stable.revision:
        return f": {player.name} is the model that stable serves: stable is an arm already, remove it"
    if why := foreign(player.model.uri, snapshot.namespace):
        return f".uri: {why}"
    if pin := state.in_the_way(player.model):
        why = why_blocked(pin, player.model)
        return f": {player.name} was rolled back ({why}): remove it, or unblock {pin.revision} by retry"
    return ""


# One look at it.


def advance(snapshot: Snapshot, state: State, trial: ExperimentState) -> NextState:
    """One look at an experiment that has arms with pods."""
    wanted = asked_for(snapshot.spec, trial)
    if wanted is None:
        return _over(snapshot, state, trial, f"experiment {trial.id} withdrawn with its spec; stable keeps serving")
    trial, left = watched(snapshot, state, wanted, trial)
    if not trial.challengers():
        text = "; ".join(left or [f"{player.name} {player.message}" for player in trial.players[1:]])
        return _over(snapshot, state, replace(trial, winner=None), f"experiment over, stable keeps serving: {text}")
    if trial.phase == "Starting":
        return _starting(snapshot, state, trial, left)
    return _judged(snapshot, state, wanted, trial, left)


def _starting(snapshot: Snapshot, state: State, trial: ExperimentState, left: tuple[str, ...]) -> NextState:
    playing = trial.challengers()
    missing = [player.name for player in playing if not world(snapshot, player.model.revision).ready]
    if missing:
        text = "; ".join(left) + "; " if left else ""
        sentence = f"experiment: {text}waiting for the pods of {', '.join(missing)}"
        return _move(state, trial, reasons.WAITING_FOR_PODS, sentence, left, 5.0)
    begun = replace(trial, phase="Running", started_at=stamp(snapshot.now))
    sentence = f"experiment: every arm has its pods, the episodes are split among {len(playing) + 1} arms"
    # The shares are persisted first: the routing table never runs ahead of the status.
    return replace(_move(state, begun, reasons.EXPERIMENT_RUNNING, sentence, left, 0.0), keep_table=True)


def _judged(
    snapshot: Snapshot, state: State, asked: Experiment, trial: ExperimentState, left: tuple[str, ...]
) -> NextState:
    trial = back_in_race(asked, trial)
    left_in = racing(trial)
    mute = silences(snapshot, asked, trial)
    if trial.phase == "Won" or (len(left_in) == 1 and not left_in & set(mute)):
        best = trial.players[next(iter(left_in))]
        if trial.phase != "Won" and (why := breaks_a_ratio(snapshot, trial.players[0], best)):
            sentence = f"experiment over, stable keeps serving: {best.name} won and may not serve: {why}"
            return _over(snapshot, state, replace(trial, winner=None), sentence)
        trial = trial if trial.phase == "Won" else _won(snapshot.name, asked, trial, best)
        waiting = replace(_move(state, trial, reasons.WAITING_FOR_APPROVAL, trial.message, left, 5.0), phase="Paused")
        return _promote(snapshot, state, asked, trial, best) or waiting
    if limit := exhausted(snapshot, asked, trial):
        sentence = f"experiment over after {limit} without a winner: {standings(asked, trial)}; stable keeps serving"
        return _over(snapshot, state, trial, sentence)
    interval, problem = float(snapshot.spec.analysis.interval_seconds), snapshot.evidence.unavailable
    if problem:
        sentence = f"experiment: no evidence: {problem}; the split stays as it is"
        return replace(_move(state, trial, snapshot.evidence.reason, sentence, left, interval), data=problem)
    missing = lacking(snapshot, asked, trial)
    sentence = f"experiment: {standings(asked, trial)}{f'; {missing.text}' if missing else ''}"
    going_on = _move(state, trial, reasons.EXPERIMENT_RUNNING, sentence, left, interval)
    return replace(going_on, data=missing.text if missing else "", data_reason=missing.reason if missing else "")


def _move(
    state: State, trial: ExperimentState, reason: str, sentence: str, left: tuple[str, ...], again_after: float
) -> NextState:
    """Going on, with an event for every arm that has just left."""
    events = tuple(
        note for text in left for note in happened(reasons.ARM_WITHDRAWN, f"experiment: {text}", warning=True)
    )
    after = replace(state, experiment=replace(trial, message=sentence))
    return NextState(after, "Progressing", reason, sentence, events, again_after=again_after)


# How it ends: with a winner that takes over or waits for a person, or without one.


def _finished(snapshot: Snapshot, trial: ExperimentState, sentence: str) -> ExperimentState:
    """The experiment without arms of its own; the figures stay on record."""
    now = stamp(snapshot.now)
    players = tuple(replace(player, since=now) if player.standing == "playing" else player for player in trial.players)
    return replace(trial, phase="Finished", players=players, finished_at=now, message=sentence)


def _over(snapshot: Snapshot, state: State, trial: ExperimentState, sentence: str) -> NextState:
    after, events = replace(state, experiment=_finished(snapshot, trial, sentence)), reasons.EXPERIMENT_OVER
    return NextState(after, "Progressing", events, sentence, happened(events, sentence), again_after=0.0)


def _won(name: str, asked: Experiment, trial: ExperimentState, best: Player) -> ExperimentState:
    sentence = f"experiment won by {best.name} ({best.model.revision}): {standings(asked, trial)}"
    if asked.on_winner == "wait":
        sentence += f"; waiting for `kubectl learnloop promote {name}`"
    return replace(trial, phase="Won", winner=best.name, message=sentence)


def _promote(
    snapshot: Snapshot, state: State, asked: Experiment, trial: ExperimentState, best: Player
) -> NextState | None:
    """Promote the winner, once it may be and has the pods for it: the arm becomes stable as it is, no pod restarts,
    and the old one stays warm. None: not yet."""
    enough = world(snapshot, best.model.revision).ready >= snapshot.spec.serving.replicas
    if not (trial.approved_by or asked.on_winner == "promote") or not enough or not best.ready or state.stable is None:
        return None
    by = f", as {trial.approved_by} says" if trial.approved_by else ""
    sentence = f"promoted {best.name} ({best.model.revision}){by}: {standings(asked, trial)}"
    after = replace(
        state.without_canary(),
        stable=ArmState(best.model, best.since, was_ready=True),
        previous=state.stable,
        last_stable=past(state.stable),
        rollout_started_at=trial.started_at,
        promoted_at=stamp(snapshot.now),
        experiment=replace(_finished(snapshot, trial, sentence), promoted_over=state.stable.revision),
    )
    events = happened(reasons.PROMOTED, sentence)
    return NextState(after, "Guarding", reasons.PROMOTED, sentence, events, again_after=0.0, keep_table=True, data="")


def outcome(snapshot: Snapshot) -> Desired:
    """The model to serve: an experiment's winner instead of the model it was promoted over.

    spec.model is the user's and stays as it is. So the outcome holds as long as the experiment stands in the spec and
    spec.model means what it meant then. A winner that was rolled back is not wanted any more.
    """
    wanted, result = snapshot.desired, snapshot.before.experiment
    if result is None or asked_for(snapshot.spec, result) is None or wanted.model is None:
        return wanted
    arm = next((arm for arm in result.arms if arm.name == result.winner), None)
    if arm is None or result.promoted_over != wanted.model.revision:
        return wanted
    if of_revision(load_pins(snapshot.before), arm.revision):
        return wanted
    return replace(wanted, model=replace(wanted.model, revision=arm.revision, uri=arm.uri, sha256=arm.sha256))


# What a person may say to an experiment: take an arm out, or promote the arm that has won.

Answered = tuple[str, NextState | None]


def take_out(snapshot: Snapshot, state: State, revision: str, by: str) -> Answered | None:
    """Withdraw one challenger; the others go on. None where the revision is not one."""
    trial, index = state.experiment, _place(state.experiment, revision)
    if trial is None or index is None:
        return None
    player, why = trial.players[index], f"aborted by {by}"
    sentence = f"experiment: {player.name} withdrawn: {why}"
    after = replace(trial.with_player(index, player.out("withdrawn", why, snapshot.now)), message=sentence)
    return sentence, _ordered(state, after, reasons.ARM_WITHDRAWN, sentence)


def let_win(state: State, revision: str, by: str) -> Answered | None:
    """Promote the winner that waits for it. Without a move: why not. None where the revision is not a challenger."""
    trial, index = state.experiment, _place(state.experiment, revision)
    if trial is None or index is None:
        return None
    arm = f"{trial.players[index].name} ({revision})"
    if trial.phase != "Won":
        return f"{arm} has not won the experiment: set spec.model to roll it out in steps instead", None
    sentence = f"experiment: the winner {arm} is promoted, as {by} says"
    return sentence, _ordered(state, replace(trial, approved_by=by), reasons.EXPERIMENT_RUNNING, sentence)


def _place(trial: ExperimentState | None, revision: str) -> int | None:
    if trial is None or revision not in [player.model.revision for player in trial.challengers()]:
        return None
    return next(index for index, player in enumerate(trial.players) if index and player.model.revision == revision)


def _ordered(state: State, trial: ExperimentState, reason: str, sentence: str) -> NextState:
    after = replace(state, experiment=trial)
    return NextState(after, "Progressing", reason, sentence, happened(reason, sentence), again_after=0.0)
