"""llm-d: an InferenceModelRewrite (llm-d.ai/v1alpha2) that gives the arms' adapters the weights of the table.

Who asks the pool for the ModelDeployment's name, and not learnloop's gateway, gets an adapter by these weights. What is
answered so counts neither as evidence nor as experience. learnloop loads the adapters under these names.
"""

from collections.abc import Sequence

from learnloop_api import names
from learnloop_api.kinds.language_model import BASE_SCHEME, LlmDRegistration
from learnloop_api.wire.routing import Arm, arm_name
from learnloop_operator.core.manifests import child, standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.rollout.model.snapshot import Snapshot

COMPONENT = "llm-d"
API_VERSION, KIND = "llm-d.ai/v1alpha2", "InferenceModelRewrite"


def llm_d(snapshot: Snapshot, wanted: LlmDRegistration, arms: Sequence[Arm]) -> tuple[Manifest, ...]:
    """The rewrite. A target's weight is at least 1, so an arm that draws nothing is left out."""
    targets = [{"modelRewrite": _served(snapshot, arm), "weight": arm.weight} for arm in arms if arm.weight]
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": wanted.pool}
    match = {"model": {"type": "Exact", "value": snapshot.name}}
    rewrite = child(
        snapshot.object,
        api_version=API_VERSION,
        kind=KIND,
        name=snapshot.name,
        labels=standard_labels(COMPONENT, {names.LABEL_DEPLOYMENT: snapshot.name}),
        spec={"poolRef": pool, "rules": [{"matches": [match], "targets": targets}]},
    )
    return (rewrite,) if targets else ()


def _served(snapshot: Snapshot, arm: Arm) -> str:
    """Name of the arm at the pool's servers: its adapter, or the base model where it adds nothing."""
    live, language = snapshot.arms.get(arm.revision), snapshot.spec.serving.language
    base = live is not None and live.model is not None and live.model.uri.startswith(BASE_SCHEME)
    recorded = language.server.model if base and language else None
    return recorded or arm_name(snapshot.name, arm.revision)
