"""How an experiment begins: when it may, with which arms, and when these have their pods."""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import AnyExperiment, Experiment, ExperimentStep
from learnloop_operator.core.artifact_uris import foreign
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.best_arm_elimination import fresh
from learnloop_operator.rollout.checks.guardrails import GuardrailEvidence
from learnloop_operator.rollout.judging.arm_capacity import world
from learnloop_operator.rollout.model.blocked_models import sentence
from learnloop_operator.rollout.model.experiment_state import CANARY, STABLE, ExperimentState, Player, id_of
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.revision import model_here
from learnloop_operator.rollout.model.rollout_state import ArmState, State
from learnloop_operator.rollout.model.snapshot import Model, Snapshot


def due(snapshot: Snapshot, state: State) -> Experiment | None:
    """The experiment that has not run yet. It waits for a rollout and its guard to be over."""
    asked = snapshot.spec.experiment
    if asked is None or state.canary or state.previous:
        return None
    return asked if state.experiment is None or state.experiment.id != id_of(asked) else None


def begin(snapshot: Snapshot, state: State, stable: ArmState, asked: Experiment) -> NextState:
    """Create the arms. They get no episode before all of them have pods."""
    players = tuple(
        Player(arm.name, _model(snapshot, arm.uri, arm.sha256), arm.weight, since=stamp(snapshot.now))
        for arm in asked.arms
    )
    if problem := _problem(snapshot, state, stable, players):
        return NextState(state, "Degraded", reasons.EXPERIMENT_INVALID, problem, degraded=True)
    return _begun(state, _trial(snapshot, stable, asked, players))


def begin_step(
    snapshot: Snapshot, state: State, arms: tuple[ArmState, ArmState], step: int, weight: int, asked: ExperimentStep
) -> NextState:
    """Create the arms of an experiment at a step of a rollout: stable and the canary, which are there, and the guests.

    A guest that is one of the two is left out: an earlier winner may serve by now.
    """
    stable, canary = arms
    first = Player(CANARY, canary.model, weight, ready=canary.was_ready, since=stamp(snapshot.now))
    guests = (
        Player(arm.name, _model(snapshot, arm.uri, arm.sha256), arm.weight, since=stamp(snapshot.now))
        for arm in asked.arms
    )
    hosts = {stable.revision, canary.revision}
    players = (first, *(player for player in guests if player.model.revision not in hosts))
    trial = replace(_trial(snapshot, stable, asked, players), step=step, promoted_over=snapshot.desired.over)
    for player in trial.guests():
        stray = foreign(player.model.uri, snapshot.namespace)
        if why := (f"uri of {player.name}: {stray}" if stray else _rolled_back(state, player)):
            problem = f"spec.rollout.steps[{step}].experiment.arms: {why}"
            interval = float(snapshot.spec.analysis.interval_seconds)
            return NextState(
                state, "Degraded", reasons.EXPERIMENT_INVALID, problem, again_after=interval, degraded=True, data=""
            )
    return _begun(state, trial)


def _trial(snapshot: Snapshot, stable: ArmState, asked: AnyExperiment, players: tuple[Player, ...]) -> ExperimentState:
    left = 100 - sum(player.weight for player in players)
    first = Player(STABLE, stable.model, left, ready=stable.was_ready, since=stamp(snapshot.now))
    named = ", ".join(f"{player.name} {player.weight} %" for player in players)
    return ExperimentState(
        id_of(asked),
        "Starting",
        tuple(
            replace(player, tally=tally, guards=(GuardrailEvidence(),) * len(asked.guardrails))
            for player, tally in zip((first, *players), fresh(len(players) + 1), strict=True)
        ),
        started_at=stamp(snapshot.now),
        message=f"experiment {id_of(asked)} begins: {named}, stable {left} %; waiting for the arms' pods",
    )


def _begun(state: State, trial: ExperimentState) -> NextState:
    said = happened(reasons.EXPERIMENT_STARTED, trial.message)
    after = replace(state, experiment=trial)
    # A step's guests may have pods already, or there is none: nothing that happens would tell.
    soon = 5.0 if trial.guests() else 0.0
    return NextState(
        after,
        "Progressing",
        reasons.EXPERIMENT_STARTED,
        trial.message,
        said,
        again_after=soon,
        data=None if trial.step is None else "",
    )


def unready(snapshot: Snapshot, trial: ExperimentState) -> list[str]:
    """Names of the guests without a ready pod."""
    return [player.name for player in trial.guests() if not world(snapshot, player.model.revision).ready]


def _model(snapshot: Snapshot, uri: str, sha256: str | None) -> Model:
    return model_here(snapshot.spec, uri, sha256)


def _problem(snapshot: Snapshot, state: State, stable: ArmState, players: tuple[Player, ...]) -> str:
    for index, player in enumerate(players):
        field = f"spec.experiment.arms[{index}]"
        if player.model.revision == stable.revision:
            return f"{field}: {player.name} is the model that stable serves: stable is an arm already, remove it"
        if why := foreign(player.model.uri, snapshot.namespace):
            return f"{field}.uri: {why}"
        if why := _rolled_back(state, player):
            return f"{field}: {why}"
    return ""


def _rolled_back(state: State, player: Player) -> str:
    """What is blocked comes back as nobody's guest."""
    pin = state.in_the_way(player.model)
    if pin is None:
        return ""
    return (
        f"{player.name} was rolled back ({sentence(pin, player.model)}): remove it, or unblock {pin.revision} by retry"
    )
