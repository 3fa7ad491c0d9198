"""Is the manifest the proof it claims to be? Succeeded pods alone count for nothing."""

from typing import Literal

from learnloop_api.wire.training import Manifest as Proof
from learnloop_operator.core.training.snapshot import TrainingSnapshot

Flaw = tuple[Literal["incomplete", "wrong"], str]


def flaw(world: TrainingSnapshot, proof: Proof) -> Flaw | None:
    """Why `proof` proves nothing. incomplete: another attempt may complete it; wrong: no attempt will."""
    if proof.job != world.name:
        return "incomplete", f"the manifest is for job {proof.job!r}, not {world.name!r}"
    if proof.step < world.spec.total_steps:
        return "incomplete", f"the manifest ends at step {proof.step} of {world.spec.total_steps}"
    if proof.algorithm != world.spec.algorithm or proof.environment != world.spec.data.environment:
        told = f"{proof.algorithm} on {proof.environment}"
        wanted = f"{world.spec.algorithm} on {world.spec.data.environment}"
        return "incomplete", f"the manifest is of {told}, the spec asks for {wanted}"
    missing = sorted(set(world.spec.export.formats) - {item.format for item in proof.exports})
    if missing:
        return "incomplete", f"the manifest has no {missing[0]}, which the spec asks for"
    if not proof.artifact_uri.endswith(proof.artifact_sha256) and proof.artifact_uri.startswith("learnloop://"):
        return "wrong", f"artifact {proof.artifact_uri} does not carry its digest {proof.artifact_sha256[:12]}…"
    for what, parity in (("graph", proof.parity), *((item.format, item.parity) for item in proof.exports)):
        if parity.passed:
            continue
        return "wrong", (
            f"the exported {what} differs from the trained network: largest difference "
            f"{parity.max_abs_difference:.2g}, same action on {100 * parity.action_agreement:.2f} % of "
            f"{parity.observations} observations"
        )
    return None
