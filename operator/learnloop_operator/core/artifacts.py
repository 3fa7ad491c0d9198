"""Artifacts: which can be read from a namespace, which were rolled back, and which are in use."""

import json
import re
from collections.abc import Iterable, Sequence

from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.core.plan import Call, KubeObject

SCHEME = "learnloop://"


def foreign(uri: str, namespace: str) -> str:
    """Reason why a model at `uri` cannot be read from `namespace`, value and fix included; "" where it can."""
    if not uri.startswith(SCHEME):
        return ""
    home = uri.removeprefix(SCHEME).partition("/")[0]
    if home == namespace:
        return ""
    return (
        f"{uri} belongs to namespace {home}, and only pods of {home} can read it: name an artifact of {namespace}, "
        f"or put the file where both can read it (https:// or s3://)"
    )


def same(uri: str | None, sha256: str | None, other_uri: str | None, other_sha256: str | None) -> bool:
    """An artifact is its digest, whatever its address is now; its address alone where neither has a digest."""
    return sha256 == other_sha256 and (sha256 is not None or uri == other_uri)


def rolled_back(
    blocks: Sequence[BlockedRevision] | None, uri: str | None, sha256: str | None
) -> BlockedRevision | None:
    """The newest rollback of this artifact."""
    return next((block for block in reversed(blocks or ()) if same(block.uri, block.sha256, uri, sha256)), None)


_DIGEST = "[0-9a-f]{64}"
MOST = 20_000


def in_use(objects: Iterable[KubeObject], jobs: Iterable[KubeObject]) -> Call:
    """The data plane's list of one namespace.

    An artifact is in use while a ModelDeployment, LearningAgent or RewardPolicy names it anywhere, by address or
    digest. That may be as the wished model, on an arm, kept warm, blocked, in an experiment, as the target of an undo,
    or as the reward model of an evaluator. A run is, while it goes on, and what it names: its fallback policy, what it
    begins from.
    """
    used, jobs = set[str](), [job for job in jobs if not (job.get("status") or {}).get("finishedAt")]
    for item in (*objects, *jobs):
        text = json.dumps({"spec": item.get("spec"), "status": item.get("status")})
        used.update(re.findall(rf"{SCHEME}[^/\"]+/({_DIGEST})", text))
        used.update(re.findall(rf'"sha256": "({_DIGEST})"', text))
    going = {job["metadata"]["name"] for job in jobs}
    if len(used) > MOST or len(going) > MOST:
        raise ValueError(f"{len(used)} artifacts and {len(going)} runs in use are more than {MOST}: nothing is deleted")
    return Call("PUT", "/api/v1/artifacts/in-use", {"sha256": sorted(used), "jobs": sorted(going)})
