"""How an experiment begins: when it may, with which arms, and when these have their pods."""

from dataclasses import replace

from learnloop_api.kinds.experiment import Experiment
from learnloop_operator.core.artifacts import foreign
from learnloop_operator.core.experiment.guardrails import Guard
from learnloop_operator.core.experiment.race import fresh
from learnloop_operator.core.experiment.state import STABLE, Player, Trial, id_of
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.capacity import world
from learnloop_operator.core.rollout.move import Move, happened
from learnloop_operator.core.rollout.revision import revision_of
from learnloop_operator.core.rollout.state import Arm, State
from learnloop_operator.core.rollout.world import Model, Snapshot
from learnloop_operator.core.times import stamp


def due(snapshot: Snapshot, state: State) -> Experiment | None:
    """The experiment that has not run yet. It waits for a rollout and its guard to be over."""
    asked = snapshot.spec.experiment
    if asked is None or state.canary or state.previous:
        return None
    return asked if state.experiment is None or state.experiment.id != id_of(asked) else None


def begin(snapshot: Snapshot, state: State, stable: Arm, asked: Experiment) -> Move:
    """Create the arms. They get no episode before all of them have pods."""
    players = tuple(
        Player(arm.name, _model(snapshot, arm.uri, arm.sha256), arm.weight, since=stamp(snapshot.now))
        for arm in asked.arms
    )
    if problem := _problem(snapshot, stable, players):
        return Move(state, "Degraded", reasons.EXPERIMENT_INVALID, problem, degraded=True)
    left = 100 - sum(player.weight for player in players)
    first = Player(STABLE, stable.model, left, ready=stable.was_ready, since=stamp(snapshot.now))
    tallies = fresh(len(players) + 1)
    named = ", ".join(f"{player.name} {player.weight} %" for player in players)
    sentence = f"experiment {id_of(asked)} begins: {named}, stable {left} %; waiting for the arms' pods"
    trial = Trial(
        id_of(asked),
        "Starting",
        tuple(
            replace(player, tally=tally, guards=(Guard(),) * len(asked.guardrails))
            for player, tally in zip((first, *players), tallies, strict=True)
        ),
        started_at=stamp(snapshot.now),
        message=sentence,
    )
    return Move(
        replace(state, experiment=trial),
        "Progressing",
        reasons.EXPERIMENT_STARTED,
        sentence,
        happened(reasons.EXPERIMENT_STARTED, sentence),
        again_after=5.0,
    )


def unready(snapshot: Snapshot, trial: Trial) -> list[str]:
    """Names of the challengers without a ready pod."""
    return [player.name for player in trial.challengers() if not world(snapshot, player.model.revision).ready]


def _model(snapshot: Snapshot, uri: str, sha256: str | None) -> Model:
    return Model(revision_of(uri, sha256, snapshot.spec.serving.pod), uri, sha256)


def _problem(snapshot: Snapshot, stable: Arm, players: tuple[Player, ...]) -> str:
    for index, player in enumerate(players):
        field = f"spec.experiment.arms[{index}]"
        if player.model.revision == stable.revision:
            return f"{field}: {player.name} is the model that stable serves: stable is an arm already, remove it"
        if why := foreign(player.model.uri, snapshot.namespace):
            return f"{field}.uri: {why}"
    return ""
