"""What one look takes from the evidence of an experiment: arms that break their bars or are proven worse leave.

Whatever an experiment is part of, its arms are watched here; who has won, and what follows, is decided elsewhere. The
arms of a rollout (stable, and the canary of a step) are withdrawn by the rollout, for which the same bars hold.
"""

from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import AnyExperiment
from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout.checks import best_arm_elimination, guardrails
from learnloop_operator.rollout.experiment.sentence import broken_guardrail
from learnloop_operator.rollout.judging.analysis import is_steady
from learnloop_operator.rollout.judging.arm_capacity import hopeless, world
from learnloop_operator.rollout.judging.experiment_arms import breach, counts, measured, silences
from learnloop_operator.rollout.judging.fast_lane_breaches import gross_breach
from learnloop_operator.rollout.judging.query_windows import SHORTEST
from learnloop_operator.rollout.model.experiment_state import ExperimentState, Player
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot


def watched(
    snapshot: Snapshot, state: State, asked: AnyExperiment, trial: ExperimentState
) -> tuple[ExperimentState, tuple[str, ...]]:
    """The experiment after this look, and what is said of the arms that had to go."""
    trial, left = _departed(snapshot, state, trial)
    if trial.phase == "Starting" or snapshot.evidence.unavailable:
        return trial, left
    if seconds_since(trial.started_at, snapshot.now) < SHORTEST:
        return trial, left
    trial, more = _looked(snapshot, state, asked, trial)
    return trial, (*left, *more)


def exhausted(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> str:
    """Which of its limits the experiment has reached; "" for none, and while nobody can tell who is better."""
    if snapshot.evidence.unavailable:
        return ""
    if sum(player.tally.judged.n for player in trial.players) >= asked.max_episodes:
        return f"{asked.max_episodes} episodes"
    over = seconds_since(trial.started_at, snapshot.now) >= asked.max_seconds
    return f"{asked.max_seconds} s" if over else ""


def racing(trial: ExperimentState) -> frozenset[int]:
    return frozenset(index for index, player in enumerate(trial.players) if player.standing == "playing")


def _looked(
    snapshot: Snapshot, state: State, asked: AnyExperiment, trial: ExperimentState
) -> tuple[ExperimentState, tuple[str, ...]]:
    """The experiment after a look at the evidence, and what is said of the arms that had to go."""
    said = []
    for index, player in enumerate(trial.players):
        why = (
            breach(snapshot, player, len(trial.players) - trial.hosts)
            if index >= trial.hosts and player.standing == "playing"
            else ""
        )
        if why:
            trial = trial.with_player(index, player.out("withdrawn", why, snapshot.now))
            said.append(f"{player.name} withdrawn: {why}")
    if trial.phase != "Running":
        return trial, tuple(said)
    playing = [player.model.revision for player in trial.challengers()]
    if not is_steady(snapshot, replace(state, experiment=trial), *playing):
        return trial.begun_anew(), tuple(said)
    trial, broken = _guarded(snapshot, asked, trial)
    said += broken
    seen = tuple(counts(snapshot, asked.metric, player) for player in trial.players)
    tallies = best_arm_elimination.look(tuple(player.tally for player in trial.players), seen)
    players = [replace(player, tally=tally) for player, tally in zip(trial.players, tallies, strict=True)]
    trial = replace(trial, players=tuple(players))
    enough, mute = _enough(asked, trial), silences(snapshot, asked, trial)
    able = frozenset(index for index in range(len(players)) if index not in mute and fit(asked, trial, index))
    beaten = best_arm_elimination.beaten_by(tallies, racing(trial), enough, asked.min_episodes, able)
    for loser, winner in beaten.items():
        why = f"beaten by {players[winner].name}"
        trial = trial.with_player(loser, trial.players[loser].out("beaten", why, snapshot.now))
        said.append(f"{players[loser].name} {why}")
    return trial, tuple(said)


def _guarded(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> tuple[ExperimentState, list[str]]:
    """The experiment after its guardrails have taken this look, without the arms that break one."""
    bar, said = guardrails.bars(asked), []
    for place, guardrail in enumerate(asked.guardrails):
        measure = measured(snapshot, guardrail, trial, place)
        if measure is None:
            continue
        seen = tuple(counts(snapshot, guardrail, player, measure) for player in trial.players)
        first, *others = (player.guards[place] for player in trial.players)
        known = (replace(first, measure=measure) if seen[0] is not None else first, *others)
        for index, guard in enumerate(guardrails.look(known, seen, guardrails.drop_of(guardrail), bar)):
            player = trial.players[index]
            guards = (*player.guards[:place], guard, *player.guards[place + 1 :])
            trial = trial.with_player(index, replace(player, guards=guards))
            if index and player.standing == "playing" and guardrails.standing(guard, bar) == "broken":
                why = broken_guardrail(guardrail, place, trial, index)
                trial = trial.with_player(index, trial.players[index].out("withdrawn", why, snapshot.now))
                said.append(f"{player.name} withdrawn: {why}")
    return trial, said


def fit(asked: AnyExperiment, trial: ExperimentState, index: int) -> bool:
    """Whether the arm may beat another: stable may, and an arm that is proven to keep every guardrail."""
    bar = guardrails.bars(asked)
    return not index or all(guardrails.standing(guard, bar) == "holds" for guard in trial.players[index].guards)


def _enough(asked: AnyExperiment, trial: ExperimentState) -> float:
    return best_arm_elimination.bar(len(trial.players), guardrails.share_of_alpha(asked))


def back_in_race(asked: AnyExperiment, trial: ExperimentState) -> ExperimentState:
    """Stable races again when no arm is left that is proven better: the one that beat it has been withdrawn."""
    tallies, enough = tuple(player.tally for player in trial.players), _enough(asked, trial)
    stable, left = trial.players[0], racing(trial)
    if stable.standing != "beaten" or any(best_arm_elimination.proven(tallies, index, 0, enough) for index in left):
        return trial
    return trial.with_player(0, replace(stable, standing="playing", message=""))


def _departed(snapshot: Snapshot, state: State, trial: ExperimentState) -> tuple[ExperimentState, tuple[str, ...]]:
    """Arms whose own counters break a bound beyond doubt, and arms that lost their pods for good."""
    said = []
    for index, player in enumerate(trial.players):
        live = world(snapshot, player.model.revision)
        seen = player.observed(live, snapshot.now)
        trial = trial.with_player(index, seen)
        why = _gone(snapshot, state, seen) if index >= trial.hosts and player.standing == "playing" else ""
        if why:
            trial = trial.with_player(index, seen.out("withdrawn", why, snapshot.now))
            said.append(f"{player.name} withdrawn: {why}")
    return trial, tuple(said)


def _gone(snapshot: Snapshot, state: State, player: Player) -> str:
    if gross := gross_breach(snapshot, state, player.model.revision, player.name):
        return gross
    live, deadline = world(snapshot, player.model.revision), snapshot.spec.rollout.progress_deadline_seconds
    if hopeless(live):
        return f"its pod gave up after {live.restarts} starts: {live.message}"
    if not player.ready and seconds_since(player.since, snapshot.now) >= deadline:
        return f"its pods were not ready within {deadline} s: {live.message or 'they gave no reason'}"
    return ""
