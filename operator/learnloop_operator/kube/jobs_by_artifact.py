"""Which TrainingJob made an artifact, as far as the watch cache knows."""

from dataclasses import dataclass
from typing import Any

from learnloop_operator.kube.kinds import TRAINING_JOB
from learnloop_operator.kube.object_cache import ObjectCache


@dataclass(frozen=True, slots=True)
class JobsByArtifact:
    """Looks at each TrainingJob of the namespace: asked once a rollout, it needs no index."""

    cache: ObjectCache

    def __call__(self, namespace: str, digest: str) -> dict[str, Any] | None:
        """The job whose status names the artifact with this SHA-256."""
        for place, name in self.cache.names(TRAINING_JOB):
            body = self.cache.get(TRAINING_JOB, place, name) if place == namespace else None
            if body and ((body.get("status") or {}).get("artifact") or {}).get("sha256") == digest:
                return body
        return None
