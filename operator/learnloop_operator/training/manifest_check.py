"""Is the manifest the proof it claims to be? Succeeded pods alone count for nothing."""

from typing import Literal

from learnloop_api.wire.training import Manifest as Proof
from learnloop_operator.core.artifact_uris import SCHEME
from learnloop_operator.training.snapshot import TrainingSnapshot

Flaw = tuple[Literal["incomplete", "wrong"], str]


def flaw(world: TrainingSnapshot, proof: Proof) -> Flaw | None:
    """Why `proof` proves nothing. incomplete: another attempt may complete it; wrong: no attempt will."""
    if proof.job != world.name:
        return "incomplete", f"the manifest is for job {proof.job!r}, not {world.name!r}"
    if world.job is not None and proof.attempts != world.job.attempt + 1:
        return (
            "incomplete",
            f"the manifest is of attempt {proof.attempts}, the gang was attempt {world.job.attempt + 1}",
        )
    if proof.step < world.spec.total_steps and not _patience_ended(world, proof):
        return "incomplete", f"the manifest ends at step {proof.step} of {world.spec.total_steps}"
    if proof.algorithm != world.spec.algorithm or proof.environment != world.spec.data.world:
        told = f"{proof.algorithm} on {proof.environment}"
        wanted = f"{world.spec.algorithm} on {world.spec.data.world}"
        return "incomplete", f"the manifest is of {told}, the spec asks for {wanted}"
    if (proof.off_policy is None) == (world.spec.data.environment is None):
        told, wanted = ("played episodes", "a log") if proof.off_policy is None else ("a log", "played episodes")
        return "incomplete", f"the manifest proves by {told}, the spec asks for {wanted}"
    asked = world.spec.data.rewards or "environment"
    begun = (world.status.get("lineage") or {}).get("rewardPolicyRevision") if asked == "policy" else None
    if (proof.rewards, proof.reward_policy_revision) != (asked, begun):
        told = f"{proof.rewards}, revision {proof.reward_policy_revision}"
        return "incomplete", f"the manifest is by the rewards of {told}, the run began with {asked}, revision {begun}"
    missing = sorted(set(world.spec.export.formats) - {item.format for item in proof.exports})
    if missing:
        return "incomplete", f"the manifest has no {missing[0]}, which the spec asks for"
    stored = [("artifact_uri", proof.artifact_uri, proof.artifact_sha256)]
    stored += [(f"uri of the {item.format}", item.uri, item.sha256) for item in proof.exports]
    for field, uri, sha256 in stored:
        if uri != f"{SCHEME}{world.namespace}/{sha256}":
            return (
                "wrong",
                f"{field}: {uri[:200]} is not {SCHEME}{world.namespace}/{sha256[:12]}…: push it to the data plane",
            )
    for what, parity in (("graph", proof.parity), *((item.format, item.parity) for item in proof.exports)):
        if parity.passed:
            continue
        return "wrong", (
            f"the exported {what} differs from the trained network: largest difference "
            f"{parity.max_abs_difference:.2g}, same action on {100 * parity.action_agreement:.2f} % of "
            f"{parity.observations} observations"
        )
    return None


def _patience_ended(world: TrainingSnapshot, proof: Proof) -> bool:
    """Whether the spec lets a run end early, and this one says that it did."""
    asked, found = world.spec.evaluation.while_training, proof.while_training
    return asked is not None and asked.patience is not None and found is not None and found.ended_early
