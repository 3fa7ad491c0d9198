"""The plans that rules end in: begin an attempt, judge a proof, fail, try again, hold."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from learnloop_api.kinds.language_model import base_alone
from learnloop_api.wire.training import Manifest as Proof
from learnloop_operator.core import times
from learnloop_operator.core.plan import Manifest, Notice, Plan
from learnloop_operator.core.pod_trouble import LONGEST, last_words, step_of
from learnloop_operator.core.pod_trouble import held_up as pod_held_up
from learnloop_operator.training import gates
from learnloop_operator.training.backends import Backends
from learnloop_operator.training.run_snapshot import CONFIGURATION_ERROR, BackendJob, Rank, RunRequest, TrainingSnapshot
from learnloop_operator.training.run_status import StatusVerdict, lineage, proven, status

NOW, SOON, LATER, HELD_UP = 0.05, 2.0, 10.0, 15.0
"""Seconds until the next look: write, then act; a gang at work; something a person must install; and the
most for pods that wait for a node, as a thousand jobs may."""
RESTARTING = "Restarting"
EXPECTED = ("Suspended", "AwaitingProof", "Queued", "Admitted", "Preempted")
"""Reasons that need no action by a person."""


def launch(world: TrainingSnapshot, backends: Backends, attempt: int, last: str) -> Plan:
    """Begin attempt number `attempt` (from 0)."""
    backend = backends.chosen(world)
    if backend is None:
        return hold(world, "BackendMissing", backends.none_fits(world), after=LATER)
    if world.queue_missing:
        return hold(world, "QueueMissing", world.queue_missing, after=LATER)
    uri, digest = baseline(world)
    origin = lineage(world) or {}
    reward_policy = None
    if world.spec.data.rewards == "policy":
        if "rewardPolicy" not in origin or "rewardPolicyRevision" not in origin:
            return hold(world, "RewardPolicyUnpublished", _unpublished(world))
        reward_policy = (origin["rewardPolicy"], origin["rewardPolicyRevision"])
    request = RunRequest(
        job=world.object,
        spec=world.spec,
        attempt=attempt,
        agent=world.agent_name,
        baseline_uri=uri,
        baseline_sha256=digest,
        reward_policy=reward_policy,
        fresh_key=world.fresh_key,
    )
    manifests = backends.render(backend, request)
    number = f"attempt {attempt + 1} of {world.spec.max_attempts}"
    message = f"{number} after: {last}" if last else f"{number}: 1 master, {world.spec.workers} workers"
    state = status(
        world,
        StatusVerdict(phase="Starting", reason="Starting", message=message),
        attempts=max(world.attempts, attempt + 1),
        startedAt=begun_at(world) or world.time,
        attemptStartedAt=world.time,
        queuedAt=None,
        backend=backend.name,
        lineage=origin or None,
    )
    notice = Notice("Normal", "AttemptStarted", message)
    return Plan(status=state, apply=manifests, events=(notice,), requeue_after=SOON)


def begun_at(world: TrainingSnapshot) -> str | None:
    """startedAt, moved by the time that the run has just spent in a queue: waiting does not count."""
    moment, waited = times.parse(world.status.get("startedAt")), world.since("queuedAt")
    if moment is None or waited is None:
        return world.status.get("startedAt")
    return times.stamp(moment + timedelta(seconds=waited))


def interrupt(world: TrainingSnapshot, job: BackendJob, reason: str, why: str, **fields: Any) -> Plan:
    """End the gang free of charge: the attempt goes on from the newest checkpoint, under its own number.

    On record as a suspension first, which is what keeps the attempt from being counted while the old gang goes.
    """
    verdict = StatusVerdict(phase=RESTARTING, reason=reason, message=why, suspended=True)
    if world.holds("Suspended"):
        state = status(world, verdict, attempts=world.attempts or None, eta=None)
        return Plan(status=state, delete=(job.ref,), requeue_after=SOON / 2)
    state = status(world, verdict, attempts=world.attempts or None, eta=None, **fields)
    return Plan(status=state, events=told(world, reason, why), requeue_after=NOW)


def _unpublished(world: TrainingSnapshot) -> str:
    agent = world.agent_name or "the agent"
    return (
        f"spec.data.rewards is policy, and no RewardPolicy revision is in force for {agent} yet: waiting for one; see "
        f"that the LearningAgent exists and that its rewardPolicyRef names a RewardPolicy that is Ready"
    )


ADDRESS = ("learnloop://", "https://", "http://", "s3://", "file://")
"""What a manifest's `begun_from` begins with where it is a policy, and not why there was none."""


def judge(world: TrainingSnapshot, found: Proof, note: str = "") -> Plan:
    """The proof stands: the gates decide whether the model may serve. `note`: where it comes from."""
    results = gates.evaluate(world.spec.gates, found)
    failed = [result for result in results if not result.passed]
    sentence = "; ".join(f"{result.name}: {result.message}" for result in failed or results) or "no gates are set"
    sentence = f"{sentence} ({note})" if note else sentence
    if found.experience is not None and found.experience.message:
        sentence = f"{sentence}; {found.experience.message}"[:1024]
    verdict = StatusVerdict(
        phase="Failed" if failed else "Validated",
        reason="GatesFailed" if failed else "Validated",
        message=sentence,
        ready=not failed,
        progressing=False,
        stalled=bool(failed),
        trained=True,
        validated=not failed,
    )
    state = status(
        world,
        verdict,
        **proven(found),
        attempts=world.attempts or None,
        gates=[result.to_kube() for result in results],
        queuedAt=None,
        finishedAt=world.time,
    )
    news = [Notice("Warning" if failed else "Normal", verdict.reason, sentence)]
    if found.begun_from and not found.begun_from.startswith(ADDRESS):
        news.append(Notice("Normal", "BegunCold", f"began from {found.begun_from}"[:1024]))
    return Plan(status=state, events=tuple(news), requeue_after=NOW)


def fail(world: TrainingSnapshot, reason: str, why: str) -> Plan:
    """The end, without a model. The gang goes in the next pass, when this is on record."""
    verdict = StatusVerdict(
        phase="Failed",
        reason=reason,
        message=why,
        ready=False,
        progressing=False,
        stalled=True,
        trained=False,
        validated=False,
    )
    state = status(world, verdict, attempts=world.attempts or None, eta=None, queuedAt=None, finishedAt=world.time)
    return Plan(status=state, events=(Notice("Warning", reason, why),), requeue_after=NOW)


def retry(world: TrainingSnapshot, job: BackendJob, why: str) -> Plan:
    """Put the end of this attempt on record; `finish_restart` acts on it."""
    ended = f"attempt {job.attempt + 1} of {world.spec.max_attempts} ended: {why}"
    if job.attempt + 1 >= world.spec.max_attempts:
        return fail(world, "AttemptsExhausted", ended)
    state = status(
        world, StatusVerdict(phase=RESTARTING, reason=RESTARTING, message=ended), attempts=world.attempts, eta=None
    )
    return Plan(status=state, events=(Notice("Warning", "AttemptEnded", ended),), requeue_after=NOW)


def hold(world: TrainingSnapshot, reason: str, message: str, *, after: float = 5.0) -> Plan:
    """Hold: the sentence says what is missing."""
    phase = {RESTARTING: RESTARTING, "Starting": "Starting"}.get(reason, "Holding")
    suspended = world.holds("Suspended")  # until the gang runs again, a resume must stay free of charge
    verdict = StatusVerdict(phase=phase, reason=reason, message=message, suspended=suspended)
    state = status(world, verdict, attempts=world.attempts or None)
    return Plan(status=state, events=told(world, reason, message) if phase == "Holding" else (), requeue_after=after)


def baseline(world: TrainingSnapshot) -> tuple[str | None, str | None]:
    """The newest policy that is to serve the agent's users, and where that was rolled back the one that serves them.

    The base model or the uniform random policy when there is none.
    """
    agent = world.agent or {}
    model = (agent.get("status") or {}).get("model") or {}
    deployment = (world.deployment or {}).get("status") or {}
    stable = deployment.get("stable") or {}
    if stable.get("uri") and _rolled_back(deployment, model):
        model = stable
    if model.get("uri"):
        return str(model["uri"]), model.get("sha256")
    spoken = world.spec.data.language_model
    if spoken is not None:
        return base_alone(spoken), spoken.base.sha256
    task = (agent.get("spec") or {}).get("task") or {}
    if task.get("actions") and task.get("observations"):
        return f"uniform://discrete/{task['actions']}?observations={task['observations']}", None
    return None, None


def _rolled_back(deployment: Manifest, model: Manifest) -> bool:
    """True if a ModelDeployment's status lists this artifact as rolled back."""
    pins = [*(deployment.get("blockedRevisions") or ()), deployment.get("blockedRevision") or {}]
    return any(pin.get("uri") and _same(pin, model) for pin in pins)


def _same(one: Manifest, other: Manifest) -> bool:
    """An artifact is its digest, whatever address it has now."""
    if one.get("sha256") and other.get("sha256"):
        return bool(one["sha256"] == other["sha256"])
    return bool(one.get("uri") == other.get("uri"))


def run_path(job: str) -> str:
    return f"/api/v1/training/runs/{job}"


def told(world: TrainingSnapshot, reason: str, message: str) -> tuple[Notice, ...]:
    """An event for news only: nothing when the live Ready condition already gives this reason."""
    if world.condition("Ready").get("reason") == reason:
        return ()
    return (Notice("Normal" if reason in EXPECTED else "Warning", reason, message),)


def rank_of(pod: Manifest, containers: Collection[str]) -> Rank | None:
    """One rank, in a container of one of these names; None for a pod without a usable creation time."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = times.parse(metadata.get("creationTimestamp"))
    if created is None:
        return None
    state = _state(status, containers)
    # A failed init container keeps the main one from starting; what the main one itself says is its exit code.
    stuck = pod_held_up(status) or last_words({"initContainerStatuses": status.get("initContainerStatuses")})
    running, ended = state.get("running") or {}, state.get("terminated") or {}
    return Rank(
        name=metadata["name"],
        created=created,
        running=bool(running),
        started=times.parse(running.get("startedAt") or ended.get("startedAt")),
        exit_code=ended.get("exitCode"),
        message=str(ended.get("message") or "").strip()[:LONGEST],
        waiting="" if running or ended else stuck or step_of(status),
        stuck=bool(stuck) and not running and not ended,
        disrupted=_disruption(status),
        deleting="deletionTimestamp" in metadata,
    )


def _disruption(status: Mapping[str, Any]) -> str:
    """Reason why the pod's node is taken away (core/v1, DisruptionTarget); "" where it is not.

    The kubelet that evicts a pod for what the node lacks says so too, but the pod itself used it up: no excuse.
    """
    if status.get("reason") == "Evicted":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message') or 'no message'}"[:LONGEST]
    return ""


def _state(status: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    for item in status.get("containerStatuses") or ():
        if item.get("name") in names:
            return item.get("state") or {}
    return {}


HEARD_WITHIN = timedelta(seconds=60)
"""A gang with neither pods nor a status is older than this only where its controller does not run."""
REPLACED_AFTER = timedelta(seconds=30)
"""A pod created this much later than its gang began was not there from the start: it replaces a lost one."""


def held_up(world: TrainingSnapshot) -> str | None:
    """Problem to fix before the whole gang can work: no node, no image, pods that may not be made.

    Asked until work begins: a master that runs alone only says that it waits for the others.
    """
    beat = world.heartbeat
    if world.job is None or (beat is not None and beat.phase != "starting"):
        return None
    for rank in world.ranks:
        if rank.stuck:
            return f"pod {rank.name} waits: {rank.waiting}"
    if len(world.ranks) < _expected(world) and world.job.trouble:
        return f"{len(world.ranks)} of {_expected(world)} pods exist: {world.job.trouble}"
    return _unheard(world, world.job)


def _unheard(world: TrainingSnapshot, job: BackendJob) -> str | None:
    if (
        job.has_status
        or job.queued
        or job.state != "active"
        or world.ranks
        or world.now - _begun(world, job) < HEARD_WITHIN
    ):
        return None
    kind, name = job.ref.kind, job.ref.name
    return f"{kind} {name} has neither a status nor pods: see that the controller of {kind}s runs"


def waiting(world: TrainingSnapshot) -> str | None:
    """Reason why the gang has not begun to work, when the cause lies outside of it (no node, no image, no pods yet)."""
    cause = held_up(world)
    if cause or world.heartbeat is not None or world.job is None:
        return cause
    for rank in world.ranks:
        if rank.waiting:
            return f"pod {rank.name} waits: {rank.waiting}"
    if len(world.ranks) < _expected(world):
        return f"{len(world.ranks)} of {_expected(world)} pods exist so far"
    return None


def stalled(world: TrainingSnapshot, job: BackendJob) -> str | None:
    """The sentence why this attempt is given up; None while there is hope."""
    limit = world.spec.stall_seconds
    if held_up(world):
        return None  # another attempt would be held up just the same
    begun = _begun(world, job)
    if waiting(world) and not any(_replaced(rank, begun) for rank in world.ranks):
        return None
    signs = [begun]
    # Starts count for pods that were there from the beginning only: a crash loop never stops starting.
    signs += [rank.started for rank in world.ranks if rank.started and not _replaced(rank, begun)]
    beat, age = world.heartbeat, world.run.heartbeat_age_seconds if world.run else None
    # A gang that waits for a lost rank still says "starting"; only work is a sign of life.
    if beat is not None and beat.phase != "starting" and age is not None:
        signs.append(world.now - timedelta(seconds=age))
    quiet = (world.now - max(signs)).total_seconds()
    if quiet <= limit:
        return None
    cause = f": {beat.message}" if beat is not None and beat.message else ""
    return f"no sign of work for {quiet:.0f} s (limit {limit} s){cause}; {census(world)}"


def census(world: TrainingSnapshot) -> str:
    running = sum(rank.running and not rank.deleting for rank in world.ranks)
    return f"{running} of {_expected(world)} ranks run"


def refusal(world: TrainingSnapshot) -> str | None:
    """The trainer's sentence when it says that the configuration is wrong."""
    for rank in world.ranks:
        if rank.exit_code == CONFIGURATION_ERROR:
            return rank.message or "the trainer refused its configuration without saying why; see its logs"
    return None


def disruption(world: TrainingSnapshot) -> str:
    """Reason why a rank lost its node, by its pod or by the gang's own end; "" when none did."""
    for rank in world.ranks:
        if rank.disrupted:
            return f"pod {rank.name} lost its node: {rank.disrupted}; goes on from the newest checkpoint"
    message = world.job.disrupted if world.job is not None else ""
    return f"a rank lost its node: {message}; goes on from the newest checkpoint" if message else ""


def post_mortem(world: TrainingSnapshot, job: BackendJob) -> str:
    """Describe how the gang ended, in the words of the rank that failed."""
    for rank in world.ranks:
        if rank.exit_code:
            text = f": {rank.message}" if rank.message else ""
            return f"pod {rank.name} exited with {rank.exit_code}{text}"
    for rank in world.ranks:
        if rank.stuck:
            return f"pod {rank.name} never started: {rank.waiting}"
    return job.message or "its pods failed"


def _begun(world: TrainingSnapshot, job: BackendJob) -> datetime:
    return max(job.created, times.parse(world.status.get("attemptStartedAt")) or job.created)


def _replaced(rank: Rank, begun: datetime) -> bool:
    return rank.created - begun > REPLACED_AFTER


def _expected(world: TrainingSnapshot) -> int:
    return 1 + world.spec.workers
