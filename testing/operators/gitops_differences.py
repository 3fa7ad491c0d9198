"""A GitOps tool's view of a rollout."""

from typing import Any

from learnloop_api import names
from learnloop_operator.kube.kinds import MODEL_DEPLOYMENT
from testing.operators.crash_rig import NAME, Rig, model

USER_METADATA = ("labels", "annotations", "finalizers", "generation")
"""Of the metadata: what a user may set, and the number of changes to the spec."""


async def differences(rig: Rig, number: int) -> dict[str, Any]:
    """Argo CD's server-side diff: the user's manifest for model `number`, applied by the server without being kept, and
    the live object, where they differ; empty while it would show Synced."""
    spec = {**rig.spec_body, "model": model(number)}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": {"name": NAME}, "spec": spec}
    path = MODEL_DEPLOYMENT.path(rig.namespace, NAME)
    query = {"dryRun": "All", "fieldManager": "gitops", "force": "true"}
    answer = await rig.user.http.request(
        "PATCH", path, body=body, query=query, content_type="application/apply-patch+yaml"
    )
    live = _compared(await rig.user.get(MODEL_DEPLOYMENT, rig.namespace, NAME))
    return {key: (live[key], value) for key, value in _compared(answer).items() if live[key] != value}


def _compared(item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    return {"spec": item["spec"], **{key: metadata.get(key) for key in USER_METADATA}}
