"""Rules that decide about a TrainingJob with a study, in the order in which they are asked.

Every effect may be repeated: the data plane's trials have numbers, children have names, the first end of a trial
counts. So an operator killed at any instruction neither loses a trial nor runs one twice.
"""

from collections.abc import Callable
from dataclasses import replace

from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.training.attempts import NOW, SOON, ask_gates, fail, hold_run
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
    takes,
    tend,
    trial_name,
)

StudyRule = Callable[[StudySnapshot], Plan | None]


def decide(snapshot: StudySnapshot) -> Plan:
    for rule in RULES:
        plan = rule(snapshot)
        if plan is not None:
            return replace(plan, announcements=announcements(snapshot, plan.status, snapshot.spec, snapshot.agent_name))
    raise AssertionError("the last rule always applies")


def leave_to_garbage_collection(snapshot: StudySnapshot) -> Plan | None:
    """The trials carry owner references; nothing is left to do."""
    return Plan(status=snapshot.status) if snapshot.deleting else None


def keep_finished(snapshot: StudySnapshot) -> Plan | None:
    """A finished study stays finished, its trials to be looked at until it is deleted."""
    if not snapshot.status.get("finishedAt"):
        return None
    return Plan(status={**snapshot.status, "observedGeneration": snapshot.generation})


def refuse(snapshot: StudySnapshot) -> Plan | None:
    """A space that could not be trained is refused before the first trial."""
    why = problem(snapshot.name, snapshot.spec, priced=snapshot.prices is not None)
    return fail(snapshot, "ConfigurationError", why) if why else None


def wait_for_the_data_plane(snapshot: StudySnapshot) -> Plan | None:
    """Trials at work go on; none begins and none ends."""
    return hold_run(snapshot, "DataPlaneUnavailable", snapshot.state_error) if snapshot.state_error else None


def begin(snapshot: StudySnapshot) -> Plan | None:
    """No study of this very object yet: a deleted one of the same name is forgotten."""
    if snapshot.state is not None and snapshot.state.owner == snapshot.owner:
        return None
    study = snapshot.study
    order = {
        "job": snapshot.name,
        "owner": snapshot.owner,
        "trials": study.trials,
        "space": [dimension.to_kube() for dimension in study.searched(takes(snapshot.spec))],
        "direction": study.direction,
        "seed": study.seed,
        "startup_trials": study.startup_trials,
        "pruner": study.pruner.to_kube(),
        "cost_tolerance": study.cost.tolerance if study.cost else None,
    }
    verdict = StatusVerdict(phase="Searching", reason="Searching", message=f"begins a study of {study.trials} trials")
    started = snapshot.status.get("startedAt") or snapshot.time
    state = status(snapshot, verdict, startedAt=started, lineage=lineage(snapshot))
    return Plan(status=state, calls=(Call("PUT", path(snapshot.name), order),), requeue_after=NOW)


def suspend(snapshot: StudySnapshot) -> Plan | None:
    """Every trial stops and keeps its newest checkpoint."""
    if not snapshot.spec.suspend:
        return None
    running = [trial for trial in snapshot.state.trials if trial.state == "running"] if snapshot.state else []
    jobs = [(trial, snapshot.trials[trial.number]) for trial in running if trial.number in snapshot.trials]
    stop = tuple(manifest(snapshot, trial, suspend=True) for trial, job in jobs if not (job.suspend or job.finished))
    message = f"suspended: {sentence(snapshot)}"
    verdict = StatusVerdict(phase="Suspended", reason="Suspended", message=message, progressing=False, suspended=True)
    return Plan(status=status(snapshot, verdict, **fields(snapshot), startedAt=None), apply=stop)


def search(snapshot: StudySnapshot) -> Plan | None:
    """Tend the trials that run, and begin others while there are some to come."""
    assert snapshot.state is not None
    orders, stopping = Orders(), stop_reason(snapshot)
    running = [trial for trial in snapshot.state.trials if trial.state == "running"]
    for trial in running:
        tend(snapshot, trial, stopping, orders)
    begun = len(snapshot.state.trials)
    if stopping is None and not _too_many_failed(snapshot, orders.ended.count("failed")):
        free = max(0, snapshot.study.parallelism - len(running) + len(orders.ended))
        for number in range(begun, min(snapshot.study.trials, begun + free)):
            orders.calls.append(Call("PUT", f"{path(snapshot.name)}/trials/{number}"))
    if not running and (stopping or begun == snapshot.study.trials):
        return None
    verdict = StatusVerdict(phase="Searching", reason="Searching", message=sentence(snapshot))
    started = snapshot.status.get("startedAt") or snapshot.time
    state = status(snapshot, verdict, **fields(snapshot), startedAt=started)
    soon = NOW if orders.ended or len(orders.calls) or orders.apply else SOON
    return Plan(
        status=state,
        apply=tuple(orders.apply),
        calls=tuple(orders.calls),
        events=tuple(orders.events),
        requeue_after=soon,
    )


def conclude(snapshot: StudySnapshot) -> Plan:
    """All trials have ended: the best one's proof is the job's, and the job's gates judge it."""
    best, stopping = best_trial(snapshot), stop_reason(snapshot)
    if _too_many_failed(snapshot) or best is None:
        why = f"{stopping or 'no trial has a result'}: {sentence(snapshot)}"
        reason = "DeadlineExceeded" if stopping and not _too_many_failed(snapshot) else "TrialsFailed"
        return _with_study(snapshot, fail(snapshot, reason, why))
    name = trial_name(snapshot.name, best.number)
    if snapshot.run_error is not None:
        return hold_run(snapshot, "DataPlaneUnavailable", snapshot.run_error)
    job, result = snapshot.trials.get(best.number), snapshot.run.proof if snapshot.run else None
    if result is None or job is None or result.job != name or result.artifact_sha256 != job.artifact:
        why = f"the best trial {name} is gone, or its proof is not the one it was proven by; create a new TrainingJob"
        return _with_study(snapshot, fail(snapshot, "ProofRejected", why))
    plan = ask_gates(snapshot, result, note=f"best of {len(snapshot.trials)} trials, {name}")
    return _with_study(snapshot, plan)


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


def stop_reason(snapshot: StudySnapshot) -> str | None:
    """Reason why no further trial begins and those at work stop; None while the search goes on."""
    if _too_many_failed(snapshot):
        return f"maxFailedTrials: {snapshot.study.max_failed_trials}"
    limit, spent = snapshot.spec.deadline_seconds, snapshot.since("startedAt")
    if limit is not None and spent is not None and spent > limit:
        return f"deadlineSeconds: {limit}"
    return None


def _too_many_failed(snapshot: StudySnapshot, more: int = 0) -> bool:
    trials = snapshot.state.trials if snapshot.state else []
    return more + sum(trial.state == "failed" for trial in trials) >= snapshot.study.max_failed_trials


def _with_study(snapshot: StudySnapshot, plan: Plan) -> Plan:
    """The plan with the study's figures in its status; the proof's return stands where there is one."""
    figures = fields(snapshot, plan.status)
    figures["return"] = plan.status.get("return") or figures["return"]
    state = {key: value for key, value in {**plan.status, **figures}.items() if value is not None}
    return Plan(status=state, events=plan.events, requeue_after=plan.requeue_after)
