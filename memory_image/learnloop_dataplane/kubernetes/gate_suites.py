"""Which pods may hand in the report of a gate suite: those of its own Job, and nobody else of the namespace.

A token that the kubelet mounts names its pod, signed by the API server. Kubernetes says who made the pod: the Job of
the report's name, which the ModelDeployment controls.
"""

from learnloop_dataplane.access.authentication import Identity
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.kubernetes.api_client import KubeApi
from learnloop_dataplane.kubernetes.object_owners import controller_of, find, group_of


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
            raise _stranger(job, "its token names no pod: mount a projected service-account token")
        pod = await find(self._kube, "v1", "pods", caller.namespace, caller.pod)
        if pod is None or pod["metadata"].get("uid") != caller.pod_uid:
            raise _stranger(job, f"its pod {caller.pod} is gone")
        reference = controller_of(pod)
        if (group_of(reference), reference.get("kind"), reference.get("name")) != ("batch", "Job", job):
            raise _stranger(job, f"pod {caller.pod} is not of this Job")
        suite = await find(self._kube, "batch/v1", "jobs", caller.namespace, job)
        if suite is None or suite["metadata"].get("uid") != reference.get("uid"):
            raise _stranger(job, "the Job is gone")
        above = controller_of(suite)
        wanted = ("learnloop.dev", "ModelDeployment", deployment)
        if (group_of(above), above.get("kind"), above.get("name")) != wanted:
            raise _stranger(job, f"the Job is not of ModelDeployment {deployment}")


def _stranger(job: str, why: str) -> ApiError:
    return ApiError(403, f"only the pods of Job {job} hand in its report, and the caller is none: {why}", field="job")
