"""The status of a LearningAgent: the loop at a glance."""

from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds import base, learning_agent
from learnloop_operator.agents import agent_snapshot, continuous, problems, triggers
from learnloop_operator.core import anomalies, artifacts, conditions


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """Decisions that the status shows."""

    snapshot: agent_snapshot.AgentSnapshot
    record: learning_agent.LearningAgentStatus
    model: learning_agent.AgentModel | None
    registered: str | None
    verdict: triggers.TriggerVerdict
    problem: problems.Problem | None


def status(facts: StatusFacts) -> dict[str, Any]:
    """Build the status: what must be remembered, and what explains it."""
    snapshot, record, stats = facts.snapshot, facts.record, facts.snapshot.stats
    old, served = snapshot.before, snapshot.deployment
    return learning_agent.LearningAgentStatus(
        observed_generation=snapshot.generation,
        phase=_phase(facts),
        conditions=[base.Condition.model_validate(item) for item in _conditions(facts)],
        trajectories=stats.trajectories if stats else old.trajectories,
        rewarded=stats.rewarded if stats else old.rewarded,
        rewarded_since_training=_since(facts),
        recent_return=_rounded(stats.recent_return_mean) if stats else old.recent_return,
        baseline_return=_rounded(stats.first_return_mean) if stats else old.baseline_return,
        success_rate=_rounded(stats.recent_success_rate, 4) if stats else old.success_rate,
        reward_policy_revision=snapshot.policy.revision,
        model=facts.model,
        last_training=record.last_training,
        trainings=record.trainings,
        serving_revision=served.stable.revision if served and served.stable else None,
        weight=f"{served.weight or 0}%" if served and served.canary else None,
        observed_train=record.observed_train,
        observed_training_request=record.observed_training_request,
        refused_training_request=record.refused_training_request,
        registered=facts.registered,
    ).to_kube()


def _since(facts: StatusFacts) -> int | None:
    previous = triggers.rewarded_since(facts.snapshot, facts.record.last_training)
    return facts.snapshot.before.rewarded_since_training if previous is None else previous


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _phase(facts: StatusFacts) -> str:
    snapshot = facts.snapshot
    if snapshot.spec.suspend:
        return "Suspended"
    if facts.problem or facts.verdict.problem:
        return "Pending" if facts.problem and facts.problem.waits else "Degraded"
    if snapshot.actors_trouble:
        return "Degraded"
    if _running(facts):
        return "Training"
    rollout = snapshot.deployment.phase if snapshot.deployment else None
    if rollout in ("Progressing", "Paused", "Guarding"):
        return "RollingOut"
    if snapshot.deployment is None or snapshot.deployment.stable is None:
        return "Pending"
    return "Collecting" if snapshot.spec.training else "Serving"


def _running(facts: StatusFacts) -> bool:
    return facts.verdict.fire is not None or any(not (job.finished or job.rests) for job in facts.snapshot.jobs)


def _conditions(facts: StatusFacts) -> list[dict[str, Any]]:
    snapshot, phase, generation = facts.snapshot, _phase(facts), facts.snapshot.generation
    reason, sentence = _why(facts, phase)
    serving = snapshot.deployment is not None and snapshot.deployment.stable is not None
    stalled = phase == "Degraded"
    ready = serving and facts.registered is not None and not facts.problem and not stalled
    wanted = conditions.ready_triplet(
        snapshot, reason, sentence, ready=ready, progressing=phase == "Pending", stalled=stalled
    )
    away = snapshot.stats_problem
    wanted += [
        conditions.condition(
            "DataAvailable",
            not away and snapshot.stats is not None,
            "DataPlaneUnavailable" if away else "NotRegistered" if snapshot.stats is None else "Counting",
            away
            or ("the data plane does not know this agent yet" if snapshot.stats is None else "experience is counted"),
            generation,
        ),
        _served(facts),
        *_frozen(facts),
        *anomalies.judged(
            continuous.watched(snapshot), [item.to_kube() for item in snapshot.before.conditions], generation
        ),
    ]
    return conditions.merge([item.to_kube() for item in snapshot.before.conditions], wanted, snapshot.time)


def _frozen(facts: StatusFacts) -> list[dict[str, Any]]:
    """The condition Frozen, where the agent learns continuously."""
    snapshot = facts.snapshot
    if snapshot.spec.training is None or snapshot.spec.training.continuous is None:
        return []
    reason, sentence = continuous.frozen(snapshot) or ("Learning", "the next trigger begins an update")
    return [conditions.condition("Frozen", reason != "Learning", reason, sentence, snapshot.generation)]


def _served(facts: StatusFacts) -> dict[str, Any]:
    served, generation = facts.snapshot.deployment, facts.snapshot.generation
    if served is None:
        return conditions.condition(
            "Served", False, "NoModelDeployment", "the ModelDeployment was not seen yet", generation
        )
    held = next((item for item in served.conditions if item.type == "Ready"), None)
    reason, text = (held.reason, held.message) if held else ("Pending", "the ModelDeployment has not reported yet")
    return conditions.condition("Served", held is not None and held.status == conditions.TRUE, reason, text, generation)


def _why(facts: StatusFacts, phase: str) -> tuple[str, str]:
    if facts.snapshot.spec.suspend:
        return (
            "Suspended",
            "suspended: no new run, model or actors; a run under way continues, and the serving model stays",
        )
    if facts.problem:
        return facts.problem.reason, facts.problem.sentence
    if facts.verdict.problem:
        return "TriggerInvalid", facts.verdict.problem
    if facts.snapshot.actors_trouble:
        return "ActorsNotPlaying", f"no actor plays: {facts.snapshot.actors_trouble}"
    if facts.verdict.fire and facts.record.last_training:
        return "TrainingTriggered", f"{facts.record.last_training.name}: {facts.verdict.fire.sentence}"
    return phase, "; ".join(filter(None, (_model(facts), _last_run(facts), facts.verdict.waiting)))


def _model(facts: StatusFacts) -> str:
    if facts.model is None:
        return "nothing to serve"
    served, source = facts.snapshot.deployment, facts.model.source
    if served and served.stable and not served.canary and served.stable.uri == facts.model.uri:
        return f"{source} serves"
    if served and artifacts.rolled_back(served.blocked_revisions, facts.model.uri, facts.model.sha256):
        return f"{source} was rolled back"
    return f"{source} is the model"


def _last_run(facts: StatusFacts) -> str:
    """The newest run, where it brought no model."""
    last = facts.record.last_training
    run = next((job for job in facts.snapshot.jobs if last and job.name == last.name and job.finished), None)
    if run is None or run.uri is not None:
        return ""
    return f"{run.name} brought no model" + (f" ({run.verdict})" if run.verdict else "")
