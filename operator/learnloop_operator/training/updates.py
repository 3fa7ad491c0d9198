"""Rules for a run whose rank stays: judge each update by its proof, order the next one, and wait in between.

An update never changes what serves: its artifact becomes the job's when its own gates passed, and is rolled out.
"""

from typing import Any

from learnloop_api.wire.training import Proof, UpdateOrder
from learnloop_operator.core.plan import Call, Notice, Plan
from learnloop_operator.training import attempts, backends, proof_gates, run_snapshot, run_status

STRAYED, REFUSED = "Strayed", "UpdateRefused"


def end_updates(snapshot: run_snapshot.TrainingSnapshot, _: backends.Backends) -> Plan | None:
    """End a run of which no more updates are wanted, with the artifact that it has."""
    if snapshot.updated is None or snapshot.spec.continuous is not None:
        return None
    proven = snapshot.holds("Validated")
    message = f"ended after update {snapshot.updated}: spec.continuous was removed"
    verdict = run_status.StatusVerdict(
        phase="Validated" if proven else "Failed",
        reason="Validated" if proven else "GatesFailed",
        message=message,
        ready=proven,
        progressing=False,
        stalled=not proven,
    )
    state = run_status.status(snapshot, verdict, eta=None, finishedAt=snapshot.time)
    return Plan(status=state, events=(Notice("Normal", "UpdatesEnded", message),), requeue_after=attempts.NOW)


def judge_update(snapshot: run_snapshot.TrainingSnapshot, _: backends.Backends) -> Plan | None:
    """A rank that stays does not end with its proof, so a proof of the live attempt is enough."""
    proof, job = snapshot.run.proof if snapshot.run else None, snapshot.job
    if snapshot.spec.continuous is None or proof is None or job is None or job.deleting or job.state != "active":
        return None
    if not snapshot.attempts or proof.update <= (-1 if snapshot.updated is None else snapshot.updated):
        return None
    problem = proof_gates.flaw(snapshot, proof)
    if problem is None:
        return _judged(snapshot, proof)
    return attempts.fail(snapshot, "ProofRejected", problem[1]) if problem[0] == "wrong" else None


def _judged(snapshot: run_snapshot.TrainingSnapshot, proof: Proof) -> Plan:
    results, sentence = attempts.judged_by_gates(snapshot, proof)
    failed = [result.name for result in results if not result.passed]
    serves = not failed or snapshot.holds("Validated")
    reason = STRAYED if proof_gates.MAX_KL in failed else REFUSED if failed else "Validated"
    message = f"update {proof.update}: {sentence}" if proof.update else sentence
    verdict = run_status.StatusVerdict(
        phase=_phase(reason),
        reason=reason,
        message=message,
        ready=serves,
        progressing=False,
        trained=True,
        validated=serves,
    )
    state = run_status.status(
        snapshot,
        verdict,
        # What was refused never takes the place of what was proven.
        **({} if failed and serves else run_status.proven(proof) | {"lineage": _lineage(snapshot, proof)}),
        attempts=snapshot.attempts,
        gates=[result.to_kube() for result in results],
        refused=[*(snapshot.status.get("refused") or ()), proof.artifact_sha256][-16:]
        if failed
        else snapshot.status.get("refused"),
        update=proof.update,
        updatedAt=snapshot.time,
    )
    notice = Notice("Warning" if failed else "Normal", reason, message)
    return Plan(status=state, events=(notice,), requeue_after=attempts.NOW)


def _phase(reason: str) -> str:
    return "Validated" if reason == "Validated" else "Waiting"


def _lineage(snapshot: run_snapshot.TrainingSnapshot, proof: Proof) -> dict[str, Any] | None:
    order = snapshot.run.update if snapshot.run else None
    fresh = run_status.lineage(snapshot, fresh=proof.update > 0)
    if fresh is None or order is None or order.reward_policy_revision is None:
        return fresh
    return fresh | {"rewardPolicy": order.reward_policy, "rewardPolicyRevision": order.reward_policy_revision}


def order_update(snapshot: run_snapshot.TrainingSnapshot, _: backends.Backends) -> Plan | None:
    """The update that is wanted next, told to the rank once; it names the policy to beat."""
    wanted, job, run = snapshot.spec.continuous, snapshot.job, snapshot.run
    if wanted is None or snapshot.updated is None or run is None or job is None or job.state != "active":
        return None
    if wanted.update <= snapshot.updated or (run.update is not None and run.update.number >= wanted.update):
        return None
    uri, digest = snapshot.baseline
    artifact = snapshot.status.get("artifact") or {}
    # None goes on from a policy that was rolled back, is too far from what serves, or was refused at the bound.
    last = snapshot.condition("Trained").get("reason")
    bounded = last == REFUSED and run.proof is not None and run.proof.ended_by_kl
    goes_on = last != STRAYED and not bounded and (not snapshot.holds("Validated") or artifact.get("uri") == uri)
    origin = run_status.lineage(snapshot, fresh=True) or {}
    order = UpdateOrder(number=wanted.update, goes_on=goes_on, baseline_uri=uri, baseline_sha256=digest)
    if snapshot.spec.data.rewards == "policy":
        named = {"reward_policy": "rewardPolicy", "reward_policy_revision": "rewardPolicyRevision"}
        order = order.model_copy(update={field: origin.get(name) for field, name in named.items()})
    message = f"update {wanted.update} against {uri or 'random actions'}" + ("" if goes_on else ", from what serves")
    verdict = run_status.StatusVerdict(phase="Training", reason="UpdateOrdered", message=message)
    state = run_status.status(snapshot, verdict, attemptStartedAt=snapshot.time)
    call = Call("PUT", f"{attempts.run_path(snapshot.name)}/update", order.model_dump(mode="json"))
    return Plan(status=state, calls=(call,), requeue_after=attempts.SOON)


def await_update(snapshot: run_snapshot.TrainingSnapshot, _: backends.Backends) -> Plan | None:
    """All wanted updates are judged: the rank waits, which takes no heartbeat."""
    wanted, job = snapshot.spec.continuous, snapshot.job
    if wanted is None or snapshot.updated is None or wanted.update > snapshot.updated:
        return None
    if job is None or job.deleting or job.state != "active":
        return None
    last = snapshot.condition("Trained")
    reason, message = str(last.get("reason", "Validated")), str(last.get("message", ""))
    serves = snapshot.holds("Validated")
    verdict = run_status.StatusVerdict(
        phase=_phase(reason), reason=reason, message=message, ready=serves, progressing=False
    )
    return Plan(status=run_status.status(snapshot, verdict, eta=None), requeue_after=attempts.LATER)
