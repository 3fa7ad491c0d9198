"""The whole decision about one LearningAgent: a world in, a plan out."""

from dataclasses import dataclass, replace

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.learning_agent import AgentModel, LastTraining, LearningAgentStatus
from learnloop_operator.agents import run_history
from learnloop_operator.agents.agent_children import actor_network, actors, granted, model_deployment, training_job
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.agents.agent_status import StatusFacts, status
from learnloop_operator.agents.model_to_serve import forgettable, model_to_serve
from learnloop_operator.agents.narrowing import narrowed
from learnloop_operator.agents.problems import Problem, first_problem
from learnloop_operator.agents.run_history import failures_in_a_row, recorded
from learnloop_operator.agents.triggers import Trigger, TriggerVerdict, evaluate
from learnloop_operator.core.allowed_pods import forbidden
from learnloop_operator.core.anomalies import news
from learnloop_operator.core.manifest_parts import revision as digest
from learnloop_operator.core.plan import Call, Manifest, Notice, ObjectRef, Plan
from learnloop_operator.core.times import ever_later, parse

BUSY, IDLE, RESTING = 5.0, 20.0, 60.0
"""Seconds between two looks at the experience: while it grows, while it does not, and where nothing comes of it."""
BUDGET = ", memory budget "
"""Separator in status.registered."""
SELDOM = 90.0
"""Longest pause without new episodes. 2,000 quiet agents at 20 seconds each took a third of a core for nothing."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration of the agent at the data plane."""

    mark: str | None
    calls: tuple[Call, ...] = ()


def decide(world: AgentSnapshot) -> Plan:
    """Register, count, train when it is time, serve the best proven model, keep the actors playing."""
    if world.deleting:
        return Plan(status=world.status)
    before = recorded(world)
    world = replace(world, before=before)
    problem = first_problem(world)
    model = model_to_serve(world)
    registration = _register(world)
    verdict = _triggers(world, problem)
    refusal = _refusal(world, verdict.fire)
    if refusal:
        before, verdict = _refuse(world, before, refusal), TriggerVerdict(waiting=refusal)
    jobs, after = _train(world, before, verdict.fire)
    state = status(StatusFacts(world, after, model, registration.mark, verdict, problem))
    return Plan(
        status=state,
        apply=(*jobs, model_deployment(world), *_actors(world, registration.mark)),
        delete=_deletes(world),
        calls=registration.calls,
        events=(
            *_events(world, model, verdict.fire, after),
            *_told(refusal),
            *news(world.status, state),
        ),
        announcements=run_history.order_announcements(world, after),
        audit=run_history.order_audit(world, before, after),
        figures={"training_failures_in_a_row": failures_in_a_row(world)},
        requeue_after=_again(world, verdict),
    )


def _register(world: AgentSnapshot) -> Registration:
    """Register reward policy, group and memory budget at the data plane; again when it has forgotten the agent.

    Where a MemoryService keeps the agent's memories, its pods read group and budget.
    """
    before = world.before.registered
    if world.policy.revision is None or world.stats_problem:
        return Registration(before)
    policy, revision = world.spec.reward_policy_ref.name, world.policy.revision
    memory = world.spec.memory
    group, budget = (None, None) if memory.service_ref else (memory.group, memory.budget)
    mark = f"{policy}/{revision}" + (f" in {group}" if group else "")
    limits = budget.told().model_dump(mode="json", exclude_none=True) if budget else {}
    mark += f"{BUDGET}{digest(limits)}" if budget else ""
    if before == mark and world.stats is not None:
        return Registration(before)
    body = {"reward_policy": policy, "reward_policy_revision": revision} | ({"memory_group": group} if group else {})
    calls = [Call("PUT", f"/api/v1/agents/{world.name}", body)]
    path = f"/api/v1/agents/{world.name}/memory-budget"
    if budget:
        calls.append(Call("PUT", path, limits))
    elif BUDGET in (before or ""):
        calls.append(Call("DELETE", path))
    return Registration(mark, tuple(calls))


def _triggers(world: AgentSnapshot, problem: Problem | None) -> TriggerVerdict:
    if world.spec.suspend:
        return TriggerVerdict(waiting="suspended")
    if problem is not None:
        return TriggerVerdict(waiting=problem.sentence)
    return evaluate(world, world.before.last_training)


def _refusal(world: AgentSnapshot, fire: Trigger | None) -> str:
    """Reason why the request that fires asks for more than the template allows; "" where it does not."""
    wish = world.stats.training_wish if world.stats else None
    if fire is None or fire.kind != "request" or wish is None or world.spec.training is None:
        return ""
    why = narrowed(world.spec.training, wish).sentence
    return f"request {wish.request_id} is refused: {why}"[:1024] if why else ""


def _refuse(world: AgentSnapshot, before: LearningAgentStatus, refusal: str) -> LearningAgentStatus:
    request = world.stats.training_request if world.stats else None
    return before.model_copy(update={"observed_training_request": request, "refused_training_request": refusal})


def _told(refusal: str) -> tuple[Notice, ...]:
    return (Notice("Warning", "TrainingRequestRefused", refusal),) if refusal else ()


def _train(
    world: AgentSnapshot, before: LearningAgentStatus, fire: Trigger | None
) -> tuple[tuple[Manifest, ...], LearningAgentStatus]:
    if fire is None:
        return (), before
    number = (before.trainings or 0) + 1
    job = training_job(world, number, fire)
    request = granted(world, fire)
    after = before.model_copy(
        update={
            "trainings": number,
            "last_training": LastTraining(
                name=job["metadata"]["name"],
                trigger=fire.kind,
                at=world.time,
                rewarded=world.stats.rewarded if world.stats else None,
            ),
            # Every wish that was open is granted by this one run, but a request for another run than the template's.
            "observed_train": world.annotations.get(names.ANNOTATION_TRAIN) or before.observed_train,
            "observed_training_request": request or before.observed_training_request,
            "refused_training_request": None if request else before.refused_training_request,
        }
    )
    return (job,), after


def _actors(world: AgentSnapshot, registered: str | None) -> tuple[Manifest, ...]:
    environment = world.spec.task.environment
    if environment is None:
        return ()
    # Without a policy to ask or a place to report to, an actor could only fail.
    if forbidden(environment.actors.pod, "spec.task.environment.actors.pod", world.defaults.pods):
        # The old ones end: what the platform rolled back is not played on with.
        plain = environment.actors.model_copy(update={"pod": PodOptions()})
        return (actors(world, environment.model_copy(update={"actors": plain}), 0),) if world.actors is not None else ()
    playing = not world.spec.suspend and registered and world.deployment and world.deployment.stable
    deployment = actors(world, environment, environment.actors.replicas if playing else 0)
    return (*actor_network(world, environment), deployment)


def _deletes(world: AgentSnapshot) -> tuple[ObjectRef, ...]:
    old = [ObjectRef(names.API_VERSION, "TrainingJob", world.namespace, name) for name in forgettable(world)]
    if world.spec.task.environment is None and world.actors is not None:
        old.append(ObjectRef("apps/v1", "Deployment", world.namespace, f"{world.name}-actor"))
        if world.defaults.network is not None:
            old.append(ObjectRef("networking.k8s.io/v1", "NetworkPolicy", world.namespace, f"{world.name}-actor"))
    return tuple(old)


def _events(
    world: AgentSnapshot, model: AgentModel | None, fire: Trigger | None, after: LearningAgentStatus
) -> tuple[Notice, ...]:
    events: list[Notice] = []
    if fire and after.last_training:
        events.append(Notice("Normal", "TrainingTriggered", f"{after.last_training.name}: {fire.sentence}"))
    if model is not None and (world.before.model is None or world.before.model.uri != model.uri):
        proof = f", held-out return {model.mean_return:.1f}" if model.mean_return is not None else ""
        events.append(Notice("Normal", "ModelChosen", f"to be served: {model.source}{proof} ({model.uri})"))
    return tuple(events)


def _again(world: AgentSnapshot, verdict: TriggerVerdict) -> float:
    usual = _usual(world)
    return min(usual, verdict.again_after) if verdict.again_after is not None else usual


def _usual(world: AgentSnapshot) -> float:
    if world.stats is None or world.stats_problem:
        return BUSY
    if world.spec.suspend:
        return RESTING
    if world.stats.rewarded != world.before.rewarded:
        return BUSY
    newest = world.stats.last_trajectory_at or parse(world.object["metadata"].get("creationTimestamp"))
    quiet = (world.now - newest).total_seconds() if newest else 0.0
    return ever_later(quiet, IDLE, SELDOM)
