"""Kubernetes objects and who made them: what a caller's right to report goes by."""

import time
from typing import Any, Literal
from urllib.parse import quote

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.errors import ApiError, ApiServerRefused, Unavailable
from learnloop_dataplane.kubernetes.api_client import KubeApi

Object = dict[str, Any]


async def find(kube: KubeApi, version: str, resource: str, namespace: str, name: str) -> Object | None:
    """An object, or None where there is none of this name.

    Raises:
        ApiServerRefused: the API server says no.
        Unavailable: it does not answer.
    """
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    path = f"{root}/namespaces/{quote(namespace, safe='')}/{resource}/{quote(name, safe='')}"
    try:
        found: Object = await kube.request("GET", path)
    except ApiServerRefused as refusal:
        if refusal.status == 404:
            return None
        raise
    return found


def controller_of(manifest: Object) -> Object:
    """The reference to the object's controller; empty where it has none."""
    owners: list[Object] = manifest["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def group_of(reference: Object) -> str:
    """The API group that a reference names."""
    return str(reference.get("apiVersion")).partition("/")[0]


FRESH_SECONDS = 30.0
"""So long a rank is known without asking again."""
STALE_SECONDS = 3600.0
"""So long it is while the API server does not answer."""
Asked = Literal["lately", "now", "now-or-never"]
"""lately: an answer of the last half minute does. now: whether the pod is still there is asked anew; an older answer
does while the API server is away. now-or-never: no older answer does."""
MAX_KNOWN = 10_000
ATTEMPT = "learnloop.dev/attempt"
MAKERS = {
    ("kubeflow.org", "PyTorchJob"): ("kubeflow.org/v1", "pytorchjobs"),
    ("trainer.kubeflow.org", "TrainJob"): ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    ("jobset.x-k8s.io", "JobSet"): ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    ("batch", "Job"): ("batch/v1", "jobs"),
}
"""What makes pods of a gang, each where the API server keeps it. A TrainJob makes a JobSet, and a JobSet Jobs."""
MOST_MAKERS = 3


class GangMembers:
    """Asks once for each pod and half a minute.

    Args:
        kube: with the right to get pods, TrainingJobs, and all that makes pods of a gang.
    """

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._known: dict[tuple[str, str, str, str], tuple[float, int]] = {}

    async def require(
        self, caller: Identity, job: str, attempt: int | None = None, *, asked: Asked = "lately"
    ) -> int | None:
        """The attempt (from 0) whose rank the caller is; None: no TrainingJob waits for this run.

        Args:
            attempt: the one that the report is of, where it says so.

        Raises:
            ApiError: 403, it is no rank of the run's gang, or of another attempt.
            Unavailable: the API server does not answer, and nothing is known of this pod.
        """
        key = (caller.namespace, job, caller.pod or "", caller.pod_uid or "")
        now, found = time.monotonic(), self._known.get(key)
        age = now - found[0] if found is not None else STALE_SECONDS
        if found is not None and asked == "lately" and age < FRESH_SECONDS:
            return _same_attempt(job, attempt, found[1])
        try:
            if found is not None and asked == "now" and age < FRESH_SECONDS:
                await self._pod_of(caller, job)
                return _same_attempt(job, attempt, found[1])
            current = await self._attempt_of(caller, job)
        except Unavailable:
            if found is not None and asked != "now-or-never" and age < STALE_SECONDS:
                return _same_attempt(job, attempt, found[1])
            raise
        except ApiError:
            self._known.pop(key, None)
            raise
        if current is None:
            self._known.pop(key, None)
            return None
        self._keep(key, now, current)
        return _same_attempt(job, attempt, current)

    async def _attempt_of(self, caller: Identity, job: str) -> int | None:
        """The attempt whose rank the caller's pod is; None where no TrainingJob has the run's name."""
        owner = await find(self._kube, "learnloop.dev/v1alpha1", "trainingjobs", caller.namespace, job)
        if owner is None:
            return None
        pod = await self._pod_of(caller, job)
        gang = await self._gang_of(pod, caller.namespace)
        if gang is None:
            raise _stranger(job, f"pod {caller.pod} belongs to no gang")
        above = controller_of(gang)
        if above.get("uid") != owner["metadata"].get("uid") or gang["metadata"]["name"] != job:
            raise _stranger(job, f"pod {caller.pod} is a rank of another job")
        attempt = (gang["metadata"].get("annotations") or {}).get(ATTEMPT, "0")
        return int(attempt) if attempt.isdecimal() else 0

    async def _pod_of(self, caller: Identity, job: str) -> dict[str, Any]:
        """The caller's pod, which is there still."""
        if not caller.pod or not caller.pod_uid:
            raise _stranger(job, "its token names no pod: mount a projected service-account token")
        pod = await find(self._kube, "v1", "pods", caller.namespace, caller.pod)
        if pod is None or pod["metadata"].get("uid") != caller.pod_uid:
            raise _stranger(job, f"its pod {caller.pod} is gone")
        return pod

    async def _gang_of(self, pod: dict[str, Any], namespace: str) -> dict[str, Any] | None:
        """The object above the pod that a TrainingJob controls; each one on the way must be the very one named."""
        found = pod
        for _ in range(MOST_MAKERS):
            reference = controller_of(found)
            kept = MAKERS.get((group_of(reference), str(reference.get("kind"))))
            above = kept and await find(self._kube, *kept, namespace, str(reference.get("name")))
            if not above or above["metadata"].get("uid") != reference.get("uid"):
                return None
            found = above
            higher = controller_of(found)
            if (group_of(higher), higher.get("kind")) == ("learnloop.dev", "TrainingJob"):
                return found
        return None

    def _keep(self, key: tuple[str, str, str, str], now: float, attempt: int) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known = {known: item for known, item in self._known.items() if now - item[0] < FRESH_SECONDS}
        if len(self._known) < MAX_KNOWN:
            self._known[key] = (now, attempt)


def _same_attempt(job: str, asked: int | None, current: int) -> int:
    if asked is not None and asked != current:
        message = f"the gang of run {job} is at attempt {current}, counted from 0; the report is of {asked}"
        raise ApiError(403, message, field="attempt", value=str(asked))
    return current


def _stranger(job: str, why: str) -> ApiError:
    return ApiError(
        403, f"only the ranks of TrainingJob {job} report its run, and the caller is none: {why}", field="job"
    )


class GateSuites:
    """Asks each time: a suite reports once.

    Args:
        kube: with the right to get pods and Jobs.
    """

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube

    async def require(self, caller: Identity, deployment: str, job: str) -> None:
        """Returns when the caller may hand in the report of this Job of this ModelDeployment.

        Raises:
            ApiError: 403, it is no pod of that Job, or the Job is not of that ModelDeployment.
            Unavailable: the API server does not answer.
        """
        if not caller.pod or not caller.pod_uid:
            raise _gate_suites_stranger(job, "its token names no pod: mount a projected service-account token")
        pod = await find(self._kube, "v1", "pods", caller.namespace, caller.pod)
        if pod is None or pod["metadata"].get("uid") != caller.pod_uid:
            raise _gate_suites_stranger(job, f"its pod {caller.pod} is gone")
        reference = controller_of(pod)
        if (group_of(reference), reference.get("kind"), reference.get("name")) != ("batch", "Job", job):
            raise _gate_suites_stranger(job, f"pod {caller.pod} is not of this Job")
        suite = await find(self._kube, "batch/v1", "jobs", caller.namespace, job)
        if suite is None or suite["metadata"].get("uid") != reference.get("uid"):
            raise _gate_suites_stranger(job, "the Job is gone")
        above = controller_of(suite)
        wanted = ("learnloop.dev", "ModelDeployment", deployment)
        if (group_of(above), above.get("kind"), above.get("name")) != wanted:
            raise _gate_suites_stranger(job, f"the Job is not of ModelDeployment {deployment}")


def _gate_suites_stranger(job: str, why: str) -> ApiError:
    return ApiError(403, f"only the pods of Job {job} hand in its report, and the caller is none: {why}", field="job")
