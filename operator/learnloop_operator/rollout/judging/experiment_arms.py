"""Judges one arm of an experiment: its outcomes, and whether it breaks a hard bound."""

import math
from collections.abc import Iterator

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyExperiment, AnyMetric, ExperimentGuardrail
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.sequential_test import alpha_of_bound
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.evidence import Missing, Verdict, lost, number, untimely
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.metrics.metric_type import PLAIN, Measure, Side, fitted, side
from learnloop_operator.rollout.model.experiment_state import STABLE, ExperimentState, Player, asked_for
from learnloop_operator.rollout.model.snapshot import Snapshot
from learnloop_operator.statistics.betting import NONE, Counts


def check_of(metric: AnyMetric) -> MetricThreshold:
    """The metric as the check of a rollout that measures the same: how numbers are got is written once."""
    of_own = metric.model_dump(include={"type", "return_range", "quantile", "query", "total_query"})
    if isinstance(metric, ExperimentGuardrail):
        # A space keeps the name apart from those of spec.analysis, which have none.
        of_own |= {"name": f"guardrail {metric.name}", "max_drop": metric.max_drop}
    of_own["return_range"] = metric.return_range
    return MetricThreshold.model_construct(**{"name": "experiment", "test": "sequential", **of_own})


def checks(spec: ModelDeploymentSpec, trial: ExperimentState | None) -> list[MetricThreshold]:
    """Checks that a running experiment adds to those of spec.analysis."""
    wanted = asked_for(spec, trial) if trial and trial.running else None
    return [check_of(guardrail) for guardrail in wanted.guardrails] if wanted else []


def counts(snapshot: Snapshot, metric: AnyMetric, player: Player, measure: Measure = PLAIN) -> Counts | None:
    """Outcomes and the sum of their values, 0 for the worst and 1 for the best; None for an arm that gets no episodes,
    or of which nothing is known.

    A challenger whose mean return lies below the range counts as one that always returns the lowest: it may lose by
    that and cannot win. Stable below it, and anybody above it, show that the range is wrong: no number.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None or (player.standing != "playing" and player.name != STABLE):
        return None
    if arm.gap:
        return None
    if arm.episodes <= 0:
        return NONE
    wanted = check_of(metric)
    result = type_of(wanted).outcomes(wanted, arm, measure)
    if result is None or not math.isfinite(result.n) or not math.isfinite(result.total):
        return None
    result, strays = fitted(result), side(result)
    if strays and (strays is Side.ABOVE or player.name == STABLE):
        return None
    return Counts(result.n, min(result.n, max(0.0, result.total)))


def measured(snapshot: Snapshot, guardrail: ExperimentGuardrail, trial: ExperimentState, place: int) -> Measure | None:
    """How it is measured: as was fixed, or as stable suggests now; None while stable has shown nothing."""
    stable = trial.players[0]
    fixed, arm = stable.guards[place].measure, snapshot.evidence.arms.get(stable.model.revision)
    wanted = check_of(guardrail)
    return fixed or (type_of(wanted).measure(wanted, arm) if arm else None)


def silences(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> dict[int, Missing]:
    """By index, why arms have no number of now of the metric or of a guardrail: what was proven of them waits, and so
    do they. When stable's is missing, no arm can be compared.
    """
    evidence, everybody, result = snapshot.evidence, range(len(trial.players)), dict[int, Missing]()
    if evidence.unavailable:
        return dict.fromkeys(everybody, Missing(evidence.reason, f"no evidence: {evidence.unavailable}"))
    measures: list[tuple[AnyMetric, Measure | None]] = [(asked.metric, PLAIN)]
    measures += [(rail, measured(snapshot, rail, trial, place)) for place, rail in enumerate(asked.guardrails)]
    for index, player in enumerate(trial.players):
        if player.standing != "playing" and player.name != STABLE:
            continue
        for missing in (_of_another_time(snapshot, player), *_mute(snapshot, measures, player)):
            for mute in everybody if player.name == STABLE and missing else (index,):
                if missing is not None:
                    result.setdefault(mute, missing)
    return result


def lacking(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> Missing | None:
    """Everything that keeps an experiment from its numbers, in one sentence: silences first, then too few episodes."""
    mute = list(dict.fromkeys(silences(snapshot, asked, trial).values()))
    if mute:
        return Missing(mute[0].reason, "; ".join(item.text for item in mute))
    short = [item for item in trial.players if item.standing == "playing" and item.tally.judged.n < asked.min_episodes]
    words = ", ".join(f"{item.name} {int(item.tally.judged.n)}" for item in short)
    text = f"episodes compared so far: {words}; each arm needs {asked.min_episodes}"
    return Missing(reasons.NOT_ENOUGH_DATA, text) if short else None


def _of_another_time(snapshot: Snapshot, player: Player) -> Missing | None:
    arm = snapshot.evidence.arms.get(player.model.revision)
    return untimely(snapshot.evidence.clock, arm.seen_at if arm else None, snapshot.now, player.name)


def _mute(snapshot: Snapshot, measures: list[tuple[AnyMetric, Measure | None]], player: Player) -> Iterator[Missing]:
    for metric, measure in measures:
        if measure is None or counts(snapshot, metric, player, measure) is None:
            why, what = _why(snapshot, metric, player), getattr(metric, "name", metric.type)
            yield Missing(why.reason, f"{what}: no number for {player.name}: {why.text}")


def _why(snapshot: Snapshot, metric: AnyMetric, player: Player) -> Missing:
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None:
        return Missing(reasons.EMPTY_RESULT, "Prometheus has no series of it")
    if torn := lost(arm.gap, player.name):
        return torn
    wanted = check_of(metric)
    problem = arm.problems.get(wanted.name) or arm.problems.get("")
    if problem is not None:
        return problem
    result = type_of(wanted).outcomes(wanted, arm, PLAIN)
    if result is not None and not math.isfinite(result.total):
        return Missing(reasons.NOT_A_NUMBER, "it is none")
    where = metric.return_range
    if result is not None and where is not None and side(result):
        mean = number(arm.mean_return or 0.0)
        text = f"its mean {mean} lies outside returnRange {where.lowest:g}..{where.highest:g}: correct that range"
        return Missing(reasons.OUT_OF_RANGE, text)
    return Missing(reasons.EMPTY_RESULT, "nothing was counted")


def breach(snapshot: Snapshot, player: Player, arms: int) -> str:
    """Names hard bounds of spec.analysis that the arm, one of `arms` judged, certainly breaks, and whether it leaves
    too many episodes open; "" for none.

    Ratios are left to the comparison of the arms, which does not fall for the noise of the first episodes.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    alpha = alpha_of_bound(snapshot.spec.analysis, arms)
    text = []
    for metric in snapshot.spec.analysis.metrics:
        if metric.min is None and metric.max is None:
            continue
        hard = metric.model_copy(update={"min_ratio": None, "max_ratio": None})
        result = check(hard, arm, None, alpha, subject_is=player.name)
        if result.verdict is Verdict.BREACH:
            text.append(result.sentence)
    stable = snapshot.before.stable
    reference = snapshot.evidence.arms.get(stable.revision) if stable else None
    hung = unfinished(snapshot.spec.analysis, arm, reference, player.name, "stable", passing=False)
    text += [hung.sentence] if hung and hung.verdict is Verdict.BREACH else []
    return "; ".join(text)
