"""Looks at an experiment: measures its arms, withdraws those that break a bound, eliminates those proven worse."""

import math
from collections.abc import Iterator
from dataclasses import replace

from learnloop_api.kinds.rollouts.experiment import Experiment, ExperimentMetric
from learnloop_operator.core.times import seconds_since
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.against_stable import alpha_of_bound
from learnloop_operator.rollout.checks.thresholds import broken_ratios, check
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.evidence import Missing, Verdict, lost, number, untimely
from learnloop_operator.rollout.experiments.evidence import bar, beaten_by, look, proven
from learnloop_operator.rollout.experiments.state import STABLE, ExperimentState, Player, check_of, in_unit
from learnloop_operator.rollout.judging.analysis import SHORTEST, hopeless, is_steady, world
from learnloop_operator.rollout.judging.fast_lane_breaches import gross_breach
from learnloop_operator.rollout.metrics.metric_types import PLAIN, Side, fitted, side, type_of
from learnloop_operator.rollout.model.rollout_state import State
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.statistics.betting import NONE, Counts, mean_interval

# Measurement: outcomes of each arm by the metric, or the reason why there are none.


def _counts(snapshot: Snapshot, metric: ExperimentMetric, player: Player) -> Counts | None:
    """Outcomes and the sum of their values, 0 for the worst and 1 for the best; None for an arm that gets no episodes,
    or without a number.

    A challenger whose mean return lies below the range counts as one that always returns the lowest: it may lose by
    that and cannot win. Stable below it, and any arm above it, show that the range is wrong: no number.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None or arm.gap or (player.standing != "playing" and player.name != STABLE):
        return None
    if arm.episodes <= 0:
        return NONE
    wanted = check_of(metric)
    result = type_of(wanted).outcomes(wanted, arm, PLAIN)
    if result is None or not math.isfinite(result.n) or not math.isfinite(result.total):
        return None
    result, strays = fitted(result), side(result)
    if strays and (strays is Side.ABOVE or player.name == STABLE):
        return None
    return Counts(result.n, min(result.n, max(0.0, result.total)))


def silences(snapshot: Snapshot, asked: Experiment, trial: ExperimentState) -> dict[int, Missing]:
    """By index, why an arm has no current number of the metric: its proofs wait, and so does it.
    Without stable's number no arm can be compared."""
    evidence, everyone, result = snapshot.evidence, range(len(trial.players)), dict[int, Missing]()
    if evidence.unavailable:
        return dict.fromkeys(everyone, Missing(evidence.reason, f"no evidence: {evidence.unavailable}"))
    for index, player in enumerate(trial.players):
        if player.standing != "playing" and player.name != STABLE:
            continue
        for missing in _missing(snapshot, asked.metric, player):
            for mute in everyone if player.name == STABLE else (index,):
                result.setdefault(mute, missing)
    return result


def lacking(snapshot: Snapshot, asked: Experiment, trial: ExperimentState) -> Missing | None:
    """Everything that keeps an experiment from its numbers, in one sentence: silences first, then too few episodes."""
    mute = list(dict.fromkeys(silences(snapshot, asked, trial).values()))
    if mute:
        return Missing(mute[0].reason, "; ".join(item.text for item in mute))
    short = [item for item in trial.players if item.standing == "playing" and item.tally.judged.n < asked.min_episodes]
    words = ", ".join(f"{item.name} {int(item.tally.judged.n)}" for item in short)
    text = f"episodes compared so far: {words}; each arm needs {asked.min_episodes}"
    return Missing(reasons.NOT_ENOUGH_DATA, text) if short else None


def _missing(snapshot: Snapshot, metric: ExperimentMetric, player: Player) -> Iterator[Missing]:
    arm = snapshot.evidence.arms.get(player.model.revision)
    if late := untimely(snapshot.evidence.clock, arm.seen_at if arm else None, snapshot.now, player.name):
        yield late
    if _counts(snapshot, metric, player) is None:
        why = _why(snapshot, metric, player)
        yield Missing(why.reason, f"{metric.type}: no number for {player.name}: {why.text}")


def _why(snapshot: Snapshot, metric: ExperimentMetric, player: Player) -> Missing:
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None:
        return Missing(reasons.EMPTY_RESULT, "Prometheus has no series of it")
    if torn := lost(arm.gap, player.name):
        return torn
    wanted = check_of(metric)
    if problem := arm.problems.get(wanted.name) or arm.problems.get(""):
        return problem
    result = type_of(wanted).outcomes(wanted, arm, PLAIN)
    if result is not None and not math.isfinite(result.total):
        return Missing(reasons.NOT_A_NUMBER, "it is NaN or infinite")
    where = metric.return_range
    if result is not None and where is not None and side(result):
        mean = number(arm.mean_return or 0.0)
        text = f"its mean {mean} lies outside returnRange {where.lowest:g}..{where.highest:g}: correct that range"
        return Missing(reasons.OUT_OF_RANGE, text)
    return Missing(reasons.EMPTY_RESULT, "nothing was counted")


# One look: challengers that break their bars are withdrawn, arms that are proven worse are beaten.
#
# Stable is never withdrawn, but it can be beaten. It keeps its share until a winner has taken over.

Looked = tuple[ExperimentState, tuple[str, ...]]
"""The experiment after a look, and a sentence for each arm that left."""


def watched(snapshot: Snapshot, state: State, asked: Experiment, trial: ExperimentState) -> Looked:
    """Apply the rules below in their order, as far as there is evidence for them."""
    trial, left = _without_failed_pods(snapshot, state, trial)
    young = seconds_since(trial.started_at, snapshot.now) < SHORTEST
    if trial.phase == "Starting" or snapshot.evidence.unavailable or young:
        return trial, left
    trial, broken = _without_breaches(snapshot, trial)
    left = (*left, *broken)
    if trial.phase != "Running":
        return trial, left
    playing = [player.model.revision for player in trial.challengers()]
    if not is_steady(snapshot, replace(state, experiment=trial), *playing):
        return trial.started_over(), left
    trial, beaten = _without_beaten(snapshot, asked, trial)
    return trial, (*left, *beaten)


def _without_failed_pods(snapshot: Snapshot, state: State, trial: ExperimentState) -> Looked:
    """Withdraw a challenger whose own counters break a bound beyond doubt, or whose pods cannot serve."""
    text: tuple[str, ...] = ()
    for index, player in enumerate(trial.players):
        counted = player.observed(world(snapshot, player.model.revision), snapshot.now)
        trial = trial.with_player(index, counted)
        if index and player.standing == "playing" and (why := _failed_pods(snapshot, state, counted)):
            trial, text = _withdrawn(snapshot, trial, index, why, text)
    return trial, text


def _failed_pods(snapshot: Snapshot, state: State, player: Player) -> str:
    if gross := gross_breach(snapshot, state, player.model.revision, player.name):
        return gross
    live, deadline = world(snapshot, player.model.revision), snapshot.spec.rollout.progress_deadline_seconds
    if hopeless(live):
        return f"its pod gave up after {live.restarts} starts: {live.message}"
    if not player.ready and seconds_since(player.since, snapshot.now) >= deadline:
        return f"its pods were not ready within {deadline} s: {live.message or 'they gave no reason'}"
    return ""


def _without_breaches(snapshot: Snapshot, trial: ExperimentState) -> Looked:
    """Withdraw a challenger that certainly breaks a hard bound of spec.analysis, or leaves too many episodes open."""
    text: tuple[str, ...] = ()
    for index, player in enumerate(trial.players):
        if index and player.standing == "playing" and (why := _breach(snapshot, player, len(trial.players) - 1)):
            trial, text = _withdrawn(snapshot, trial, index, why, text)
    return trial, text


def _breach(snapshot: Snapshot, player: Player, arms: int) -> str:
    """Ratios are left to the comparison of the arms, which is not misled by the noise of the first episodes."""
    arm, analysis = snapshot.evidence.arms.get(player.model.revision), snapshot.spec.analysis
    alpha, text = alpha_of_bound(analysis, arms), []
    for metric in analysis.metrics:
        if metric.min is not None or metric.max is not None:
            hard = metric.model_copy(update={"min_ratio": None, "max_ratio": None})
            result = check(hard, arm, None, alpha, subject_is=player.name)
            text += [result.sentence] if result.verdict is Verdict.BREACH else []
    stable = snapshot.before.stable
    reference = snapshot.evidence.arms.get(stable.revision) if stable else None
    hung = unfinished(analysis, arm, reference, player.name, "stable", passing=False)
    text += [hung.sentence] if hung and hung.verdict is Verdict.BREACH else []
    return "; ".join(text)


def _without_beaten(snapshot: Snapshot, asked: Experiment, trial: ExperimentState) -> Looked:
    """An arm that is proven worse than one still in the race is beaten."""
    counted = tuple(_counts(snapshot, asked.metric, player) for player in trial.players)
    records = look(tuple(player.tally for player in trial.players), counted)
    players = [replace(player, tally=record) for player, record in zip(trial.players, records, strict=True)]
    trial, text = replace(trial, players=tuple(players)), tuple[str, ...]()
    mute = silences(snapshot, asked, trial)
    able = frozenset(index for index in range(len(players)) if index not in mute)
    enough = _enough(asked, trial)
    for loser, winner in beaten_by(records, racing(trial), enough, asked.min_episodes, able).items():
        why = f"beaten by {players[winner].name}"
        trial = trial.with_player(loser, trial.players[loser].out("beaten", why, snapshot.now))
        text = (*text, f"{players[loser].name} {why}")
    return trial, text


def breaks_a_ratio(snapshot: Snapshot, stable: Player, best: Player) -> str:
    """Why an arm that has won does not serve: as a canary it would be rolled back for a ratio; "" where it may."""
    arms = snapshot.evidence.arms
    own, reference = arms.get(best.model.revision), arms.get(stable.model.revision)
    if own is None or reference is None:
        return ""
    metrics = snapshot.spec.analysis.metrics
    return "; ".join(text for metric in metrics for text in broken_ratios(metric, own, reference, best.name))


def _withdrawn(snapshot: Snapshot, trial: ExperimentState, index: int, why: str, text: tuple[str, ...]) -> Looked:
    player = trial.players[index].out("withdrawn", why, snapshot.now)
    return trial.with_player(index, player), (*text, f"{player.name} withdrawn: {why}")


# The race: who is in it, who may win it, and when it ends without a winner.


def racing(trial: ExperimentState) -> frozenset[int]:
    return frozenset(index for index, player in enumerate(trial.players) if player.standing == "playing")


def back_in_race(asked: Experiment, trial: ExperimentState) -> ExperimentState:
    """Stable races again when no arm is left that is proven better: the one that beat it has been withdrawn."""
    records, enough, stable = tuple(player.tally for player in trial.players), _enough(asked, trial), trial.players[0]
    if stable.standing != "beaten" or any(proven(records, index, 0, enough) for index in racing(trial)):
        return trial
    return trial.with_player(0, replace(stable, standing="playing", message=""))


def exhausted(snapshot: Snapshot, asked: Experiment, trial: ExperimentState) -> str:
    """The limit that the experiment has reached; "" for none, and without evidence."""
    if snapshot.evidence.unavailable:
        return ""
    if sum(player.tally.judged.n for player in trial.players) >= asked.max_episodes:
        return f"{asked.max_episodes} episodes"
    over = seconds_since(trial.started_at, snapshot.now) >= asked.max_seconds
    return f"{asked.max_seconds} s" if over else ""


def _enough(asked: Experiment, trial: ExperimentState) -> float:
    return bar(len(trial.players), asked.alpha)


def standings(asked: Experiment, trial: ExperimentState) -> str:
    """`success rate: b 0.71 [0.66, 0.75] over 400 episodes, …`: every arm with its confidence sequence, best first."""
    alpha = asked.alpha / max(1, len(trial.players))
    order = sorted(trial.players, key=lambda player: -_mean(player))
    text = ", ".join(_figures(asked, player, alpha) for player in order)
    return f"{type_of(check_of(asked.metric)).noun}: {text}"


def _figures(asked: Experiment, player: Player, alpha: float) -> str:
    judged = player.tally.judged
    if player.standing == "withdrawn":
        return f"{player.name} withdrawn"
    if judged.n <= 0.0:
        return f"{player.name} not compared yet"
    low, high = sorted(in_unit(asked.metric, end) for end in mean_interval(judged, alpha))
    mean = in_unit(asked.metric, _mean(player))
    beaten = ", beaten" if player.standing == "beaten" else ""
    return f"{player.name} {number(mean)} [{number(low)}, {number(high)}] over {int(judged.n)} episodes{beaten}"


def _mean(player: Player) -> float:
    judged = player.tally.judged
    return judged.total / judged.n if judged.n > 0.0 else -1.0
