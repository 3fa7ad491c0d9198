"""What the evidence says of one arm of an experiment: its outcomes, and whether it breaks a hard bar."""

import math
from collections.abc import Iterator

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_api.kinds.rollouts.experiment import AnyExperiment, AnyMetric, ExperimentGuardrail
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.anchor import against_anchor
from learnloop_operator.rollout.checks.error_budget import alpha_of_bound
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.evidence.arm_evidence import Missing, Verdict, lost, number
from learnloop_operator.rollout.evidence.sample_age import untimely
from learnloop_operator.rollout.metrics.metric_type import PLAIN, Measure
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.rollout.metrics.return_range import Side, fitted, side
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
    """What the evidence of an experiment that runs has to answer beside the checks of spec.analysis."""
    asked = asked_for(spec, trial) if trial and trial.running else None
    return [check_of(guardrail) for guardrail in asked.guardrails] if asked else []


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
    asked = check_of(metric)
    found = type_of(asked).outcomes(asked, arm, measure)
    if found is None or not math.isfinite(found.n) or not math.isfinite(found.total):
        return None
    found, strays = fitted(found), side(found)
    if strays and (strays is Side.ABOVE or player.name == STABLE):
        return None
    return Counts(found.n, min(found.n, max(0.0, found.total)))


def measured(snapshot: Snapshot, guardrail: ExperimentGuardrail, trial: ExperimentState, place: int) -> Measure | None:
    """How it is measured: as was fixed, or as stable suggests now; None while stable has shown nothing."""
    stable = trial.players[0]
    fixed, arm = stable.guards[place].measure, snapshot.evidence.arms.get(stable.model.revision)
    asked = check_of(guardrail)
    return fixed or (type_of(asked).measure(asked, arm) if arm else None)


def silences(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> dict[int, Missing]:
    """By index, why arms have no number of now of the metric or of a guardrail: what was proven of them waits, and so
    do they. When stable's is missing, nobody can be compared.
    """
    evidence, everybody, found = snapshot.evidence, range(len(trial.players)), dict[int, Missing]()
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
                    found.setdefault(mute, missing)
    return found


def lacking(snapshot: Snapshot, asked: AnyExperiment, trial: ExperimentState) -> Missing | None:
    """Everything that keeps an experiment from its numbers, in one sentence: silences first, then too few episodes."""
    mute = list(dict.fromkeys(silences(snapshot, asked, trial).values()))
    if mute:
        return Missing(mute[0].reason, "; ".join(item.text for item in mute))
    short = [item for item in trial.players if item.standing == "playing" and item.tally.judged.n < asked.min_episodes]
    said = ", ".join(f"{item.name} {int(item.tally.judged.n)}" for item in short)
    text = f"episodes compared so far: {said}; each arm needs {asked.min_episodes}"
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
    asked = check_of(metric)
    problem = arm.problems.get(asked.name) or arm.problems.get("")
    if problem is not None:
        return problem
    found = type_of(asked).outcomes(asked, arm, PLAIN)
    if found is not None and not math.isfinite(found.total):
        return Missing(reasons.NOT_A_NUMBER, "it is none")
    where = metric.return_range
    if found is not None and where is not None and side(found):
        mean = number(arm.mean_return or 0.0)
        text = f"its mean {mean} lies outside returnRange {where.lowest:g}..{where.highest:g}: correct that range"
        return Missing(reasons.OUT_OF_RANGE, text)
    return Missing(reasons.EMPTY_RESULT, "nothing was counted")


def breach(snapshot: Snapshot, player: Player, arms: int) -> str:
    """Which hard bounds of spec.analysis the arm, one of `arms` that are asked, certainly breaks, and whether it leaves
    too many episodes open; "" for none.

    Ratios are left to the comparison of the arms, which does not fall for the noise of the first episodes.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    alpha = alpha_of_bound(snapshot.spec.analysis, arms)
    said = []
    for metric in snapshot.spec.analysis.metrics:
        if metric.dry_run or type_of(metric).against_own_past or (metric.min is None and metric.max is None):
            continue
        hard = metric.model_copy(update={"min_ratio": None, "max_ratio": None})
        found = check(hard, arm, None, alpha, subject_is=player.name)
        if found.verdict is Verdict.BREACH:
            said.append(found.sentence)
    stable = snapshot.before.stable
    reference = snapshot.evidence.arms.get(stable.revision) if stable else None
    hung = unfinished(snapshot.spec.analysis, arm, reference, player.name, "stable", passing=False)
    said += [hung.sentence] if hung and hung.verdict is Verdict.BREACH else []
    figures, called = snapshot.before.anchor or (), {"subject_is": player.name, "reference_is": "stable"}
    anchored = against_anchor(snapshot.spec.analysis, figures, arm, None, alpha, **called, waits=False)
    said += [found.sentence for found in anchored if found.verdict is Verdict.BREACH]
    return "; ".join(said)
