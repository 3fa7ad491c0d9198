"""Proof that a caller's pod is a worker of the very run, or of the gate suite, that it reports for.

The TrainingJob or gate suite is the one that the owner references of the pod and its objects lead to.
"""

from typing import Any
from urllib.parse import quote

from cachetools import TTLCache

from learnloop_dataplane import errors
from learnloop_dataplane.access import kubernetes_api, tokens

Object = dict[str, Any]
RANK_SECONDS = 30.0
MOST_RANKS = 10_000
ATTEMPT = "learnloop.dev/attempt"
OURS = "learnloop.dev"
MAKERS = {
    ("kubeflow.org", "PyTorchJob"): ("kubeflow.org/v1", "pytorchjobs"),
    ("trainer.kubeflow.org", "TrainJob"): ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    ("jobset.x-k8s.io", "JobSet"): ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    ("batch", "Job"): ("batch/v1", "jobs"),
    ("ray.io", "RayJob"): ("ray.io/v1", "rayjobs"),
    ("ray.io", "RayCluster"): ("ray.io/v1", "rayclusters"),
}
"""The kinds that make pods of a gang, with version and resource. A TrainJob makes a JobSet, and a JobSet Jobs; a RayJob
makes a RayCluster."""
MOST_MAKERS = 3


class PodOwners:
    """Checks of callers.

    Args:
        kube: with the right to get pods, TrainingJobs, and the kinds in `MAKERS`.
    """

    def __init__(self, kube: kubernetes_api.KubeApi) -> None:
        self._kube = kube
        self._attempts: TTLCache[tuple[str, str, str, str], int] = TTLCache(MOST_RANKS, RANK_SECONDS)

    async def require_rank(
        self, caller: tokens.Identity, job: str, attempt: int | None = None, *, fresh: bool = False
    ) -> int | None:
        """The attempt (from 0) whose rank the caller is; None: no TrainingJob has the run's name.

        Args:
            attempt: the attempt that the report names.
            fresh: ask the API server, however recently it has answered for this pod.

        Raises:
            ApiError: 403, the caller is not a rank of the run's gang, or of another attempt.
            Unavailable: the API server does not answer.
        """
        key = (caller.namespace, job, caller.pod or "", caller.pod_uid or "")
        current = None if fresh else self._attempts.get(key)
        if current is None:
            self._attempts.pop(key, None)
            owner = await self._find("learnloop.dev/v1alpha1", "trainingjobs", caller.namespace, job)
            if owner is None:
                return None
            current = self._attempts[key] = await self._attempt_of(caller, job, owner)
        if attempt is not None and attempt != current:
            message = f"the gang of run {job} is at attempt {current}, counted from 0; the report is of {attempt}"
            raise errors.ApiError(403, message, field="attempt", value=str(attempt))
        return current

    async def require_suite(self, caller: tokens.Identity, deployment: str, job: str) -> None:
        """Returns where the caller is a pod of the Job of a gate suite of this ModelDeployment.

        Raises:
            ApiError: 403, it is not.
            Unavailable: the API server does not answer.
        """
        sentence = f"only the pods of Job {job} send its report"
        pod = await self._pod_of(caller, sentence)
        reference = _controller_of(pod)
        if (_group_of(reference), reference.get("kind"), reference.get("name")) != ("batch", "Job", job):
            raise _refused(sentence, f"pod {caller.pod} is not of this Job")
        suite = await self._above(pod, caller.namespace)
        if suite is None:
            raise _refused(sentence, "the Job is gone")
        above = _controller_of(suite)
        if (_group_of(above), above.get("kind"), above.get("name")) != (OURS, "ModelDeployment", deployment):
            raise _refused(sentence, f"the Job is not of ModelDeployment {deployment}")

    async def _attempt_of(self, caller: tokens.Identity, job: str, owner: Object) -> int:
        sentence = f"only the ranks of TrainingJob {job} report its run"
        gang: Object | None = await self._pod_of(caller, sentence)
        for _ in range(MOST_MAKERS):
            gang = await self._above(gang, caller.namespace) if gang else None
            above = _controller_of(gang) if gang else {}
            if (_group_of(above), above.get("kind")) == (OURS, "TrainingJob"):
                break
        else:
            gang = None
        if gang is None:
            raise _refused(sentence, f"pod {caller.pod} belongs to no gang")
        if above.get("uid") != owner["metadata"].get("uid") or gang["metadata"]["name"] != job:
            raise _refused(sentence, f"pod {caller.pod} is a rank of another job")
        attempt = (gang["metadata"].get("annotations") or {}).get(ATTEMPT, "0")
        return int(attempt) if attempt.isdecimal() else 0

    async def _pod_of(self, caller: tokens.Identity, sentence: str) -> Object:
        if not caller.pod or not caller.pod_uid:
            raise _refused(sentence, "its token names no pod: mount a projected service-account token")
        pod = await self._find("v1", "pods", caller.namespace, caller.pod)
        if pod is None or pod["metadata"].get("uid") != caller.pod_uid:
            raise _refused(sentence, f"its pod {caller.pod} is gone")
        return pod

    async def _above(self, manifest: Object, namespace: str) -> Object | None:
        """The controller of an object, if it is of `MAKERS` and the very one that the reference names."""
        reference = _controller_of(manifest)
        kind = MAKERS.get((_group_of(reference), str(reference.get("kind"))))
        above = await self._find(*kind, namespace, str(reference.get("name"))) if kind else None
        return above if above and above["metadata"].get("uid") == reference.get("uid") else None

    async def _find(self, version: str, resource: str, namespace: str, name: str) -> Object | None:
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        path = f"{root}/namespaces/{quote(namespace, safe='')}/{resource}/{quote(name, safe='')}"
        try:
            manifest: Object = await self._kube.request("GET", path)
        except errors.ApiServerRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        return manifest


def _controller_of(manifest: Object) -> Object:
    owners: list[Object] = manifest["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def _group_of(reference: Object) -> str:
    return str(reference.get("apiVersion")).partition("/")[0]


def _refused(sentence: str, why: str) -> errors.ApiError:
    return errors.ApiError(403, f"{sentence}, and the caller is not one: {why}", field="job")
