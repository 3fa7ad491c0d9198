"""A step with an experiment: stable, the canary and perhaps more models play on a fixed split until one is best.

The canary goes on when it is proven best, and when all that the step asks for besides holds. Another winner takes its
place and must pass the steps that are left by evidence of its own. When stable wins, or no arm does, the canary is
rolled back. A person has the last word where the step pauses, and the choice where no arm has won.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import ExperimentStep
from learnloop_api.kinds.rollouts.rollout_steps import RolloutStep
from learnloop_operator.core.plan import Notice
from learnloop_operator.core.times import seconds_since, stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiment import finish
from learnloop_operator.rollout.experiment_arms import (
    back_in_race,
    begin_step,
    exhausted,
    fit,
    racing,
    standings,
    unready,
    watched,
)
from learnloop_operator.rollout.judging.arms import DRAIN_SECONDS, begun, canary_replicas, world
from learnloop_operator.rollout.judging.experiment_arms import lacking, silences
from learnloop_operator.rollout.model.experiment_state import CANARY, ExperimentState, Player, asked_for
from learnloop_operator.rollout.model.orders import noted, who
from learnloop_operator.rollout.model.rollout_state import ArmState, NextState, State, happened
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.rollout.steps.rollback_and_guard import roll_back
from learnloop_operator.rollout.steps.waits import approval, wait, wait_for_a_person, wait_for_time_and_people


def under_way(snapshot: Snapshot, state: State) -> tuple[ExperimentState, ExperimentStep] | None:
    """The experiment of the step the rollout is at, once it has begun and as long as the spec asks for it."""
    trial = state.experiment
    if trial is None or not trial.running or trial.step is None or trial.step != state.step:
        return None
    wanted = asked_for(snapshot.spec, trial)
    return (trial, wanted) if isinstance(wanted, ExperimentStep) else None


def watch_arms(snapshot: Snapshot, state: State) -> tuple[State, tuple[Notice, ...]]:
    """The state after the arms were looked at, whatever else the rollout waits for, and an event for each that left."""
    result = under_way(snapshot, state)
    if result is None:
        return state, ()
    trial, wanted = result
    trial, left = watched(snapshot, state, wanted, trial)
    trial = back_in_race(wanted, trial) if trial.phase == "Running" else trial
    message = (f"experiment: {text}" for text in left)
    notices = tuple(note for text in message for note in happened(reasons.ARM_WITHDRAWN, text, warning=True))
    return replace(state, experiment=trial), notices


def within_step(snapshot: Snapshot, move: NextState) -> NextState:
    """The move without an experiment whose step the rollout has left, or whose canary is gone, however that came."""
    trial, state = move.state.experiment, move.state
    if trial is None or not trial.running or trial.step is None:
        return move
    same = state.canary is not None and state.canary.revision == trial.players[1].model.revision
    if same and state.step == trial.step and snapshot.spec.rollout.steps[trial.step].experiment is not None:
        return move
    through = same and trial.winner == CANARY
    text = trial.message if through else f"experiment over without a winner: {move.sentence}"
    over = replace(finish(snapshot, trial, text), winner=CANARY if through else None)
    return replace(move, state=replace(state, experiment=over))


def lost_experiment(state: State) -> str:
    """Why the canary is out of the experiment of its step; "" while it is not."""
    trial = state.experiment
    if trial is None or not trial.running or trial.step is None or trial.step != state.step:
        return ""
    canary = trial.players[1]
    return "" if canary.standing == "playing" else f"the canary is {canary.message}"


def comes_from(state: State, step: int) -> bool:
    """Whether the canary won the experiment of this step, which it does not repeat."""
    trial = state.experiment
    if trial is None or trial.running or trial.step != step:
        return False
    return state.rollout_started_at == trial.started_at


def in_experiment(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, wanted: RolloutStep, asked: ExperimentStep
) -> NextState | State:
    """The next move at an experiment step. A state: the experiment lets the canary have its weight and go on."""
    result = under_way(snapshot, replace(state, step=step))
    if result is None:
        return _beginning(snapshot, state, canary, step, wanted, asked)
    trial, _ = result
    if trial.phase == "Starting":
        return _starting(snapshot, state, canary, step, wanted, trial)
    if not trial.challengers():
        text = "; ".join(f"{player.name} {player.message}" for player in trial.players[1:])
        return roll_back(snapshot, state, canary, reasons.EXPERIMENT_LOST, f"the experiment is over: {text}")
    if lost_experiment(state) and state.weight:
        sentence = f"experiment: {lost_experiment(state)} and gets no more episodes; the others go on"
        events = happened(reasons.WEIGHT_LOWERED, sentence)
        after = replace(state, weight=0, step_base=None)
        return NextState(after, "Progressing", reasons.EXPERIMENT_RUNNING, sentence, events, again_after=0.0, data="")
    if not lost_experiment(state) and state.weight != wanted.weight:
        return state  # its pods are back
    return _judged(snapshot, state, canary, step, wanted, trial, asked)


def _beginning(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, wanted: RolloutStep, asked: ExperimentStep
) -> NextState:
    assert state.stable is not None, "a canary needs a stable arm"
    old = state.experiment
    if old and old.running:
        sentence = f"experiment {old.id} withdrawn with its spec; another one begins"
        events = happened(reasons.EXPERIMENT_OVER, sentence)
        after = replace(state, experiment=finish(snapshot, old, sentence))
        return NextState(
            after, "Progressing", reasons.EXPERIMENT_OVER, sentence, events, again_after=DRAIN_SECONDS, data=""
        )
    rest = DRAIN_SECONDS - seconds_since(old.finished_at, snapshot.now) if old else 0.0
    if rest > 0.0:
        sentence = f"holding at {state.weight} %: the arms of the last experiment are still leaving"
        return wait(state, reasons.WAITING_FOR_PODS, sentence, max(rest, 0.5), "")
    return begin_step(snapshot, state, (state.stable, canary), step, wanted.weight, asked)


def _starting(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, wanted: RolloutStep, trial: ExperimentState
) -> NextState:
    """No arm gets an episode of the split before all of them have pods, and there is somebody to count."""
    at, evidence = f"experiment: holding at {state.weight} %", snapshot.evidence
    arm, needed = world(snapshot, canary.revision), canary_replicas(snapshot.spec, step)
    missing = [*([CANARY] if arm.ready < needed else []), *unready(snapshot, trial)]
    if missing:
        sentence = f"{at}: waiting for the pods of {', '.join(missing)}"
        return wait(state, reasons.WAITING_FOR_PODS, sentence, 5.0, "")
    if evidence.unavailable:
        interval, text = float(snapshot.spec.analysis.interval_seconds), evidence.unavailable
        return wait(state, evidence.reason, f"{at}: no evidence: {text}", interval, text)
    steps, arms = len(snapshot.spec.rollout.steps), len(trial.challengers()) + 1
    sentence = f"step {step + 1}/{steps}: an experiment among {arms} arms, {wanted.weight} % to the canary"
    after = replace(
        state.at_weight(wanted.weight, begun(state), snapshot.now),
        step=step,
        experiment=replace(trial, phase="Running", started_at=stamp(snapshot.now), message=sentence),
    )
    events = happened(reasons.WEIGHT_RAISED, sentence)
    # The shares are persisted first: the routing table never runs ahead of the status.
    return NextState(
        after, "Progressing", reasons.STEPPING, sentence, events, again_after=0.0, keep_table=True, data=""
    )


def _judged(
    snapshot: Snapshot,
    state: State,
    canary: ArmState,
    step: int,
    wanted: RolloutStep,
    trial: ExperimentState,
    asked: ExperimentStep,
) -> NextState | State:
    left, limit = racing(trial), exhausted(snapshot, asked, trial)
    first = next(iter(left), 0)
    interval = float(snapshot.spec.analysis.interval_seconds)
    mute = silences(snapshot, asked, trial)
    if trial.phase == "Won" or (len(left) == 1 and first and first not in mute and fit(asked, trial, first)):
        best = trial.players[first]
        sentence = f"experiment won by {best.name} ({best.model.revision}): {standings(asked, trial)}"
        state = replace(state, experiment=replace(trial, phase="Won", winner=best.name, message=sentence))
        if trial.phase != "Won":
            events = happened(reasons.EXPERIMENT_WON, sentence)
            return NextState(state, "Progressing", reasons.EXPERIMENT_WON, sentence, events, again_after=0.0, data="")
        if best.name == CANARY:
            return state
        patience = wait_for_time_and_people(snapshot, state, best.model.revision, step, wanted, sentence)
        return patience or _take_over(snapshot, state, canary, step, best, sentence)
    if limit:
        sentence = f"experiment over after {limit} without a winner: {standings(asked, trial)}"
        if not wanted.pause:
            return roll_back(snapshot, state, canary, reasons.NO_WINNER, sentence)
        return _chosen(snapshot, state, canary, step, trial, sentence)
    if problem := snapshot.evidence.unavailable:
        sentence = f"experiment: no evidence: {problem}; the split stays as it is"
        return wait(state, snapshot.evidence.reason, sentence, interval, problem)
    missing = lacking(snapshot, asked, trial)
    sentence = f"experiment: {standings(asked, trial)}{f'; {missing.text}' if missing else ''}"
    state = replace(state, experiment=replace(trial, message=sentence))
    going_on = wait(state, reasons.EXPERIMENT_RUNNING, sentence, interval, missing.text if missing else "")
    return replace(going_on, data_reason=missing.reason if missing else "")


def _chosen(
    snapshot: Snapshot, state: State, canary: ArmState, step: int, trial: ExperimentState, sentence: str
) -> NextState | State:
    """No arm has won: a person says who goes on, among the arms that are still in it, or rolls the canary back."""
    for player in trial.challengers():
        if approval(snapshot, state, player.model.revision, step) is None:
            continue
        words = f"{sentence}; {player.name} ({player.model.revision}) goes on by approval"
        state = replace(state, experiment=replace(trial, winner=player.name, message=words))
        return state if player.name == CANARY else _take_over(snapshot, state, canary, step, player, words)
    choice = ", ".join(f"{player.name} ({player.model.revision})" for player in trial.challengers())
    text = (
        f"{sentence}; waiting for `kubectl learnloop approve {snapshot.name} --arm ARM`, with one of {choice}, "
        f"or for `kubectl learnloop reject {snapshot.name}`"
    )
    state = replace(state, experiment=replace(trial, message=text))
    return wait_for_a_person(snapshot, state, snapshot.spec.rollout.steps[step], text)


def _take_over(snapshot: Snapshot, state: State, canary: ArmState, step: int, best: Player, sentence: str) -> NextState:
    """The winner is the canary from here on, with what it has played: its rollout began with the experiment."""
    trial, steps, now = state.experiment, snapshot.spec.rollout.steps, stamp(snapshot.now)
    assert trial is not None, "somebody has won"
    if steps[step].pause:
        word = approval(snapshot, state, best.model.revision, step)
        assert word is not None, "a pause ends with an approval"
        words = f"step {step + 1} passes with {best.name}: approved by {who(snapshot, word)}"
        state = noted(snapshot, state, word, "obeyed", words)
    text = f"{sentence}; {best.name} goes on in place of {canary.revision}"
    over = replace(finish(snapshot, trial, text), promoted_over=snapshot.desired.over or canary.revision)
    # At 100 % nothing is compared: the winner passes its own checks at the weight of this step first.
    at = step if steps[step + 1].weight == 100 else step + 1
    after = replace(
        state.without_canary(),
        canary=ArmState(best.model, best.since, best.ready),
        step=at,
        weight=min(best.weight if best.ready else 0, steps[at].weight),
        step_started_at=now,
        step_base=None,
        rollout_started_at=trial.started_at,
        experiment=over,
    )
    events = happened(reasons.SUPERSEDED, text)
    # The new canary is persisted first: the routing table never runs ahead of the status.
    return NextState(after, "Progressing", reasons.SUPERSEDED, text, events, again_after=0.0, keep_table=True, data="")
