"""How an experiment ends: with a winner that takes over or waits for a person, or without one."""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.experiment.sentence import standings
from learnloop_operator.rollout.judging.arm_capacity import world
from learnloop_operator.rollout.model.blocked_models import load as load_pins
from learnloop_operator.rollout.model.blocked_models import of_revision
from learnloop_operator.rollout.model.experiment_state import CANARY, ExperimentState, Player, asked_for
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import ArmState, State, past
from learnloop_operator.rollout.model.snapshot import Desired, Snapshot


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
    a rollout's step stays wanted, and blocked: the canary it has beaten would otherwise try again, for ever.
    """
    wanted, found = snapshot.desired, snapshot.before.experiment
    if found is None or asked_for(snapshot.spec, found) is None or wanted.model is None:
        return wanted
    # While an experiment plays at a step, the canary is what is wanted: it may have won at an earlier one.
    name = CANARY if found.step is not None and (found.phase != "Finished" or not found.winner) else found.winner
    arm = next((arm for arm in found.arms if arm.name == name), None)
    if arm is None or found.promoted_over != wanted.model.revision:
        return wanted
    if found.step is None and of_revision(load_pins(snapshot.before), arm.revision):
        return wanted
    winner = replace(wanted.model, revision=arm.revision, uri=arm.uri, sha256=arm.sha256)
    return replace(wanted, model=winner, over=wanted.model.revision)
