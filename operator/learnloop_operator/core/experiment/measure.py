"""What the evidence says of one arm of an experiment: its outcomes, and whether it breaks a hard bar."""

import math

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_api.kinds.experiment import AnyExperiment, AnyMetric, ExperimentGuardrail
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_operator.core.experiment.state import STABLE, Player, Trial, asked_for
from learnloop_operator.core.rollout.evidence import Verdict, check
from learnloop_operator.core.rollout.measure import PLAIN, Measure, measure_of, outcomes
from learnloop_operator.core.rollout.world import Snapshot
from learnloop_operator.core.sequential.betting import NONE, Counts


def check_of(metric: AnyMetric) -> MetricThreshold:
    """The metric as the check of a rollout that measures the same: how numbers are got is written once."""
    of_own = metric.model_dump(include={"type", "return_range", "quantile", "query", "total_query"})
    if isinstance(metric, ExperimentGuardrail):
        # A space keeps the name apart from those of spec.analysis, which have none.
        of_own |= {"name": f"guardrail {metric.name}", "max_drop": metric.max_drop}
    of_own["return_range"] = metric.return_range
    return MetricThreshold.model_construct(**{"name": "experiment", "test": "sequential", **of_own})


def checks(spec: ModelDeploymentSpec, trial: Trial | None) -> list[MetricThreshold]:
    """What the evidence of an experiment that runs has to answer beside the checks of spec.analysis."""
    asked = asked_for(spec, trial) if trial and trial.running else None
    return [check_of(guardrail) for guardrail in asked.guardrails] if asked else []


def counts(snapshot: Snapshot, metric: AnyMetric, player: Player, measure: Measure = PLAIN) -> Counts | None:
    """Outcomes and the sum of their values, 0 for the worst and 1 for the best; None for an arm that gets no episodes,
    or of which nothing is known."""
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None or (player.standing != "playing" and player.name != STABLE):
        return None
    if arm.episodes <= 0:
        return NONE
    found = outcomes(check_of(metric), arm, measure)
    if found is None or not math.isfinite(found.n) or not math.isfinite(found.total):
        return None
    return Counts(found.n, min(found.n, max(0.0, found.total)))


def measured(snapshot: Snapshot, guardrail: ExperimentGuardrail, trial: Trial, place: int) -> Measure | None:
    """How it is measured: as was fixed, or as stable suggests now; None while stable has shown nothing."""
    stable = trial.players[0]
    fixed, arm = stable.guards[place].measure, snapshot.evidence.arms.get(stable.model.revision)
    return fixed or (measure_of(check_of(guardrail), arm) if arm else None)


def silences(snapshot: Snapshot, asked: AnyExperiment, trial: Trial) -> dict[int, str]:
    """By index, why arms have no number of a guardrail at this look: what was proven of them waits, and so do they.

    When stable's is missing, nobody can be compared.
    """
    evidence, found = snapshot.evidence, dict[int, str]()
    if evidence.unavailable:
        return {index: f"no evidence: {evidence.unavailable}" for index in range(len(trial.players))}
    for place, guardrail in enumerate(asked.guardrails):
        measure = measured(snapshot, guardrail, trial, place)
        for index, player in enumerate(trial.players):
            if player.standing != "playing" and player.name != STABLE:
                continue
            if measure is not None and counts(snapshot, guardrail, player, measure) is not None:
                continue
            said = f"{guardrail.name}: no number for {player.name}: {_why(snapshot, guardrail, player)}"
            for mute in range(len(trial.players)) if player.name == STABLE else (index,):
                found.setdefault(mute, said)
    return found


def _why(snapshot: Snapshot, guardrail: ExperimentGuardrail, player: Player) -> str:
    arm = snapshot.evidence.arms.get(player.model.revision)
    if arm is None:
        return "Prometheus has no series of it"
    problem = arm.problems.get(check_of(guardrail).name) or arm.problems.get("")
    return problem.text if problem else "nothing was counted"


def breach(snapshot: Snapshot, player: Player) -> str:
    """Which hard bounds of spec.analysis the arm breaks; "" for none.

    Ratios are left to the comparison of the arms, which does not fall for the noise of the first episodes.
    """
    arm = snapshot.evidence.arms.get(player.model.revision)
    said = []
    for metric in snapshot.spec.analysis.metrics:
        if metric.dry_run or metric.type == "drift" or (metric.min is None and metric.max is None):
            continue
        hard = metric.model_copy(update={"min_ratio": None, "max_ratio": None})
        found = check(hard, arm, None, subject_is=player.name)
        if found.verdict is Verdict.BREACH:
            said.append(found.sentence)
    return "; ".join(said)
