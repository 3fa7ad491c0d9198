"""The model that a run begins with and is compared with."""

from learnloop_api.kinds.language_model import base_alone
from learnloop_operator.core.plan import KubeObject
from learnloop_operator.training.run_snapshot import TrainingSnapshot


def choose(snapshot: TrainingSnapshot) -> tuple[str | None, str | None]:
    """The newest policy that is to serve the agent's users, and where that was rolled back the one that serves them.

    The base model when there is none, or None: then the trainer compares with uniform random actions.
    """
    agent = snapshot.agent or {}
    model = (agent.get("status") or {}).get("model") or {}
    deployment = (snapshot.deployment or {}).get("status") or {}
    stable = deployment.get("stable") or {}
    if stable.get("uri") and _rolled_back(deployment, model):
        model = stable
    if model.get("uri"):
        return str(model["uri"]), model.get("sha256")
    spoken = snapshot.spec.data.language_model
    if spoken is not None:
        return base_alone(spoken), spoken.base.sha256
    return None, None


def _rolled_back(deployment: KubeObject, model: KubeObject) -> bool:
    """True if a ModelDeployment's status lists this artifact as rolled back."""
    blocks = [*(deployment.get("blockedRevisions") or ()), deployment.get("blockedRevision") or {}]
    return any(block.get("uri") and _same(block, model) for block in blocks)


def _same(one: KubeObject, other: KubeObject) -> bool:
    """An artifact is its digest, whatever address it has now."""
    if one.get("sha256") and other.get("sha256"):
        return bool(one["sha256"] == other["sha256"])
    return bool(one.get("uri") == other.get("uri"))
