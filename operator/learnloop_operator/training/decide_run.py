"""Rules that decide about a TrainingJob, in the order in which they are asked.

Record before act: the operator writes to the status what ends an attempt, and only then does it. Killed at any
instruction, it loses neither the count of the attempts nor the reason.
"""

from collections.abc import Callable
from dataclasses import replace

from learnloop_operator.core import allowed_pods, times
from learnloop_operator.core.anomalies import news
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.training import gang_pods, gates
from learnloop_operator.training.attempts import (
    HELD_UP,
    LATER,
    NOW,
    RESTARTING,
    SOON,
    begun_at,
    fail,
    hold,
    interrupt,
    judge,
    launch,
    retry,
    run_path,
    told,
)
from learnloop_operator.training.backends import BACKENDS, Backends
from learnloop_operator.training.run_snapshot import BackendJob, TrainingSnapshot
from learnloop_operator.training.run_status import PHASES, StatusVerdict, announcements, status
from learnloop_operator.training.sampler_pods import with_samplers

MANIFEST_GRACE = 15.0
"""A gang may end a moment before its manifest can be read."""

TrainingRule = Callable[[TrainingSnapshot, Backends], Plan | None]


def decide(world: TrainingSnapshot, backends: Backends) -> Plan:
    """The first rule that applies."""
    for rule in RULES:
        plan = rule(world, backends)
        if plan is not None:
            plan = with_samplers(world, plan, backends.defaults)
            beat = world.run.heartbeat if world.run and world.attempts else None
            fresh = beat.at if beat else None
            message = announcements(world, plan.status, world.spec, world.agent_name, fresh)
            return replace(plan, announcements=message, events=(*plan.events, *news(world.status, plan.status)))
    raise AssertionError("the last rule always applies")


def leave_to_garbage_collection(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """The children carry owner references; nothing is left to do."""
    return Plan(status=world.status) if world.deleting else None


def keep_finished(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """A finished job stays finished; its pods go when they are failed leftovers, or old."""
    if not world.status.get("finishedAt"):
        return None
    state = {**world.status, "observedGeneration": world.generation}
    job, ttl = world.job, world.spec.ttl_seconds_after_finished
    if job is None or job.deleting:
        return Plan(status=state)
    if job.state == "active" and not world.holds("Trained"):
        return Plan(status=state, delete=(job.ref,))
    if ttl is None:
        return Plan(status=state)
    left = ttl - (world.since("finishedAt") or 0.0)
    return Plan(status=state, delete=(job.ref,)) if left <= 0 else Plan(status=state, requeue_after=left)


def suspend(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """No pods; the checkpoint stays where it is. The clock of deadlineSeconds restarts on resume."""
    if not world.spec.suspend:
        return None
    state = status(
        world,
        StatusVerdict(phase="Suspended", reason="Suspended", message=_paused(world), progressing=False, suspended=True),
        attempts=world.attempts or None,
        startedAt=None,
        queuedAt=None,
        eta=None,
    )
    if not world.holds("Suspended"):
        again = None if world.job is None else NOW
        return Plan(status=state, events=told(world, "Suspended", _paused(world)), requeue_after=again)
    if world.job is not None and not world.job.deleting:
        return Plan(status=state, delete=(world.job.ref,))
    return Plan(status=state)


def need_backend(world: TrainingSnapshot, backends: Backends) -> Plan | None:
    """Hold a run that no backend fits."""
    if world.job is not None or world.ranks or backends.chosen(world) is not None:
        return None
    return hold(world, "BackendMissing", backends.none_fits(world), after=LATER)


def accept_proof(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """A verified manifest of the attempt that has just succeeded is the only way to Trained. While the gang runs, or
    after it failed, nothing that says it is finished is believed."""
    result = world.run.manifest if world.run and world.attempts else None
    if result is None or world.job is None or world.job.state != "succeeded":
        return None
    problem = gates.flaw(world, result)
    if problem is None:
        return judge(world, result)
    severity, why = problem
    return fail(world, "ProofRejected", why) if severity == "wrong" else None


def heed_deadline(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """deadlineSeconds of wall time since the start (or the last resume). Waiting in a queue is not counted."""
    limit, spent = world.spec.deadline_seconds, world.worked_seconds
    if limit is None or spent is None or spent <= limit:
        return None
    return fail(world, "DeadlineExceeded", f"not finished after {spent:.0f} s (deadlineSeconds: {limit})")


def finish_restart(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """The end of an attempt is on record: now its gang goes."""
    job, recorded = world.job, world.condition("Reconciling")
    if job is None or recorded.get("reason") != RESTARTING or job.attempt + 1 != world.recorded:
        return None
    verdict = StatusVerdict(phase=RESTARTING, reason=RESTARTING, message=str(recorded.get("message", "")))
    delete = () if job.deleting else (job.ref,)
    return Plan(status=status(world, verdict), delete=delete, requeue_after=SOON / 2)


def resize(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """Another number of workers is asked for: the gang goes on with it from its checkpoint, free of charge."""
    job = world.job
    if job is None or job.deleting or job.state != "active":
        return None
    if job.workers is None or job.workers == world.spec.workers:
        return None
    why = f"from {1 + job.workers} to {1 + world.spec.workers} ranks; goes on from the newest checkpoint"
    return interrupt(world, job, "Resizing", why)


def refuse_pods(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """No gang is made of pods that the platform does not allow; another spec, or another list, lets it begin."""
    if world.job is not None:
        return None
    spec, rules = world.spec, world.pod_rules
    stray = allowed_pods.forbidden(spec.pod, "spec.pod", rules) or allowed_pods.forbidden_base(
        spec.data.language_model, "spec.data.languageModel", rules
    )
    return hold(world, allowed_pods.REASON, stray, after=HELD_UP) if stray else None


def wait_in_queue(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """Somebody holds the gang back. It costs neither an attempt nor time of the run, however long it takes."""
    job = world.job
    if job is None or job.deleting or not job.queued:
        return None
    message = world.queue_says or _held_back(world, job)
    state = status(
        world,
        StatusVerdict(phase="Queued", reason="Queued", message=message),
        attempts=world.attempts,
        backend=_backend_of(job),
        queuedAt=world.status.get("queuedAt") or world.time,
        eta=None,
    )
    return Plan(status=state, events=told(world, "Queued", message), requeue_after=LATER)


def leave_queue(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """The gang may run: every clock goes on from here."""
    job, waited = world.job, world.since("queuedAt")
    if job is None or job.deleting or job.state != "active" or waited is None:
        return None
    message = f"admitted after {times.duration(waited)} in the queue"
    state = status(
        world,
        StatusVerdict(phase="Starting", reason="Admitted", message=message),
        attempts=world.attempts,
        startedAt=begun_at(world),
        attemptStartedAt=world.time,
        queuedAt=None,
    )
    return Plan(status=state, events=(Notice("Normal", "Admitted", message),), requeue_after=NOW)


def start(world: TrainingSnapshot, backends: Backends) -> Plan | None:
    """No gang: begin the first attempt, the next one, or go on where a suspension stopped."""
    if world.job is not None:
        return None
    last = str(world.condition("Reconciling").get("message", "")) if _restarting(world) else ""
    if world.ranks:
        names = ", ".join(rank.name for rank in world.ranks[:3])
        return hold(
            world, RESTARTING if last else "Starting", last or f"waiting for the end of {names}", after=SOON / 2
        )
    if world.run_error is not None:
        return hold(world, "DataPlaneUnavailable", world.run_error)
    resumed = world.holds("Suspended")
    if world.attempts == 0 and world.has_data:
        # A run of a deleted job of the same name: its checkpoint and manifest must never count as ours.
        call = Call("DELETE", run_path(world.name))
        verdict = StatusVerdict(
            phase="Pending", reason="Cleaning", message="removing the data of an earlier job of this name"
        )
        return Plan(status=status(world, verdict), calls=(call,), requeue_after=NOW)
    attempt = max(0, world.attempts - 1) if resumed else world.attempts
    if attempt >= world.spec.max_attempts:
        why = last or "the gang was deleted by somebody else"
        return fail(world, "AttemptsExhausted", f"no attempt left (maxAttempts: {world.spec.max_attempts}); {why}")
    return launch(world, backends, attempt, last)


def await_removal(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """Something deletes the gang: wait until it is gone."""
    if world.job is None or not world.job.deleting:
        return None
    return hold(world, "Starting", "waiting for the end of the previous pods", after=SOON / 2)


def heed_refusal(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """Exit code 2: the trainer says that the configuration is wrong. No retry can help."""
    why = gang_pods.refusal(world)
    return fail(world, "ConfigurationError", why) if why else None


def heed_disruption(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """A node was taken away from a rank (preemption, a drain, spot capacity): no fault of the run's, no attempt."""
    job, recorded = world.job, world.condition("Reconciling")
    if job is None or job.deleting or job.state == "succeeded":
        return None
    previous = str(recorded.get("message", "")) if recorded.get("reason") == "Preempted" else ""
    why = (previous if world.holds("Suspended") else "") or gang_pods.disruption(world)
    if not why:
        return None
    return interrupt(world, job, "Preempted", why, preemptions=int(world.status.get("preemptions") or 0) + 1)


def end_attempt(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """The gang failed, ended without proof, or shows no sign of life."""
    job = world.job
    assert job is not None
    if job.state == "failed":
        return retry(world, job, gang_pods.post_mortem(world, job))
    if world.run_error is not None:
        return hold(world, "DataPlaneUnavailable", world.run_error)
    if job.state == "succeeded":
        since = (world.now - job.finished).total_seconds() if job.finished else MANIFEST_GRACE
        if since < MANIFEST_GRACE:
            return hold(world, "AwaitingProof", "the pods succeeded; waiting for the manifest", after=SOON)
        result = world.run.manifest if world.run else None
        problem = gates.flaw(world, result) if result else None
        return retry(world, job, problem[1] if problem else "the pods succeeded, but the manifest is missing")
    why = gang_pods.stalled(world, job)
    return retry(world, job, why) if why else None


def watch(world: TrainingSnapshot, _: Backends) -> Plan | None:
    """All is well: report progress."""
    job, beat = world.job, world.heartbeat
    assert job is not None
    fields = {"attempts": world.attempts, "backend": _backend_of(job)}
    if world.since("startedAt") is None:
        fields["startedAt"] = world.time
    if world.since("attemptStartedAt") is None:
        fields["attemptStartedAt"] = world.time
    phase = PHASES.get(beat.phase if beat else "starting", "Training")
    cause = gang_pods.held_up(world)
    if cause:
        verdict = StatusVerdict(phase=phase, reason="PodsHeldUp", message=cause)
        news = told(world, "PodsHeldUp", cause)
        again = times.next_look(world.status.get("attemptStartedAt"), world.now, HELD_UP)
        return Plan(status=status(world, verdict, **fields), events=news, requeue_after=again)
    verdict = StatusVerdict(phase=phase, reason=phase, message=_working(world))
    return Plan(status=status(world, verdict, **fields), requeue_after=SOON)


RULES: tuple[TrainingRule, ...] = (
    leave_to_garbage_collection,
    keep_finished,
    suspend,
    need_backend,
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
    end_attempt,
    watch,
)


def _backend_of(job: BackendJob) -> str:
    return next(backend.name for backend in BACKENDS if backend.kind == job.ref.kind)


def _held_back(world: TrainingSnapshot, job: BackendJob) -> str:
    if world.spec.queue is not None:
        return f"waits in LocalQueue {world.spec.queue.name}; its Workload has said nothing yet"
    return f"somebody has suspended {job.ref.kind} {job.ref.name}: learnloop never does, and goes on when it is resumed"


def _restarting(world: TrainingSnapshot) -> bool:
    return world.condition("Reconciling").get("reason") == RESTARTING


def _paused(world: TrainingSnapshot) -> str:
    step = world.run.checkpoint.step if world.run and world.run.checkpoint else None
    return f"suspended; resumes from step {step}" if step is not None else "suspended"


def _working(world: TrainingSnapshot) -> str:
    beat = world.heartbeat
    if beat is None:
        return gang_pods.waiting(world) or f"{gang_pods.census(world)}; no heartbeat yet"
    ranks = f"{beat.world_size} ranks" if beat.world_size != 1 else "1 rank"
    text = f"{ranks}, attempt {world.attempts} of {world.spec.max_attempts}"
    return f"{text}: {beat.message}" if beat.message else text
