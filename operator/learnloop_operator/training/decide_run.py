"""Rules that decide about a TrainingJob, in the order in which they are asked.

Record before act: the operator writes to the status what ends an attempt, and only then does it. Killed at any
instruction, it loses neither the count of the attempts nor the reason.
"""

from collections.abc import Callable
from dataclasses import replace

from learnloop_operator.core import allowed_pods, anomalies, times
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.training import gang_pods, proof_gates, run_status, updates
from learnloop_operator.training.attempts import (
    HELD_UP,
    LATER,
    NOW,
    RESTARTING,
    SOON,
    ask_gates,
    begun_at,
    fail,
    hold_run,
    interrupt,
    launch,
    reason_notices,
    retry,
    run_path,
)
from learnloop_operator.training.backends import BACKENDS, Backends
from learnloop_operator.training.ranks import stray_mount
from learnloop_operator.training.run_snapshot import BackendJob, TrainingSnapshot

PROOF_GRACE = 15.0
"""A gang may end a moment before its proof can be read."""

TrainingRule = Callable[[TrainingSnapshot, Backends], Plan | None]


def decide(snapshot: TrainingSnapshot, backends: Backends) -> Plan:
    for rule in RULES:
        plan = rule(snapshot, backends)
        if plan is not None:
            beat = snapshot.run.heartbeat if snapshot.run and snapshot.attempts else None
            fresh = beat.at if beat else None
            announcements = run_status.announcements(snapshot, plan.status, snapshot.spec, snapshot.agent_name, fresh)
            return replace(
                plan, announcements=announcements, events=(*plan.events, *anomalies.news(snapshot.status, plan.status))
            )
    raise AssertionError("the last rule always applies")


def leave_to_garbage_collection(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """The children carry owner references; nothing is left to do."""
    return Plan(status=snapshot.status) if snapshot.deleting else None


def keep_finished(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """A finished job stays finished; its pods go when they are failed leftovers, or old."""
    if not snapshot.status.get("finishedAt"):
        return None
    state = {**snapshot.status, "observedGeneration": snapshot.generation}
    job, ttl = snapshot.job, snapshot.spec.ttl_seconds_after_finished
    if job is None or job.deleting:
        return Plan(status=state)
    if job.state == "active" and (snapshot.updated is not None or not snapshot.holds("Trained")):
        return Plan(status=state, delete=(job.ref,))
    if ttl is None:
        return Plan(status=state)
    left = ttl - (snapshot.since("finishedAt") or 0.0)
    return Plan(status=state, delete=(job.ref,)) if left <= 0 else Plan(status=state, requeue_after=left)


def suspend(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """No pods; the checkpoint stays where it is. The clock of deadlineSeconds restarts on resume."""
    if not snapshot.spec.suspend:
        return None
    state = run_status.status(
        snapshot,
        run_status.StatusVerdict(
            phase="Suspended", reason="Suspended", message=_paused(snapshot), progressing=False, suspended=True
        ),
        attempts=snapshot.attempts or None,
        startedAt=None,
        queuedAt=None,
        eta=None,
    )
    if not snapshot.holds("Suspended"):
        again = None if snapshot.job is None else NOW
        return Plan(status=state, events=reason_notices(snapshot, "Suspended", _paused(snapshot)), requeue_after=again)
    if snapshot.job is not None and not snapshot.job.deleting:
        return Plan(status=state, delete=(snapshot.job.ref,))
    return Plan(status=state)


def need_backend(snapshot: TrainingSnapshot, backends: Backends) -> Plan | None:
    """Hold a run that no backend fits."""
    if snapshot.job is not None or snapshot.ranks or backends.chosen(snapshot) is not None:
        return None
    return hold_run(snapshot, "BackendMissing", backends.none_fits(snapshot), after=LATER)


def accept_proof(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """A verified proof of the attempt that has just succeeded is the only way to Trained. While the gang runs, or
    after it failed, nothing that says it is finished is believed."""
    result = snapshot.run.proof if snapshot.run and snapshot.attempts else None
    if result is None or snapshot.job is None or snapshot.job.state != "succeeded":
        return None
    problem = proof_gates.flaw(snapshot, result)
    if problem is None:
        return ask_gates(snapshot, result)
    severity, why = problem
    return fail(snapshot, "ProofRejected", why) if severity == "wrong" else None


def heed_deadline(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """deadlineSeconds of wall time since the start (or the last resume). Waiting in a queue is not counted."""
    limit, spent = snapshot.spec.deadline_seconds, snapshot.worked_seconds
    if limit is None or spent is None or spent <= limit or snapshot.updated is not None:
        return None
    return fail(snapshot, "DeadlineExceeded", f"not finished after {spent:.0f} s (deadlineSeconds: {limit})")


def finish_restart(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """The end of an attempt is on record: now its gang goes."""
    job, recorded = snapshot.job, snapshot.condition("Reconciling")
    if job is None or recorded.get("reason") != RESTARTING or job.attempt + 1 != snapshot.recorded:
        return None
    verdict = run_status.StatusVerdict(phase=RESTARTING, reason=RESTARTING, message=str(recorded.get("message", "")))
    delete = () if job.deleting else (job.ref,)
    return Plan(status=run_status.status(snapshot, verdict), delete=delete, requeue_after=SOON / 2)


def resize(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """Another number of workers is asked for: the gang goes on with it from its checkpoint, free of charge."""
    job = snapshot.job
    if job is None or job.deleting or job.state != "active":
        return None
    if job.workers is None or job.workers == snapshot.spec.workers:
        return None
    why = f"from {1 + job.workers} to {1 + snapshot.spec.workers} ranks; continues from the newest checkpoint"
    return interrupt(snapshot, job, "Resizing", why)


def refuse_pods(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """No gang is made of pods that the platform does not allow; another spec, or another list, starts it."""
    if snapshot.job is not None:
        return None
    spec, rules = snapshot.spec, snapshot.pod_rules
    stray = (
        allowed_pods.forbidden(spec.pod, "spec.pod", rules)
        or allowed_pods.forbidden_base(spec.data.language_model, "spec.data.languageModel", rules)
        or stray_mount(spec)
    )
    return hold_run(snapshot, allowed_pods.REASON, stray, after=HELD_UP) if stray else None


def wait_in_queue(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """Somebody holds the gang back. It costs neither an attempt nor time of the run, however long it takes."""
    job = snapshot.job
    if job is None or job.deleting or not job.queued:
        return None
    message = snapshot.queue_says or _held_back(snapshot, job)
    state = run_status.status(
        snapshot,
        run_status.StatusVerdict(phase="Queued", reason="Queued", message=message),
        attempts=snapshot.attempts,
        backend=_backend_of(job),
        queuedAt=snapshot.status.get("queuedAt") or snapshot.time,
        eta=None,
    )
    return Plan(status=state, events=reason_notices(snapshot, "Queued", message), requeue_after=LATER)


def leave_queue(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """The gang may run: every clock goes on from here."""
    job, waited = snapshot.job, snapshot.since("queuedAt")
    if job is None or job.deleting or job.state != "active" or waited is None:
        return None
    message = f"admitted after {times.duration(waited)} in the queue"
    state = run_status.status(
        snapshot,
        run_status.StatusVerdict(phase="Starting", reason="Admitted", message=message),
        attempts=snapshot.attempts,
        startedAt=begun_at(snapshot),
        attemptStartedAt=snapshot.time,
        queuedAt=None,
    )
    return Plan(status=state, events=(Notice("Normal", "Admitted", message),), requeue_after=NOW)


def start(snapshot: TrainingSnapshot, backends: Backends) -> Plan | None:
    """No gang: begin the first attempt, the next one, or go on where a suspension stopped."""
    if snapshot.job is not None:
        return None
    last = str(snapshot.condition("Reconciling").get("message", "")) if _restarting(snapshot) else ""
    if snapshot.ranks:
        names = ", ".join(rank.name for rank in snapshot.ranks[:3])
        return hold_run(
            snapshot, RESTARTING if last else "Starting", last or f"waiting for the end of {names}", after=SOON / 2
        )
    if snapshot.run_error is not None:
        return hold_run(snapshot, "DataPlaneUnavailable", snapshot.run_error)
    resumed = snapshot.holds("Suspended")
    if snapshot.attempts == 0 and snapshot.has_data:
        # A run of a deleted job of the same name: its checkpoint and proof must never count as ours.
        call = Call("DELETE", run_path(snapshot.name))
        verdict = run_status.StatusVerdict(
            phase="Pending", reason="Cleaning", message="removing the data of an earlier job of this name"
        )
        return Plan(status=run_status.status(snapshot, verdict), calls=(call,), requeue_after=NOW)
    attempt = max(0, snapshot.attempts - 1) if resumed else snapshot.attempts
    if attempt >= snapshot.spec.max_attempts:
        why = last or "the gang was deleted by somebody else"
        return fail(
            snapshot, "AttemptsExhausted", f"no attempt left (maxAttempts: {snapshot.spec.max_attempts}); {why}"
        )
    return launch(snapshot, backends, attempt, last)


def await_removal(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """Something deletes the gang: wait until it is gone."""
    if snapshot.job is None or not snapshot.job.deleting:
        return None
    return hold_run(snapshot, "Starting", "waiting for the end of the previous pods", after=SOON / 2)


def heed_refusal(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """Exit code 2: the trainer says that the configuration is wrong. No retry can help."""
    why = gang_pods.refusal(snapshot)
    return fail(snapshot, "ConfigurationError", why) if why else None


def heed_disruption(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """A node was taken away from a rank (preemption, a drain, spot capacity): no fault of the run's, no attempt."""
    job, recorded = snapshot.job, snapshot.condition("Reconciling")
    if job is None or job.deleting or job.state == "succeeded":
        return None
    previous = str(recorded.get("message", "")) if recorded.get("reason") == "Preempted" else ""
    why = (previous if snapshot.holds("Suspended") else "") or gang_pods.disruption(snapshot)
    if not why:
        return None
    return interrupt(snapshot, job, "Preempted", why, preemptions=int(snapshot.status.get("preemptions") or 0) + 1)


def end_attempt(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """The gang failed, ended without proof, or shows no sign of life."""
    job = snapshot.job
    assert job is not None
    if job.state == "failed":
        return retry(snapshot, job, gang_pods.post_mortem(snapshot, job))
    if snapshot.run_error is not None:
        return hold_run(snapshot, "DataPlaneUnavailable", snapshot.run_error)
    if job.state == "succeeded":
        since = (snapshot.now - job.finished).total_seconds() if job.finished else PROOF_GRACE
        if since < PROOF_GRACE:
            return hold_run(snapshot, "AwaitingProof", "the pods succeeded; waiting for the proof", after=SOON)
        result = snapshot.run.proof if snapshot.run else None
        problem = proof_gates.flaw(snapshot, result) if result else None
        return retry(snapshot, job, problem[1] if problem else "the pods succeeded, but the proof is missing")
    why = gang_pods.stalled(snapshot, job)
    return retry(snapshot, job, why) if why else None


def report_progress(snapshot: TrainingSnapshot, _: Backends) -> Plan | None:
    """All is well."""
    job, beat = snapshot.job, snapshot.heartbeat
    assert job is not None
    fields = {"attempts": snapshot.attempts, "backend": _backend_of(job)}
    if snapshot.since("startedAt") is None:
        fields["startedAt"] = snapshot.time
    if snapshot.since("attemptStartedAt") is None:
        fields["attemptStartedAt"] = snapshot.time
    phase = run_status.PHASES.get(beat.phase if beat else "starting", "Training")
    cause = gang_pods.held_up(snapshot)
    if cause:
        verdict = run_status.StatusVerdict(phase=phase, reason="PodsHeldUp", message=cause)
        events = reason_notices(snapshot, "PodsHeldUp", cause)
        again = times.next_look(snapshot.status.get("attemptStartedAt"), snapshot.now, HELD_UP)
        return Plan(status=run_status.status(snapshot, verdict, **fields), events=events, requeue_after=again)
    verdict = run_status.StatusVerdict(phase=phase, reason=phase, message=_working(snapshot))
    return Plan(status=run_status.status(snapshot, verdict, **fields), requeue_after=SOON)


RULES: tuple[TrainingRule, ...] = (
    leave_to_garbage_collection,
    keep_finished,
    suspend,
    need_backend,
    updates.end_updates,
    updates.judge_update,
    accept_proof,
    heed_deadline,
    finish_restart,
    resize,
    wait_in_queue,
    leave_queue,
    refuse_pods,
    start,
    await_removal,
    heed_refusal,
    heed_disruption,
    updates.order_update,
    updates.await_update,
    end_attempt,
    report_progress,
)


def _backend_of(job: BackendJob) -> str:
    return next(backend.name for backend in BACKENDS if backend.kind == job.ref.kind)


def _held_back(snapshot: TrainingSnapshot, job: BackendJob) -> str:
    if snapshot.spec.queue is not None:
        return f"waits in LocalQueue {snapshot.spec.queue.name}; its Workload has no condition yet"
    return f"somebody has suspended {job.ref.kind} {job.ref.name}: the run continues when it is resumed"


def _restarting(snapshot: TrainingSnapshot) -> bool:
    return snapshot.condition("Reconciling").get("reason") == RESTARTING


def _paused(snapshot: TrainingSnapshot) -> str:
    step = snapshot.run.checkpoint.step if snapshot.run and snapshot.run.checkpoint else None
    return f"suspended; resumes from step {step}" if step is not None else "suspended"


def _working(snapshot: TrainingSnapshot) -> str:
    beat = snapshot.heartbeat
    if beat is None:
        return gang_pods.waiting(snapshot) or f"{gang_pods.census(snapshot)}; no heartbeat yet"
    ranks = f"{beat.world_size} ranks" if beat.world_size != 1 else "1 rank"
    text = f"{ranks}, attempt {snapshot.attempts} of {snapshot.spec.max_attempts}"
    return f"{text}: {beat.message}" if beat.message else text
