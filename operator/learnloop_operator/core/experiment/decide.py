"""One look at an experiment: arms that break their bars or are proven worse leave, the last one in the race has won.

No arm is promoted without evidence against every other one that is left, nor before it is proven to keep every
guardrail, and every experiment ends: with a winner, with stable left
alone, or at maxEpisodes or maxSeconds without either.
"""

from dataclasses import replace

from learnloop_api.kinds.experiment import Experiment
from learnloop_operator.core.experiment import guardrails, race
from learnloop_operator.core.experiment.begin import unready
from learnloop_operator.core.experiment.finish import finish, promote, won
from learnloop_operator.core.experiment.measure import breach, counts
from learnloop_operator.core.experiment.state import STABLE, Player, Trial, id_of
from learnloop_operator.core.experiment.told import broken_guardrail, standings
from learnloop_operator.core.rollout import reasons
from learnloop_operator.core.rollout.capacity import hopeless, world
from learnloop_operator.core.rollout.fast_lane import gross_breach
from learnloop_operator.core.rollout.move import Move, happened
from learnloop_operator.core.rollout.state import State
from learnloop_operator.core.rollout.windows import SHORTEST
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.times import seconds_since, stamp


def advance(snapshot: Snapshot, state: State, trial: Trial) -> Move:
    """One look at an experiment that has arms with pods."""
    asked = snapshot.spec.experiment
    if asked is None or id_of(asked) != trial.id:
        sentence = f"experiment {trial.id} withdrawn with its spec; stable keeps serving"
        return _over(replace(state, experiment=finish(snapshot, trial, sentence)), sentence)
    trial, left = _departed(snapshot, state, _adopted(snapshot, trial))
    if trial.phase == "Starting":
        return _starting(snapshot, state, trial, left)
    if not snapshot.evidence.unavailable and seconds_since(trial.started_at, snapshot.now) >= SHORTEST:
        trial, more = _looked(snapshot, asked, trial)
        left = (*left, *more)
    return _judged(snapshot, state, asked, trial, left)


def _starting(snapshot: Snapshot, state: State, trial: Trial, left: tuple[str, ...]) -> Move:
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


def _judged(snapshot: Snapshot, state: State, asked: Experiment, trial: Trial, left: tuple[str, ...]) -> Move:
    if not trial.challengers():
        return _none_left(snapshot, state, trial, left)
    trial = _back_in_race(asked, trial)
    racing = _racing(trial)
    if trial.phase == "Won" or (len(racing) == 1 and _fit(asked, trial, next(iter(racing)))):
        best = trial.players[next(iter(racing))]
        trial = trial if trial.phase == "Won" else won(snapshot, asked, trial, best)
        return promote(snapshot, state, asked, trial, best) or _waiting(state, trial, left)
    played = sum(player.tally.judged.n for player in trial.players)
    if played >= asked.max_episodes or seconds_since(trial.started_at, snapshot.now) >= asked.max_seconds:
        limit = f"{asked.max_episodes} episodes" if played >= asked.max_episodes else f"{asked.max_seconds} s"
        sentence = f"experiment over after {limit} without a winner: {standings(asked, trial)}; stable keeps serving"
        return _over(replace(state, experiment=finish(snapshot, trial, sentence)), sentence)
    interval = float(snapshot.spec.analysis.interval_seconds)
    problem = snapshot.evidence.unavailable
    if problem:
        sentence = f"experiment: no evidence: {problem}; the split stays as it is"
        return replace(_move(state, trial, snapshot.evidence.reason, sentence, left, interval), data=problem)
    sentence = f"experiment: {standings(asked, trial)}"
    return _move(state, trial, reasons.EXPERIMENT_RUNNING, sentence, left, interval)


def _waiting(state: State, trial: Trial, left: tuple[str, ...]) -> Move:
    move = _move(state, trial, reasons.WAITING_FOR_APPROVAL, trial.message, left, 5.0)
    return replace(move, phase="Paused")


def _none_left(snapshot: Snapshot, state: State, trial: Trial, left: tuple[str, ...]) -> Move:
    said = "; ".join(left or [f"{player.name} {player.message}" for player in trial.players[1:]])
    sentence = f"experiment over, stable keeps serving: {said}"
    return _over(replace(state, experiment=replace(finish(snapshot, trial, sentence), winner=None)), sentence)


def _over(state: State, sentence: str) -> Move:
    told = happened(reasons.EXPERIMENT_OVER, sentence)
    return Move(state, "Progressing", reasons.EXPERIMENT_OVER, sentence, told, again_after=0.0)


def _move(state: State, trial: Trial, reason: str, sentence: str, left: tuple[str, ...], again_after: float) -> Move:
    """Going on, with an event for every arm that has just left."""
    events = tuple(
        note for said in left for note in happened(reasons.ARM_WITHDRAWN, f"experiment: {said}", warning=True)
    )
    after = replace(state, experiment=replace(trial, message=sentence))
    return Move(after, "Progressing", reason, sentence, events, again_after=again_after)


def _racing(trial: Trial) -> frozenset[int]:
    return frozenset(index for index, player in enumerate(trial.players) if player.standing == "playing")


def _looked(snapshot: Snapshot, asked: Experiment, trial: Trial) -> tuple[Trial, tuple[str, ...]]:
    """The experiment after a look at the evidence, and what is said of the arms that had to go."""
    said = []
    for index, player in enumerate(trial.players):
        why = breach(snapshot, player) if index and player.standing == "playing" else ""
        if why:
            trial = trial.with_player(index, player.out("withdrawn", why, snapshot.now))
            said.append(f"{player.name} withdrawn: {why}")
    if trial.phase != "Running":
        return trial, tuple(said)
    trial, broken = _guarded(snapshot, asked, trial)
    said += broken
    seen = tuple(counts(snapshot, asked.metric, player) for player in trial.players)
    tallies = race.look(tuple(player.tally for player in trial.players), seen)
    players = [replace(player, tally=tally) for player, tally in zip(trial.players, tallies, strict=True)]
    trial = replace(trial, players=tuple(players))
    enough, fit = _enough(asked, trial), frozenset(index for index in range(len(players)) if _fit(asked, trial, index))
    for loser, winner in race.beaten_by(tallies, _racing(trial), enough, asked.min_episodes, fit).items():
        why = f"beaten by {players[winner].name}"
        trial = trial.with_player(loser, trial.players[loser].out("beaten", why, snapshot.now))
        said.append(f"{players[loser].name} {why}")
    return trial, tuple(said)


def _guarded(snapshot: Snapshot, asked: Experiment, trial: Trial) -> tuple[Trial, list[str]]:
    """The experiment after its guardrails have taken this look, without the arms that break one."""
    bar, said = guardrails.bars(asked), []
    for place, guardrail in enumerate(asked.guardrails):
        seen = tuple(counts(snapshot, guardrail, player) for player in trial.players)
        known = tuple(player.guards[place] for player in trial.players)
        for index, guard in enumerate(guardrails.look(known, seen, guardrails.drop_of(guardrail), bar)):
            player = trial.players[index]
            guards = (*player.guards[:place], guard, *player.guards[place + 1 :])
            trial = trial.with_player(index, replace(player, guards=guards))
            if index and player.standing == "playing" and guardrails.standing(guard, bar) == "broken":
                why = broken_guardrail(guardrail, place, trial, index)
                trial = trial.with_player(index, trial.players[index].out("withdrawn", why, snapshot.now))
                said.append(f"{player.name} withdrawn: {why}")
    return trial, said


def _fit(asked: Experiment, trial: Trial, index: int) -> bool:
    """Whether the arm may beat another: stable may, and an arm that is proven to keep every guardrail."""
    bar = guardrails.bars(asked)
    return not index or all(guardrails.standing(guard, bar) == "holds" for guard in trial.players[index].guards)


def _enough(asked: Experiment, trial: Trial) -> float:
    return race.bar(len(trial.players), guardrails.share_of_alpha(asked))


def _back_in_race(asked: Experiment, trial: Trial) -> Trial:
    """Stable races again when no arm is left that is proven better: the one that beat it has been withdrawn."""
    tallies, enough = tuple(player.tally for player in trial.players), _enough(asked, trial)
    stable, racing = trial.players[0], _racing(trial)
    if stable.standing != "beaten" or any(race.proven(tallies, index, 0, enough) for index in racing):
        return trial
    return trial.with_player(0, replace(stable, standing="playing", message=""))


def _departed(snapshot: Snapshot, state: State, trial: Trial) -> tuple[Trial, tuple[str, ...]]:
    """Arms whose own counters break a bound beyond doubt, and arms that lost their pods for good."""
    said = []
    for index, player in enumerate(trial.players):
        live = world(snapshot, player.model.revision)
        seen = player.observed(live, snapshot.now)
        trial = trial.with_player(index, seen)
        why = _gone(snapshot, state, seen) if index and player.standing == "playing" else ""
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


def _adopted(snapshot: Snapshot, trial: Trial) -> Trial:
    """Finish a withdrawal whose routing table was written and whose status was not."""
    live, known = snapshot.routing.table, snapshot.before.routing_generation
    if trial.phase == "Starting" or live is None or known is None or live.generation <= known:
        return trial
    listed = {arm.revision for arm in live.arms}
    for index, player in enumerate(trial.players):
        if player.name != STABLE and player.standing == "playing" and player.model.revision not in listed:
            out = player.out("withdrawn", "taken out just before the operator restarted", snapshot.now)
            trial = trial.with_player(index, out)
    return trial
