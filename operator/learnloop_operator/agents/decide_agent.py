"""The whole decision about one LearningAgent: a snapshot in, a plan out, with the record of its runs."""

from dataclasses import dataclass, replace
from hashlib import sha256

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.learning_agent import AgentModel, LastTraining, LearningAgentStatus
from learnloop_api.wire.training_request import TrainingOrder
from learnloop_operator.agents import (
    agent_children,
    agent_status,
    apply_training_request,
    continuous,
    problems,
    triggers,
)
from learnloop_operator.agents.agent_snapshot import AgentSnapshot, TrainingRun
from learnloop_operator.agents.model_to_serve import forgettable, model_to_serve
from learnloop_operator.core import allowed_pods, anomalies, plan, times
from learnloop_operator.core.plan import LONGEST_NOTE, Announcement, Call, KubeObject, Notice, ObjectRef, Plan

BUSY, RESTING = 2.0, 60.0
"""Seconds between two looks at the experience: while it grows or has just begun to, and where nothing comes of it."""
BUDGET = ", memory budget "
"""Separator in status.registered."""
SELDOM = 90.0
"""Longest pause without new episodes. 2,000 quiet agents at 20 seconds each took a third of a core for nothing."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration of the agent at the data plane."""

    mark: str | None
    calls: tuple[Call, ...] = ()


def decide(snapshot: AgentSnapshot) -> Plan:
    """Register, count, train when it is time, serve the best proven model, keep the actors playing."""
    if snapshot.deleting:
        return Plan(status=snapshot.status)
    before = recorded(snapshot)
    snapshot = replace(snapshot, before=before)
    problem = problems.first_problem(snapshot)
    model = model_to_serve(snapshot)
    registration = _register(snapshot)
    verdict = _triggers(snapshot, problem)
    refusal = _refusal(snapshot, verdict.fire)
    if refusal:
        before, verdict = _refuse(snapshot, before, refusal), triggers.TriggerVerdict(waiting=refusal)
    ending = agent_children.ended_run(snapshot, verdict.fire)
    if ending is not None:
        sentence = f"{ending['metadata']['name']} ends: the next run is another than its updates"
        verdict = triggers.TriggerVerdict(waiting=sentence, again_after=BUSY)
    jobs, after = _train(snapshot, before, verdict.fire)
    jobs = (*jobs, ending) if ending else jobs
    state = agent_status.status(agent_status.StatusFacts(snapshot, after, model, registration.mark, verdict, problem))
    return Plan(
        status=state,
        # The ModelDeployment names this agent. Its own pass reads status.model: rollout/state/snapshot.py.
        apply=(
            *jobs,
            agent_children.model_deployment(snapshot),
            *_actors(snapshot, registration.mark),
        ),
        delete=_deletes(snapshot),
        calls=registration.calls,
        events=(
            *_events(snapshot, model, verdict.fire, after),
            *_refusal_notices(refusal),
            *anomalies.news(snapshot.status, state),
        ),
        announcements=order_announcements(snapshot, after),
        figures={"training_failures_in_a_row": failures_in_a_row(snapshot)},
        requeue_after=_again(snapshot, verdict),
    )


def _register(snapshot: AgentSnapshot) -> Registration:
    """Register reward policy, group and memory budget at the data plane; again when it has forgotten the agent.

    Where a MemoryService keeps the agent's memories, its pods read group and budget.
    """
    before = snapshot.before.registered
    if snapshot.policy.revision is None or snapshot.stats_problem:
        return Registration(before)
    policy, revision = snapshot.spec.reward_policy_ref.name, snapshot.policy.revision
    memory = snapshot.spec.memory
    group, budget = (None, None) if memory.service_ref else (memory.group, memory.budget)
    mark = f"{policy}/{revision}" + (f" in {group}" if group else "")
    limits = budget.limits().model_dump(mode="json", exclude_none=True) if budget else {}
    mark += f"{BUDGET}{plan.revision(limits)}" if budget else ""
    if before == mark and snapshot.stats is not None:
        return Registration(before)
    body = {"reward_policy": policy, "reward_policy_revision": revision} | ({"memory_group": group} if group else {})
    calls = [Call("PUT", f"/api/v1/agents/{snapshot.name}", body)]
    path = f"/api/v1/agents/{snapshot.name}/memory-budget"
    if budget:
        calls.append(Call("PUT", path, limits))
    elif BUDGET in (before or ""):
        calls.append(Call("DELETE", path))
    return Registration(mark, tuple(calls))


def _triggers(snapshot: AgentSnapshot, problem: problems.Problem | None) -> triggers.TriggerVerdict:
    if snapshot.spec.suspend:
        return triggers.TriggerVerdict(waiting="suspended")
    if problem is not None:
        return triggers.TriggerVerdict(waiting=problem.sentence)
    return triggers.evaluate(snapshot, snapshot.before.last_training)


def _refusal(snapshot: AgentSnapshot, fire: triggers.Trigger | None) -> str:
    """Reason why the request that fires asks for more than the template allows; "" where it does not."""
    wish = snapshot.stats.training_wish if snapshot.stats else None
    if fire is None or fire.kind != "request" or wish is None or snapshot.spec.training is None:
        return ""
    why = apply_training_request.narrowed(snapshot.spec.training, wish).sentence
    return f"request {wish.request_id} is refused: {why}"[:1024] if why else ""


def _refuse(snapshot: AgentSnapshot, before: LearningAgentStatus, refusal: str) -> LearningAgentStatus:
    request = snapshot.stats.training_request if snapshot.stats else None
    return before.model_copy(update={"observed_training_request": request, "refused_training_request": refusal})


def _refusal_notices(refusal: str) -> tuple[Notice, ...]:
    return (Notice("Warning", "TrainingRequestRefused", refusal),) if refusal else ()


def _train(
    snapshot: AgentSnapshot, before: LearningAgentStatus, fire: triggers.Trigger | None
) -> tuple[tuple[KubeObject, ...], LearningAgentStatus]:
    if fire is None:
        return (), before
    number, run = (before.trainings or 0) + 1, continuous.warm_run(snapshot)
    if run is None:
        job = agent_children.training_job(snapshot, number, fire)
    else:
        job = agent_children.training_job(snapshot, run.number, fire, update=number - run.number)
    request = agent_children.granted(snapshot, fire)
    after = before.model_copy(
        update={
            "trainings": number,
            "last_training": LastTraining(
                name=job["metadata"]["name"],
                trigger=fire.kind,
                at=snapshot.time,
                rewarded=snapshot.stats.rewarded if snapshot.stats else None,
            ),
            # Every wish that was open is granted by this one run, but a request for another run than the template's.
            "observed_train": snapshot.annotations.get(names.ANNOTATION_TRAIN) or before.observed_train,
            "observed_training_request": request or before.observed_training_request,
            "refused_training_request": None if request else before.refused_training_request,
        }
    )
    return (job,), after


def _actors(snapshot: AgentSnapshot, registered: str | None) -> tuple[KubeObject, ...]:
    environment = snapshot.spec.task.environment
    if environment is None:
        return ()
    # Without a policy to ask or a place to report to, an actor could only fail.
    if allowed_pods.forbidden(environment.actors.pod, "spec.task.environment.actors.pod", snapshot.defaults.pods):
        # The old ones end: what the platform rolled back is not played on with.
        plain = environment.actors.model_copy(update={"pod": PodOptions()})
        return (
            (agent_children.actors(snapshot, environment.model_copy(update={"actors": plain}), 0),)
            if snapshot.actors is not None
            else ()
        )
    playing = not snapshot.spec.suspend and registered and snapshot.deployment and snapshot.deployment.stable
    deployment = agent_children.actors(snapshot, environment, environment.actors.replicas if playing else 0)
    return (*agent_children.actor_network(snapshot, environment), deployment)


def _deletes(snapshot: AgentSnapshot) -> tuple[ObjectRef, ...]:
    old = [ObjectRef(names.API_VERSION, "TrainingJob", snapshot.namespace, name) for name in forgettable(snapshot)]
    if snapshot.spec.task.environment is None and snapshot.actors is not None:
        old.append(ObjectRef("apps/v1", "Deployment", snapshot.namespace, f"{snapshot.name}-actor"))
        if snapshot.defaults.network is not None:
            old.append(ObjectRef("networking.k8s.io/v1", "NetworkPolicy", snapshot.namespace, f"{snapshot.name}-actor"))
    return tuple(old)


def _events(
    snapshot: AgentSnapshot, model: AgentModel | None, fire: triggers.Trigger | None, after: LearningAgentStatus
) -> tuple[Notice, ...]:
    events: list[Notice] = []
    if fire and after.last_training:
        events.append(Notice("Normal", "TrainingTriggered", f"{after.last_training.name}: {fire.sentence}"))
    if model is not None and (snapshot.before.model is None or snapshot.before.model.uri != model.uri):
        proof = f", held-out return {model.mean_return:.1f}" if model.mean_return is not None else ""
        events.append(Notice("Normal", "ModelChosen", f"to be served: {model.source}{proof} ({model.uri})"))
    return tuple(events)


def _again(snapshot: AgentSnapshot, verdict: triggers.TriggerVerdict) -> float:
    usual = _usual(snapshot)
    return min(usual, verdict.again_after) if verdict.again_after is not None else usual


def _usual(snapshot: AgentSnapshot) -> float:
    if snapshot.stats is None or snapshot.stats_problem:
        return BUSY
    if snapshot.spec.suspend:
        return RESTING
    if snapshot.stats.rewarded != snapshot.before.rewarded:
        return BUSY
    newest = snapshot.stats.last_trajectory_at or times.parse(snapshot.object["metadata"].get("creationTimestamp"))
    quiet = (snapshot.now - newest).total_seconds() if newest else 0.0
    return times.ever_later(quiet, BUSY, SELDOM)


def recorded(snapshot: AgentSnapshot) -> LearningAgentStatus:
    """The persisted status, completed by a run that was created just before the operator died."""
    before = snapshot.before
    newest = snapshot.jobs[-1] if snapshot.jobs else None
    if newest is None or newest.last <= (before.trainings or 0):
        return before.model_copy(update={"last_training": _refreshed(before.last_training, snapshot.jobs)})
    notes = newest.notes or {}
    return before.model_copy(
        update={
            "trainings": newest.last,
            "last_training": _last(newest),
            "observed_train": notes.get(agent_children.NOTE_TRAIN, "")[:LONGEST_NOTE] or before.observed_train,
            "observed_training_request": notes.get(agent_children.NOTE_REQUEST, "")[:LONGEST_NOTE]
            or before.observed_training_request,
        }
    )


def failures_in_a_row(snapshot: AgentSnapshot) -> int:
    """Number of runs that ended without a validated model since the last one that had one."""
    ended = [job for job in snapshot.jobs if job.finished or job.rests]
    validated = [index for index, job in enumerate(ended) if job.phase == "Validated"]
    return len(ended) - 1 - (validated[-1] if validated else -1)


def _last(job: TrainingRun) -> LastTraining:
    notes = job.notes or {}
    rewarded = notes.get(agent_children.NOTE_REWARDED, "")
    return LastTraining(
        name=job.name,
        trigger=notes.get(agent_children.NOTE_TRIGGER, "unknown")[:LONGEST_NOTE],
        phase=job.phase or None,
        at=job.created_at,
        rewarded=int(rewarded) if rewarded.isdecimal() else None,
    )


def _refreshed(last: LastTraining | None, jobs: tuple[TrainingRun, ...]) -> LastTraining | None:
    job = next((job for job in jobs if last and job.name == last.name), None)
    return last.model_copy(update={"phase": job.phase or None}) if last and job else last


NEWS_SECONDS = 3600.0
"""A new leader repeats orders that are not older; the data plane ignores those that it has."""


def order_announcements(snapshot: AgentSnapshot, after: LearningAgentStatus) -> tuple[Announcement, ...]:
    """The order that the newest run obeys, under an identity that it always has."""
    order = _order(snapshot, after)
    if order is None or times.seconds_since(order.at.isoformat(), snapshot.now) > NEWS_SECONDS:
        return ()
    uid = str(snapshot.object["metadata"].get("uid", ""))
    identity = sha256("\n".join((uid, order.job, order.value)).encode()).hexdigest()[:32]
    path = f"/api/v1/agents/{snapshot.name}/training-orders/{identity}"
    return (Announcement(Call("PUT", path, order.model_dump(mode="json")), identity),)


def _order(snapshot: AgentSnapshot, after: LearningAgentStatus) -> TrainingOrder | None:
    run, value = after.last_training, after.observed_train
    if run is None or run.trigger != triggers.BY_A_PERSON or value is None or times.parse(run.at) is None:
        return None
    who = value.partition(" by ")[2][:256] or None
    return TrainingOrder.model_validate(
        {
            "agent": snapshot.name,
            "job": run.name,
            "by": who,
            "verified": bool(who and snapshot.defaults.names_are_verified),
            "at": run.at,
            "value": value[:512],
        }
    )
