"""The status of a LearningAgent: the loop at a glance."""

from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api.kinds.base import Condition
from learnloop_api.kinds.learning_agent import AgentMemory, AgentModel, LearningAgentSpec, LearningAgentStatus
from learnloop_api.wire.memory import MemoryBudget, MemoryUse, budgets_config_map
from learnloop_operator.agents.problems import Problem
from learnloop_operator.agents.snapshot import AgentSnapshot, MemoryHome
from learnloop_operator.agents.triggers import TriggerVerdict, rewarded_since
from learnloop_operator.core import anomalies as anomaly_condition
from learnloop_operator.core.anomalies import ReturnAnomalies, watch
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition, merge, ready_triplet
from learnloop_operator.core.plan import Call, Notice
from learnloop_operator.core.times import seconds_since, stamp


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """Decisions that the status shows."""

    world: AgentSnapshot
    record: LearningAgentStatus
    model: AgentModel | None
    registered: str | None
    verdict: TriggerVerdict
    problem: Problem | None


def status(facts: StatusFacts) -> dict[str, Any]:
    """Build the status: what must be remembered, and what explains it."""
    world, record, stats = facts.world, facts.record, facts.world.stats
    old, served = world.before, world.deployment
    return LearningAgentStatus(
        observed_generation=world.generation,
        phase=_phase(facts),
        conditions=[Condition.model_validate(item) for item in _conditions(facts)],
        trajectories=stats.trajectories if stats else old.trajectories,
        rewarded=stats.rewarded if stats else old.rewarded,
        rewarded_since_training=_since(facts),
        recent_return=_rounded(stats.recent_return_mean) if stats else old.recent_return,
        baseline_return=_rounded(stats.first_return_mean) if stats else old.baseline_return,
        success_rate=_rounded(stats.recent_success_rate, 4) if stats else old.success_rate,
        reward_policy_revision=world.policy.revision,
        model=facts.model,
        last_training=record.last_training,
        trainings=record.trainings,
        training_day=record.training_day,
        changes=record.changes,
        serving_revision=served.stable.revision if served and served.stable else None,
        weight=f"{served.weight or 0}%" if served and served.canary else None,
        observed_train=record.observed_train,
        observed_training_request=record.observed_training_request,
        refused_training_request=record.refused_training_request,
        registered=facts.registered,
        memory=shown(world),
    ).to_kube()


def _since(facts: StatusFacts) -> int | None:
    previous = rewarded_since(facts.world, facts.record.last_training)
    return facts.world.before.rewarded_since_training if previous is None else previous


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _phase(facts: StatusFacts) -> str:
    world = facts.world
    if world.spec.suspend:
        return "Suspended"
    if facts.problem or facts.verdict.problem:
        return "Pending" if facts.problem and facts.problem.waits else "Degraded"
    if world.actors_trouble:
        return "Degraded"
    if _running(facts):
        return "Training"
    rollout = world.deployment.phase if world.deployment else None
    if rollout in ("Progressing", "Paused", "Guarding"):
        return "RollingOut"
    if world.deployment is None or world.deployment.stable is None:
        return "Pending"
    return "Collecting" if world.spec.training else "Serving"


def _running(facts: StatusFacts) -> bool:
    return facts.verdict.fire is not None or any(not job.finished for job in facts.world.jobs)


def _conditions(facts: StatusFacts) -> list[dict[str, Any]]:
    world, phase, generation = facts.world, _phase(facts), facts.world.generation
    reason, sentence = _why(facts, phase)
    serving = world.deployment is not None and world.deployment.stable is not None
    stalled = phase == "Degraded"
    ready = serving and facts.registered is not None and not facts.problem and not stalled
    wanted = ready_triplet(
        ready=ready,
        progressing=phase == "Pending",
        stalled=stalled,
        reason=reason,
        message=sentence,
        generation=generation,
    )
    away = world.stats_problem
    wanted += [
        condition(
            "DataAvailable",
            FALSE if away or world.stats is None else TRUE,
            "DataPlaneUnavailable" if away else "NotRegistered" if world.stats is None else "Counting",
            away or ("the data plane does not know this agent yet" if world.stats is None else "experience is counted"),
            generation,
        ),
        _served(facts),
        *judge(world),
        *anomaly_condition.judged(_watched(facts), [item.to_kube() for item in world.before.conditions], generation),
    ]
    return merge([item.to_kube() for item in world.before.conditions], wanted, world.time)


def _watched(facts: StatusFacts) -> dict[str, ReturnAnomalies]:
    """The arms that serve: stable, and a canary that plays."""
    served, stats = facts.world.deployment, facts.world.stats
    if served is None or stats is None:
        return {}
    serving = {arm.revision for arm in (served.stable, served.canary) if arm}
    return {f"revision {arm.revision}": watch(arm.returns) for arm in stats.arms if arm.revision in serving}


def _served(facts: StatusFacts) -> dict[str, Any]:
    served, generation = facts.world.deployment, facts.world.generation
    if served is None:
        return condition("Served", FALSE, "NoModelDeployment", "the ModelDeployment was not seen yet", generation)
    held = next((item for item in served.conditions if item.type == "Ready"), None)
    reason, text = (held.reason, held.message) if held else ("Pending", "the ModelDeployment has not reported yet")
    return condition("Served", TRUE if held and held.status == "True" else FALSE, reason, text, generation)


def _why(facts: StatusFacts, phase: str) -> tuple[str, str]:
    if facts.world.spec.suspend:
        return (
            "Suspended",
            "suspended: no new run, model or actors; a run under way goes on, and what serves stays",
        )
    if facts.problem:
        return facts.problem.reason, facts.problem.sentence
    if facts.verdict.problem:
        return "TriggerInvalid", facts.verdict.problem
    if facts.world.actors_trouble:
        return "ActorsNotPlaying", f"no actor plays: {facts.world.actors_trouble}"
    if facts.verdict.fire and facts.record.last_training:
        return "TrainingTriggered", f"{facts.record.last_training.name}: {facts.verdict.fire.sentence}"
    return phase, "; ".join(filter(None, (_model(facts), _last_run(facts), facts.verdict.waiting)))


def _model(facts: StatusFacts) -> str:
    if facts.model is None:
        return "nothing is to be served"
    served, source = facts.world.deployment, facts.model.source
    if served and served.stable and not served.canary and served.stable.uri == facts.model.uri:
        return f"{source} serves"
    return f"{source} is to be served"


def _last_run(facts: StatusFacts) -> str:
    """The newest run, where it brought no model."""
    last = facts.record.last_training
    run = next((job for job in facts.world.jobs if last and job.name == last.name and job.finished), None)
    if run is None or run.uri is not None:
        return ""
    return f"{run.name} brought no model" + (f" ({run.verdict})" if run.verdict else "")


CONDITION, PINNED_ABOVE = "MemoryBudget", "PinnedAboveBudget"
STEP = 5
"""Percent of the budget: smaller changes are not written."""
STALE_SECONDS = 600.0
"""Older figures are written again even without a change."""


def wanted(spec: LearningAgentSpec) -> MemoryBudget | None:
    """The budget that the data plane is to keep; None where a MemoryService does."""
    budget = None if spec.memory.service_ref else spec.memory.budget
    return budget.told() if budget else None


def asks(spec: LearningAgentSpec, before: LearningAgentStatus) -> bool:
    """True if the data plane has a budget of this agent to keep, or may have one that is still to be removed."""
    return wanted(spec) is not None or any(
        item.type == CONDITION and item.reason not in REASONS for item in before.conditions
    )


def tell(world: AgentSnapshot) -> tuple[Call, ...]:
    """Whatever makes the data plane's budget that of the spec; nothing while that is not known."""
    budget, path = wanted(world.spec), f"/api/v1/agents/{world.name}/memory-budget"
    own = world.memory_use.own if world.memory_use else None
    if world.memory_problem or own == budget:
        return ()
    if budget is None:
        return (Call("DELETE", path),)
    return (Call("PUT", path, budget.model_dump(mode="json", exclude_none=True)),)


def shown(world: AgentSnapshot) -> AgentMemory | None:
    """The figures of the status: those that are there already unless there is news."""
    old, use = world.before.memory, world.memory_use
    if wanted(world.spec) is None:
        return None
    if use is None or use.memories is None or use.bytes is None:
        return old
    new = AgentMemory(
        memories=use.memories,
        bytes=use.bytes,
        used=_share(use),
        forgotten=use.forgotten,
        last_forgotten=use.last_forgotten or None,
        last_forgotten_at=stamp(use.last_forgotten_at) if use.last_forgotten_at else None,
        observed_at=world.time,
    )
    if old is None or old.used != new.used:
        return new
    same = old.model_copy(update={"observed_at": new.observed_at}) == new
    return old if same or seconds_since(old.observed_at, world.now) < STALE_SECONDS else new


def judge(world: AgentSnapshot) -> list[dict[str, Any]]:
    """The condition MemoryBudget of an agent that has one, or whose budget could not be removed yet."""
    budget, use = wanted(world.spec), world.memory_use
    if world.memory_problem:
        return [condition(CONDITION, UNKNOWN, "DataPlaneUnavailable", world.memory_problem, world.generation)]
    if world.spec.memory.service_ref and world.spec.memory.budget:
        result = _kept_by_service(world, world.spec.memory.service_ref.name, world.spec.memory.budget.told())
        return [condition(CONDITION, *result, world.generation)]
    if budget is None:
        return []
    if use is None or use.own != budget or use.memories is None:
        text = "the data plane has not measured yet what the agent keeps"
        return [condition(CONDITION, UNKNOWN, "NotMeasured", text, world.generation)]
    if use.pinned_above:
        return [condition(CONDITION, FALSE, PINNED_ABOVE, _pinned(use), world.generation)]
    text = f"at most {use.budget.sentence()}; above, what is worth least is forgotten"
    return [condition(CONDITION, TRUE, "WithinBudget", text, world.generation)]


def news(world: AgentSnapshot) -> tuple[Notice, ...]:
    """A warning when pinned memories have come to exceed the budget."""
    previous = any(item.type == CONDITION and item.reason == PINNED_ABOVE for item in world.before.conditions)
    result = [item for item in judge(world) if item["reason"] == PINNED_ABOVE and not previous]
    return tuple(Notice("Warning", PINNED_ABOVE, item["message"]) for item in result)


def _pinned(use: MemoryUse) -> str:
    fields = ", ".join(f"spec.memory.budget.{_field(name)}" for name in use.pinned_above)
    return f"{use.pinned} pinned memories alone exceed {fields}, and pinned ones stay: unpin some, or raise it"


def _field(name: str) -> str:
    return "size" if name == "bytes" else name.replace("per_type", "perType")


def _share(use: MemoryUse) -> str | None:
    pairs = ((use.memories, use.budget.memories), (use.bytes, use.budget.bytes))
    shares = [100 * (held or 0) / limit for held, limit in pairs if limit]
    return f"{STEP * round(max(shares) / STEP)}%" if shares else None


MISSING, NOT_TOLD, NO_ROOM, KEPT = "MemoryServiceMissing", "NotToldYet", "NoRoom", "KeptByMemoryService"
REASONS = frozenset({MISSING, NOT_TOLD, NO_ROOM, KEPT})


def _kept_by_service(
    world: AgentSnapshot, service: str, budget: MemoryBudget
) -> tuple[Literal["True", "False", "Unknown"], str, str]:
    """Status, reason and message."""
    home = world.memory or MemoryHome()
    if not home.exists:
        return UNKNOWN, MISSING, f"no MemoryService {service} keeps it: there is none"
    if home.left_out_from is not None and world.name >= home.left_out_from:
        return FALSE, NO_ROOM, _full(service)
    if not home.tells_budgets:
        return UNKNOWN, NOT_TOLD, f"MemoryService {service} has not told its pods yet"
    text = f"MemoryService {service} keeps it, or less where its agentBudget is smaller: at most {budget.sentence()}"
    return TRUE, KEPT, f"{text}; how much of it is used is in that service's REST interface and metrics"


def _full(service: str) -> str:
    return (
        f"ConfigMap {budgets_config_map(service)} has no room for it, so MemoryService {service} holds this agent to "
        "its agentBudget alone: name another MemoryService, or take other agents' budgets back"
    )
