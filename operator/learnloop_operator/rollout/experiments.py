"""spec.experiment from its beginning to its end: n challengers next to stable, and the last arm in the race wins.

The winner is promoted like a canary, immediately or when a person says so. No arm is promoted without evidence against
every other one that is left. Every experiment ends: with a winner, with stable left alone, or at maxEpisodes or
maxSeconds without a winner.
"""

import math
from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment, ExperimentMetric
from learnloop_operator.core import artifacts, times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks import error_budget, metric_types, thresholds, unfinished_episodes
from learnloop_operator.rollout.evidence import Missing, Verdict, untimely
from learnloop_operator.rollout.judging import judgement, watched_arms
from learnloop_operator.rollout.state.experiment_state import (
    STABLE,
    ExperimentState,
    Player,
    check_of,
    current_experiment,
    id_of,
    standings,
)
from learnloop_operator.rollout.state.rollout_state import (
    COMPLETE,
    ArmState,
    NextState,
    State,
    done,
    happened,
    load_blocks,
    of_revision,
    why_blocked,
)
from learnloop_operator.rollout.state.snapshot import Desired, Snapshot, model_here
from learnloop_operator.statistics import e_values, several_arms

# How it begins.


def due(snapshot: Snapshot, state: State) -> Experiment | None:
    """The experiment that has not run yet. It waits for a rollout and its guard to be over."""
    wanted = snapshot.spec.experiment
    if wanted is None or state.canary or state.previous:
        return None
    return wanted if state.experiment is None or state.experiment.id != id_of(wanted) else None


def begin_experiment(snapshot: Snapshot, state: State, stable: ArmState, spec: Experiment) -> NextState:
    """Create the arms. They get no episode before all of them have pods."""
    now = times.stamp(snapshot.now)
    tallies = several_arms.fresh(len(spec.arms) + 1)
    players = [
        Player(arm.name, model_here(snapshot.spec, arm.uri, arm.sha256), arm.weight, since=now, tally=tally)
        for arm, tally in zip(spec.arms, tallies, strict=False)
    ]
    for index, player in enumerate(players):
        if problem := _problem(snapshot, state, stable, player):
            sentence = f"spec.experiment.arms[{index}]{problem}"
            return NextState(state, "Degraded", reasons.EXPERIMENT_INVALID, sentence, degraded=True)
    left = 100 - sum(player.weight for player in players)
    named = ", ".join(f"{player.name} {player.weight} %" for player in players)
    players.insert(0, Player(STABLE, stable.model, left, ready=stable.was_ready, since=now, tally=tallies[-1]))
    sentence = f"experiment {id_of(spec)} begins: {named}, stable {left} %; waiting for the arms' pods"
    trial = ExperimentState(id_of(spec), "Starting", tuple(players), started_at=now, message=sentence)
    return done(replace(state, experiment=trial), "Progressing", reasons.EXPERIMENT_STARTED, sentence, again_after=5.0)


def _problem(snapshot: Snapshot, state: State, stable: ArmState, player: Player) -> str:
    """Why the arm cannot take part, as the rest of its field's path; "" when it can."""
    if player.model.revision == stable.revision:
        return f": {player.name} is the model that stable serves, and stable is an arm: remove it"
    if why := artifacts.foreign(player.model.uri, snapshot.namespace):
        return f".uri: {why}"
    if block := state.in_the_way(player.model):
        why = why_blocked(block, player.model)
        return f": {player.name} was rolled back ({why}): remove it, or unblock {block.revision} by retry"
    return ""


# One look at it: challengers that break their bars are withdrawn, arms that are proven worse are beaten.
#
# Stable is never withdrawn, but it can be beaten. It keeps its share until a winner has taken over.


def advance_experiment(snapshot: Snapshot, state: State, trial: ExperimentState) -> NextState:
    """One look at an experiment that has arms with pods."""
    wanted = current_experiment(snapshot.spec, trial)
    if wanted is None:
        sentence = f"experiment {trial.id} withdrawn with its spec; stable keeps serving"
        # The record stays while its arms drain, as that of no experiment: what is put back in the spec begins again.
        return _over(snapshot, state, replace(trial, id="0" * len(trial.id)), sentence)
    before, trial = trial, _looked(snapshot, state, wanted, trial)
    left = [
        f"{now.name} {'withdrawn: ' if now.standing == 'withdrawn' else ''}{now.message}"
        for was, now in zip(before.players, trial.players, strict=True)
        if now.standing not in (was.standing, "playing")
    ]
    if not trial.challengers():
        text = "; ".join(left or [f"{player.name} {player.message}" for player in trial.players[1:]])
        return _over(snapshot, state, replace(trial, winner=None), f"experiment over, stable keeps serving: {text}")
    starting = trial.phase == "Starting"
    onward = _starting(snapshot, state, trial, left) if starting else _judged(snapshot, state, wanted, trial)
    events = [note for text in left for note in happened(reasons.ARM_WITHDRAWN, f"experiment: {text}", warning=True)]
    return replace(onward, events=(*events, *onward.events))


def _looked(snapshot: Snapshot, state: State, spec: Experiment, trial: ExperimentState) -> ExperimentState:
    """The experiment after a look, as far as there is evidence."""
    young = times.seconds_since(trial.started_at, snapshot.now) < watched_arms.SHORTEST
    judged = trial.phase != "Starting" and not snapshot.evidence.unavailable and not young
    for index, player in enumerate(trial.players):
        player = player.observed(snapshot.arm(player.model.revision), snapshot.now)
        if index and player.standing == "playing":
            why = _unfit(snapshot, state, player)
            if judged and not why:
                why = _breach(snapshot, player, len(trial.players) - 1)
            player = player.out("withdrawn", why, snapshot.now) if why else player
        trial = trial.with_player(index, player)
    if trial.phase != "Running" or not judged:
        return trial
    playing = [player.model.revision for player in trial.challengers()]
    if not judgement.is_steady(snapshot, replace(state, experiment=trial), *playing):
        return trial.started_over()
    return _compared(snapshot, spec, trial)


def _unfit(snapshot: Snapshot, state: State, player: Player) -> str:
    """Why a challenger goes whatever Prometheus says: its own counters break a bound, or its pods cannot serve."""
    if gross := watched_arms.gross_breach(snapshot, state, player.model.revision, player.name):
        return gross
    live, deadline = (
        snapshot.arm(player.model.revision),
        snapshot.spec.rollout.progress_deadline_seconds,
    )
    if live.hopeless:
        return f"its pod gave up after {live.restarts} starts: {live.message}"
    if not player.ready and times.seconds_since(player.since, snapshot.now) >= deadline:
        return f"its pods were not ready within {deadline} s: {live.message or 'they gave no reason'}"
    return ""


def _breach(snapshot: Snapshot, player: Player, arms: int) -> str:
    """The hard bounds that a challenger certainly breaks, and episodes that it leaves open. Ratios are left to the
    comparison of the arms, which is not misled by the noise of the first episodes."""
    arm, analysis = snapshot.evidence.arms.get(player.model.revision), snapshot.spec.analysis
    alpha, alone = (
        error_budget.alpha_of_bound(analysis, arms),
        {"min_ratio": None, "max_ratio": None},
    )
    results = [
        thresholds.check(metric.model_copy(update=alone), arm, None, alpha, candidate_name=player.name)
        for metric in analysis.metrics
        if metric.min is not None or metric.max is not None
    ]
    stable = snapshot.before.stable
    reference = snapshot.evidence.arms.get(stable.revision) if stable else None
    if hung := unfinished_episodes.unfinished(analysis, arm, reference, player.name, "stable", arms=arms):
        results.append(hung)
    return "; ".join(result.sentence for result in results if result.verdict is Verdict.BREACH)


def _compared(snapshot: Snapshot, spec: Experiment, trial: ExperimentState) -> ExperimentState:
    """An arm that is proven worse than one still in the race is beaten."""
    counted = tuple(_counts(snapshot, spec.metric, player) for player in trial.players)
    records = several_arms.look(tuple(player.tally for player in trial.players), counted)
    players = [replace(player, tally=record) for player, record in zip(trial.players, records, strict=True)]
    trial = replace(trial, players=tuple(players))
    able = frozenset(range(len(players))) - _silences(snapshot, spec, trial).keys()
    enough = several_arms.bar(len(players), spec.alpha)
    for loser, winner in several_arms.beaten_by(records, _racing(trial), enough, spec.min_episodes, able).items():
        why = f"beaten by {players[winner].name}"
        trial = trial.with_player(loser, trial.players[loser].out("beaten", why, snapshot.now))
    return trial


def _counts(snapshot: Snapshot, metric: ExperimentMetric, player: Player) -> e_values.Counts | None:
    """Outcomes and the sum of their values, 0 for the worst and 1 for the best; None for an arm that gets no episodes,
    or without a number.

    A challenger whose mean return lies below the range counts as one that always returns the lowest: it may lose by
    that and cannot win. Stable below it, and any arm above it, show that the range is wrong: no number.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None or arm.gap or (player.standing != "playing" and player.name != STABLE):
        return None
    if arm.episodes <= 0:
        return e_values.NONE
    wanted = check_of(metric)
    result = metric_types.type_of(wanted).outcomes(wanted, arm, metric_types.PLAIN)
    if result is None or not math.isfinite(result.n) or not math.isfinite(result.total):
        return None
    result, strays = metric_types.fitted(result), metric_types.side(result)
    if strays and (strays is metric_types.Side.ABOVE or player.name == STABLE):
        return None
    return e_values.Counts(result.n, min(result.n, max(0.0, result.total)))


def _silences(snapshot: Snapshot, spec: Experiment, trial: ExperimentState) -> dict[int, Missing]:
    """By index, why an arm has no current number of the metric: its proofs wait, and so does it.
    Without stable's number no arm can be compared."""
    evidence, result = snapshot.evidence, dict[int, Missing]()
    everyone = range(len(trial.players))
    if evidence.unavailable:
        return dict.fromkeys(everyone, Missing(evidence.reason, f"no evidence: {evidence.unavailable}"))
    for index, player in enumerate(trial.players):
        if player.standing != "playing" and player.name != STABLE:
            continue
        arm = evidence.arms.get(player.model.revision)
        missing = untimely(evidence.clock, arm.scraped_at if arm else None, snapshot.now, player.name)
        if missing is None and _counts(snapshot, spec.metric, player) is None:
            why = thresholds.check(check_of(spec.metric), arm, None, spec.alpha, candidate_name=player.name)
            missing = Missing(why.reason, why.sentence)
        if missing is not None:
            for mute in everyone if player.name == STABLE else (index,):
                result.setdefault(mute, missing)
    return result


def _judged(snapshot: Snapshot, state: State, spec: Experiment, trial: ExperimentState) -> NextState:
    trial = _with_stable_again(spec, trial)
    left_in, mute = _racing(trial), _silences(snapshot, spec, trial)
    if trial.phase == "Won" or (len(left_in) == 1 and not left_in & mute.keys()):
        return _won(snapshot, state, spec, trial, trial.players[next(iter(left_in))])
    if limit := _exhausted(snapshot, spec, trial):
        sentence = f"experiment over after {limit} without a winner: {standings(spec, trial)}; stable keeps serving"
        return _over(snapshot, state, trial, sentence)
    interval, problem = float(snapshot.spec.analysis.interval_seconds), snapshot.evidence.unavailable
    if problem:
        sentence = f"experiment: no evidence: {problem}; the split stays as it is"
        return replace(_going_on(state, trial, snapshot.evidence.reason, sentence, interval), missing=problem)
    missing = _lacking(spec, trial, mute)
    sentence = f"experiment: {standings(spec, trial)}{f'; {missing.text}' if missing else ''}"
    onward = _going_on(state, trial, reasons.EXPERIMENT_RUNNING, sentence, interval)
    text, why = (missing.text, missing.reason) if missing else (COMPLETE, "")
    return replace(onward, missing=text, missing_reason=why)


def _starting(snapshot: Snapshot, state: State, trial: ExperimentState, left: list[str]) -> NextState:
    playing = trial.challengers()
    missing = [player.name for player in playing if not snapshot.arm(player.model.revision).ready]
    if missing:
        waits = "; ".join([*left, f"waiting for the pods of {', '.join(missing)}"])
        return _going_on(state, trial, reasons.WAITING_FOR_PODS, f"experiment: {waits}", 5.0)
    begun = replace(trial, phase="Running", started_at=times.stamp(snapshot.now))
    sentence = f"experiment: every arm has its pods, the episodes are split among {len(playing) + 1} arms"
    # The shares are persisted first: the routing table never runs ahead of the status.
    return replace(_going_on(state, begun, reasons.EXPERIMENT_RUNNING, sentence, 0.0), keep_table=True)


def _going_on(state: State, trial: ExperimentState, reason: str, sentence: str, again_after: float) -> NextState:
    after = replace(state, experiment=replace(trial, message=sentence))
    return NextState(after, "Progressing", reason, sentence, again_after=again_after)


def _lacking(spec: Experiment, trial: ExperimentState, mute: dict[int, Missing]) -> Missing | None:
    """Everything that keeps an experiment from its numbers, in one sentence: silences first, then too few episodes."""
    if mute:
        texts = list(dict.fromkeys(item.text for item in mute.values()))
        return Missing(next(iter(mute.values())).reason, "; ".join(texts))
    short = [item for item in trial.players if item.standing == "playing" and item.tally.judged.n < spec.min_episodes]
    words = ", ".join(f"{item.name} {int(item.tally.judged.n)}" for item in short)
    text = f"episodes compared so far: {words}; each arm needs {spec.min_episodes}"
    return Missing(reasons.NOT_ENOUGH_DATA, text) if short else None


# The race: who is in it, and when it ends without a winner.


def _racing(trial: ExperimentState) -> frozenset[int]:
    return frozenset(index for index, player in enumerate(trial.players) if player.standing == "playing")


def _with_stable_again(spec: Experiment, trial: ExperimentState) -> ExperimentState:
    """Stable races again when no arm is left that is proven better: the one that beat it has been withdrawn."""
    records, stable = tuple(player.tally for player in trial.players), trial.players[0]
    enough = several_arms.bar(len(records), spec.alpha)
    if stable.standing != "beaten" or any(several_arms.proven(records, index, 0, enough) for index in _racing(trial)):
        return trial
    return trial.with_player(0, replace(stable, standing="playing", message=""))


def _exhausted(snapshot: Snapshot, spec: Experiment, trial: ExperimentState) -> str:
    """The limit that the experiment has reached; "" for none, and without evidence."""
    if snapshot.evidence.unavailable:
        return ""
    if sum(player.tally.judged.n for player in trial.players) >= spec.max_episodes:
        return f"{spec.max_episodes} episodes"
    over = times.seconds_since(trial.started_at, snapshot.now) >= spec.max_seconds
    return f"{spec.max_seconds} s" if over else ""


# How it ends: with a winner that takes over or waits for a person, or without one.


def _over(snapshot: Snapshot, state: State, trial: ExperimentState, sentence: str) -> NextState:
    after = replace(state, experiment=_finished(snapshot, trial, sentence))
    return done(after, "Progressing", reasons.EXPERIMENT_OVER, sentence)


def _finished(snapshot: Snapshot, trial: ExperimentState, sentence: str) -> ExperimentState:
    """The experiment without arms of its own; the figures stay on record."""
    now = times.stamp(snapshot.now)
    players = tuple(replace(player, since=now) if player.standing == "playing" else player for player in trial.players)
    return replace(trial, phase="Finished", players=players, finished_at=now, message=sentence)


def _won(snapshot: Snapshot, state: State, spec: Experiment, trial: ExperimentState, best: Player) -> NextState:
    """The winner waits for its pods, and for a person where the spec says so; then it is promoted."""
    fresh_winner = trial.phase != "Won"
    if fresh_winner:
        if why := _breaks_a_ratio(snapshot, trial.players[0], best):
            sentence = f"experiment over, stable keeps serving: {best.name} won and may not serve: {why}"
            return _over(snapshot, state, replace(trial, winner=None), sentence)
        sentence = f"experiment won by {best.name} ({best.model.revision}): {standings(spec, trial)}"
        if spec.on_winner == "wait":
            sentence += f"; waiting for `kubectl learnloop promote {snapshot.name}`"
        trial = replace(trial, phase="Won", winner=best.name, message=sentence)
    events = happened(reasons.EXPERIMENT_WON, trial.message) if fresh_winner else ()
    waiting = _going_on(state, trial, reasons.WAITING_FOR_APPROVAL, trial.message, 5.0)
    promoted = _promoted(snapshot, state, spec, trial, best)
    return promoted or replace(waiting, phase="Paused", events=events)


def _breaks_a_ratio(snapshot: Snapshot, stable: Player, best: Player) -> str:
    """Why an arm that has won does not serve: as a canary it would be rolled back for a ratio; "" where it may."""
    arms = snapshot.evidence.arms
    own, reference = arms.get(best.model.revision), arms.get(stable.model.revision)
    if own is None or reference is None:
        return ""
    metrics = snapshot.spec.analysis.metrics
    return "; ".join(text for metric in metrics for text in thresholds.broken_ratios(metric, own, reference, best.name))


def _promoted(
    snapshot: Snapshot, state: State, spec: Experiment, trial: ExperimentState, best: Player
) -> NextState | None:
    """Promote the winner, once it may be and has the pods for it: the arm becomes stable as it is, no pod restarts,
    and the old one stays warm. None: not yet."""
    enough = snapshot.arm(best.model.revision).ready >= snapshot.spec.serving.replicas
    if not (trial.approved_by or spec.on_winner == "promote") or not enough or not best.ready or state.stable is None:
        return None
    by = f", as {trial.approved_by} says" if trial.approved_by else ""
    sentence = f"promoted {best.name} ({best.model.revision}){by}: {standings(spec, trial)}"
    after = replace(
        state.promoted(ArmState(best.model, best.since, was_ready=True), snapshot.now),
        rollout_started_at=trial.started_at,
        experiment=replace(_finished(snapshot, trial, sentence), promoted_over=state.stable.revision),
    )
    return done(after, "Guarding", reasons.PROMOTED, sentence, keep_table=True, missing=COMPLETE)


def desired_model(snapshot: Snapshot) -> Desired:
    """The model to serve: an experiment's winner instead of the model it was promoted over.

    spec.model is the user's and stays as it is. So the outcome holds as long as the experiment stands in the spec and
    spec.model means what it meant then. A winner that was rolled back is not wanted any more.
    """
    wanted, result = snapshot.desired, snapshot.before.experiment
    if result is None or current_experiment(snapshot.spec, result) is None or wanted.model is None:
        return wanted
    arm = next((arm for arm in result.arms if arm.name == result.winner), None)
    if arm is None or result.promoted_over != wanted.model.revision:
        return wanted
    if of_revision(load_blocks(snapshot.before), arm.revision):
        return wanted
    return replace(wanted, model=replace(wanted.model, revision=arm.revision, uri=arm.uri, sha256=arm.sha256))
