"""Rules that decide about a TrainingJob with a study, in the order in which they are asked.

Every effect may be repeated: the data plane's trials have numbers, children have names, the first end of a trial
counts. So an operator killed at any instruction neither loses a trial nor runs one twice.
"""

from collections.abc import Callable
from dataclasses import replace

from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.training.attempts import NOW, SOON, fail, hold, judge
from learnloop_operator.training.run_status import StatusVerdict, announcements, lineage, status
from learnloop_operator.training.study_trials import (
    Orders,
    StudySnapshot,
    best_trial,
    fields,
    manifest,
    path,
    problem,
    sentence,
    tend,
    trial_name,
)

StudyRule = Callable[[StudySnapshot], Plan | None]


def decide(world: StudySnapshot) -> Plan:
    """The first rule that applies."""
    for rule in RULES:
        plan = rule(world)
        if plan is not None:
            return replace(plan, announcements=announcements(world, plan.status, world.spec, world.agent_name))
    raise AssertionError("the last rule always applies")


def leave_to_garbage_collection(world: StudySnapshot) -> Plan | None:
    """The trials carry owner references; nothing is left to do."""
    return Plan(status=world.status) if world.deleting else None


def keep_finished(world: StudySnapshot) -> Plan | None:
    """A finished study stays finished, its trials to be looked at until it is deleted."""
    if not world.status.get("finishedAt"):
        return None
    return Plan(status={**world.status, "observedGeneration": world.generation})


def refuse(world: StudySnapshot) -> Plan | None:
    """A space that could not be trained is refused before the first trial."""
    why = problem(world.name, world.spec)
    return fail(world, "ConfigurationError", why) if why else None


def wait_for_the_data_plane(world: StudySnapshot) -> Plan | None:
    """Trials at work go on; none begins and none ends."""
    return hold(world, "DataPlaneUnavailable", world.state_error) if world.state_error else None


def begin(world: StudySnapshot) -> Plan | None:
    """No study of this very object yet: a deleted one of the same name is forgotten."""
    if world.state is not None and world.state.owner == world.owner:
        return None
    study = world.study
    order = {
        "job": world.name,
        "owner": world.owner,
        "trials": study.trials,
        "space": [dimension.to_kube() for dimension in study.space],
        "direction": study.direction,
        "seed": study.seed,
        "startup_trials": study.startup_trials,
        "pruner": study.pruner.to_kube(),
    }
    verdict = StatusVerdict(phase="Searching", reason="Searching", message=f"begins a study of {study.trials} trials")
    started = world.status.get("startedAt") or world.time
    state = status(world, verdict, startedAt=started, lineage=lineage(world))
    return Plan(status=state, calls=(Call("PUT", path(world.name), order),), requeue_after=NOW)


def suspend(world: StudySnapshot) -> Plan | None:
    """Every trial stops and keeps its newest checkpoint."""
    if not world.spec.suspend:
        return None
    running = [trial for trial in world.state.trials if trial.state == "running"] if world.state else []
    jobs = [(trial, world.trials[trial.number]) for trial in running if trial.number in world.trials]
    stop = tuple(manifest(world, trial, suspend=True) for trial, job in jobs if not (job.suspend or job.finished))
    message = f"suspended: {sentence(world)}"
    verdict = StatusVerdict(phase="Suspended", reason="Suspended", message=message, progressing=False, suspended=True)
    return Plan(status=status(world, verdict, **fields(world), startedAt=None), apply=stop)


def search(world: StudySnapshot) -> Plan | None:
    """Tend the trials that run, and begin others while there are some to come."""
    assert world.state is not None
    orders, stopping = Orders(), stop_reason(world)
    running = [trial for trial in world.state.trials if trial.state == "running"]
    for trial in running:
        tend(world, trial, stopping, orders)
    begun = len(world.state.trials)
    if stopping is None and not _too_many_failed(world, orders.ended.count("failed")):
        free = max(0, world.study.parallelism - len(running) + len(orders.ended))
        for number in range(begun, min(world.study.trials, begun + free)):
            orders.calls.append(Call("PUT", f"{path(world.name)}/trials/{number}"))
    if not running and (stopping or begun == world.study.trials):
        return None
    verdict = StatusVerdict(phase="Searching", reason="Searching", message=sentence(world))
    started = world.status.get("startedAt") or world.time
    state = status(world, verdict, **fields(world), startedAt=started)
    soon = NOW if orders.ended or len(orders.calls) or orders.apply else SOON
    return Plan(
        status=state,
        apply=tuple(orders.apply),
        calls=tuple(orders.calls),
        events=tuple(orders.events),
        requeue_after=soon,
    )


def conclude(world: StudySnapshot) -> Plan:
    """All trials have ended: the best one's proof is the job's, and the job's gates judge it."""
    best, stopping = best_trial(world), stop_reason(world)
    if _too_many_failed(world) or best is None:
        why = f"{stopping or 'no trial has a result'}: {sentence(world)}"
        reason = "DeadlineExceeded" if stopping and not _too_many_failed(world) else "TrialsFailed"
        return _with_study(world, fail(world, reason, why))
    name = trial_name(world.name, best.number)
    if world.run_error is not None:
        return hold(world, "DataPlaneUnavailable", world.run_error)
    job, result = world.trials.get(best.number), world.run.manifest if world.run else None
    if result is None or job is None or result.job != name or result.artifact_sha256 != job.artifact:
        why = (
            f"the best trial {name} is gone, or its manifest is not the one it was proven by; create a new TrainingJob"
        )
        return _with_study(world, fail(world, "ProofRejected", why))
    plan = judge(world, result, note=f"best of {len(world.trials)} trials, {name}")
    return _with_study(world, plan)


RULES: tuple[StudyRule, ...] = (
    leave_to_garbage_collection,
    keep_finished,
    refuse,
    wait_for_the_data_plane,
    begin,
    suspend,
    search,
    conclude,
)


def stop_reason(world: StudySnapshot) -> str | None:
    """Reason why no further trial begins and those at work stop; None while the search goes on."""
    if _too_many_failed(world):
        return f"maxFailedTrials: {world.study.max_failed_trials}"
    limit, spent = world.spec.deadline_seconds, world.since("startedAt")
    if limit is not None and spent is not None and spent > limit:
        return f"deadlineSeconds: {limit}"
    return None


def _too_many_failed(world: StudySnapshot, more: int = 0) -> bool:
    trials = world.state.trials if world.state else []
    return more + sum(trial.state == "failed" for trial in trials) >= world.study.max_failed_trials


def _with_study(world: StudySnapshot, plan: Plan) -> Plan:
    """The plan with the study's figures in its status; the proof's return stands where there is one."""
    figures = fields(world)
    figures["return"] = plan.status.get("return") or figures["return"]
    state = {key: value for key, value in {**plan.status, **figures}.items() if value is not None}
    return Plan(status=state, events=plan.events, requeue_after=plan.requeue_after)
