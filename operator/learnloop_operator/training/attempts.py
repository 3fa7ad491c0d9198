"""The plans that rules end in: begin an attempt, judge a proof, fail, try again, hold."""

from datetime import timedelta
from typing import Any

from learnloop_api.kinds.training.training_status import GateResult
from learnloop_api.wire.training import Proof
from learnloop_operator.core import times
from learnloop_operator.core.plan import Notice, Plan
from learnloop_operator.training import proof_gates, run_snapshot, run_status
from learnloop_operator.training.backends import Backends

NOW, SOON, LATER, HELD_UP = 0.05, 2.0, 10.0, 15.0
"""Seconds until the next look: write, then act; a gang at work; something a person must install; and the
most for pods that wait for a node, as a thousand jobs may."""
RESTARTING = "Restarting"
EXPECTED = ("Suspended", "AwaitingProof", "Queued", "Admitted", "Preempted")
"""Reasons that need no action by a person."""


def launch(snapshot: run_snapshot.TrainingSnapshot, backends: Backends, attempt: int, last: str) -> Plan:
    """Begin attempt number `attempt` (from 0)."""
    backend = backends.chosen(snapshot)
    if backend is None:
        return hold_run(snapshot, "BackendMissing", backends.none_fits(snapshot), after=LATER)
    if snapshot.queue_missing:
        return hold_run(snapshot, "QueueMissing", snapshot.queue_missing, after=LATER)
    uri, digest = snapshot.baseline
    origin = run_status.lineage(snapshot) or {}
    reward_policy = None
    if snapshot.spec.data.rewards == "policy":
        if "rewardPolicy" not in origin or "rewardPolicyRevision" not in origin:
            return hold_run(snapshot, "RewardPolicyUnpublished", _unpublished(snapshot))
        reward_policy = (origin["rewardPolicy"], origin["rewardPolicyRevision"])
    request = run_snapshot.RunRequest(
        job=snapshot.object,
        spec=snapshot.spec,
        attempt=attempt,
        agent=snapshot.agent_name,
        baseline_uri=uri,
        baseline_sha256=digest,
        reward_policy=reward_policy,
    )
    manifests = backends.render(backend, request)
    number = f"attempt {attempt + 1} of {snapshot.spec.max_attempts}"
    message = f"{number} after: {last}" if last else f"{number}: 1 master, {snapshot.spec.workers} workers"
    state = run_status.status(
        snapshot,
        run_status.StatusVerdict(phase="Starting", reason="Starting", message=message),
        attempts=max(snapshot.attempts, attempt + 1),
        startedAt=begun_at(snapshot) or snapshot.time,
        attemptStartedAt=snapshot.time,
        queuedAt=None,
        backend=backend.name,
        engine=snapshot.spec.engine_reason,
        lineage=origin or None,
    )
    notice = Notice("Normal", "AttemptStarted", message)
    return Plan(status=state, apply=manifests, events=(notice,), requeue_after=SOON)


def begun_at(snapshot: run_snapshot.TrainingSnapshot) -> str | None:
    """startedAt, moved by the time that the run has just spent in a queue: waiting does not count."""
    moment, waited = times.parse(snapshot.status.get("startedAt")), snapshot.since("queuedAt")
    if moment is None or waited is None:
        return snapshot.status.get("startedAt")
    return times.stamp(moment + timedelta(seconds=waited))


def interrupt(
    snapshot: run_snapshot.TrainingSnapshot, job: run_snapshot.BackendJob, reason: str, why: str, **fields: Any
) -> Plan:
    """End the gang free of charge: the attempt continues from the newest checkpoint, under its own number.

    On record as a suspension first, which is what keeps the attempt from being counted while the old gang goes.
    """
    verdict = run_status.StatusVerdict(phase=RESTARTING, reason=reason, message=why, suspended=True)
    if snapshot.holds("Suspended"):
        state = run_status.status(snapshot, verdict, attempts=snapshot.attempts or None, eta=None)
        return Plan(status=state, delete=(job.ref,), requeue_after=SOON / 2)
    state = run_status.status(snapshot, verdict, attempts=snapshot.attempts or None, eta=None, **fields)
    return Plan(status=state, events=reason_notices(snapshot, reason, why), requeue_after=NOW)


def _unpublished(snapshot: run_snapshot.TrainingSnapshot) -> str:
    agent = snapshot.agent_name or "the agent"
    return (
        f"spec.data.rewards is policy, and no RewardPolicy revision is in force for {agent} yet: waiting for one; see "
        f"that the LearningAgent exists and that its rewardPolicyRef names a RewardPolicy that is Ready"
    )


ADDRESS = ("learnloop://", "https://", "http://", "s3://", "file://")
"""Beginning of a proof's `begun_from` where it is a policy, and not why there was none."""


def ask_gates(snapshot: run_snapshot.TrainingSnapshot, proof: Proof, note: str = "") -> Plan:
    """The proof stands: the gates decide whether the model may serve. `note`: where it comes from."""
    results, sentence = judged_by_gates(snapshot, proof, note)
    failed = [result for result in results if not result.passed]
    verdict = run_status.StatusVerdict(
        phase="Failed" if failed else "Validated",
        reason="GatesFailed" if failed else "Validated",
        message=sentence,
        ready=not failed,
        progressing=False,
        stalled=bool(failed),
        trained=True,
        validated=not failed,
    )
    state = run_status.status(
        snapshot,
        verdict,
        **run_status.proven(proof),
        attempts=snapshot.attempts or None,
        gates=[result.to_kube() for result in results],
        queuedAt=None,
        finishedAt=snapshot.time,
    )
    reason_notices = [Notice("Warning" if failed else "Normal", verdict.reason, sentence)]
    if proof.begun_from and not proof.begun_from.startswith(ADDRESS):
        reason_notices.append(Notice("Normal", "BegunCold", f"began from {proof.begun_from}"[:1024]))
    return Plan(status=state, events=tuple(reason_notices), requeue_after=NOW)


def judged_by_gates(
    snapshot: run_snapshot.TrainingSnapshot, proof: Proof, note: str = ""
) -> tuple[list[GateResult], str]:
    """The verdict of each gate, and one sentence about all of them."""
    results = proof_gates.evaluate(snapshot.spec.gates, proof) + proof_gates.constraints(proof)
    if snapshot.spec.continuous is not None:
        results += proof_gates.new((*(snapshot.status.get("refused") or ()), proof.baseline_sha256), proof)
        if proof.kl is not None or _bounded(proof):
            results.append(proof_gates.max_kl(snapshot.spec.continuous.max_kl, proof.kl))
    failed = [result for result in results if not result.passed]
    sentence = "; ".join(f"{result.name}: {result.message}" for result in failed or results) or "no gates are set"
    sentence = f"{sentence} ({note})" if note else sentence
    if proof.experience is not None and proof.experience.message:
        sentence = f"{sentence}; {proof.experience.message}"[:1024]
    return results, sentence


def _bounded(proof: Proof) -> bool:
    """True where an update draws its actions, and a policy serves that it may not leave."""
    draws = proof.behaviour is not None and proof.behaviour.kind != "greedy"
    return bool(proof.update and draws and proof.baseline_sha256)


def fail(snapshot: run_snapshot.TrainingSnapshot, reason: str, why: str) -> Plan:
    """The end, without a model. The gang goes in the next pass, when this is on record."""
    verdict = run_status.StatusVerdict(
        phase="Failed",
        reason=reason,
        message=why,
        ready=False,
        progressing=False,
        stalled=True,
        # The verdict of the last update stays, as does the artifact of one that was proven.
        trained=None if snapshot.updated is not None else False,
        validated=snapshot.updated is not None and snapshot.holds("Validated"),
    )
    state = run_status.status(
        snapshot, verdict, attempts=snapshot.attempts or None, eta=None, queuedAt=None, finishedAt=snapshot.time
    )
    return Plan(status=state, events=(Notice("Warning", reason, why),), requeue_after=NOW)


def retry(snapshot: run_snapshot.TrainingSnapshot, job: run_snapshot.BackendJob, why: str) -> Plan:
    """Put the end of this attempt on record; `finish_restart` acts on it."""
    ended = f"attempt {job.attempt + 1} of {snapshot.spec.max_attempts} ended: {why}"
    if job.attempt + 1 >= snapshot.spec.max_attempts:
        return fail(snapshot, "AttemptsExhausted", ended)
    state = run_status.status(
        snapshot,
        run_status.StatusVerdict(phase=RESTARTING, reason=RESTARTING, message=ended),
        attempts=snapshot.attempts,
        eta=None,
    )
    return Plan(status=state, events=(Notice("Warning", "AttemptEnded", ended),), requeue_after=NOW)


def hold_run(snapshot: run_snapshot.TrainingSnapshot, reason: str, message: str, *, after: float = 5.0) -> Plan:
    """Hold: the sentence says what is missing."""
    phase = {RESTARTING: RESTARTING, "Starting": "Starting"}.get(reason, "Holding")
    suspended = snapshot.holds("Suspended")  # until the gang runs again, a resume must stay free of charge
    verdict = run_status.StatusVerdict(phase=phase, reason=reason, message=message, suspended=suspended)
    state = run_status.status(snapshot, verdict, attempts=snapshot.attempts or None)
    events = reason_notices(snapshot, reason, message) if phase == "Holding" else ()
    return Plan(status=state, events=events, requeue_after=after)


def run_path(job: str) -> str:
    return f"/api/v1/training/runs/{job}"


def reason_notices(snapshot: run_snapshot.TrainingSnapshot, reason: str, message: str) -> tuple[Notice, ...]:
    """An event for news only: nothing when the live Ready condition already gives this reason."""
    if snapshot.condition("Ready").get("reason") == reason:
        return ()
    return (Notice("Normal" if reason in EXPECTED else "Warning", reason, message),)
