"""What a person may say to an experiment: take an arm out, or promote the arm that has won."""

from dataclasses import replace

from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.model.experiment_state import ExperimentState
from learnloop_operator.rollout.model.next_state import NextState, happened
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot

Answered = tuple[str, NextState | None]


def take_out(snapshot: Snapshot, state: State, revision: str, by: str) -> Answered | None:
    """Withdraw one arm; the others go on. None where the revision is no guest: a canary is rolled back."""
    trial, index = state.experiment, _place(state.experiment, revision)
    if trial is None or index is None:
        return None
    player = trial.players[index]
    why = f"aborted by {by}"
    after = trial.with_player(index, player.out("withdrawn", why, snapshot.now))
    sentence = f"experiment: {player.name} withdrawn: {why}"
    return sentence, _moved(state, replace(after, message=sentence), reasons.ARM_WITHDRAWN, sentence)


def let_win(state: State, revision: str, by: str) -> Answered | None:
    """Promote the winner that waits for it. Without a move: why not. None where the revision is no arm with pods."""
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
