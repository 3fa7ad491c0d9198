"""The API server, as the data plane's own service account sees it: a handful of calls, off unless a setting asks.

Every ServiceAccount of a namespace is an agent there: it records, recalls, stores, rewards, reads. What destroys data,
leaves people out, or decides for others is an administrator's or the operator's. An administrator is who may do the
verb to the resource below, of the API group `data.learnloop.dev`, in the namespace: no such objects exist, the rights
alone are real. Who is listed in the installation's values needs no Role. The TrainingJob or gate suite of a caller's
pod is the one that the owner references of its objects lead to.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
from cachetools import TTLCache

from learnloop_dataplane import access, errors
from learnloop_dataplane.config import Config

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * 2**20
_REVIEWS = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"


class KubeApi:
    """Requests with this pod's token, which is read again each time: the kubelet replaces it every hour.

    Args:
        config: where the API server, its certificate authority and the token are.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        text: bool = False,
    ) -> Any:
        """The answer's JSON, or its text.

        Raises:
            ApiServerRefused: the API server says no, and why.
            Unavailable: it does not answer, or not now.
        """
        try:
            if self._client is None:
                self._client = await asyncio.to_thread(self._open)
            token = await asyncio.to_thread(Path(self._config.jwks_token_file).read_text)
            headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": content_type}
            answer = await self._client.request(method, path, params=query, json=body, headers=headers)
        except (OSError, httpx.HTTPError, ssl.SSLError) as error:
            raise errors.Unavailable("the API server") from error
        if answer.status_code == 429 or answer.status_code >= 500:
            raise errors.Unavailable("the API server", retry_after=5)
        if answer.status_code >= 300:
            raise errors.ApiServerRefused(answer.status_code, _message(answer), field=None)
        if len(answer.content) > MAX_ANSWER_BYTES:
            raise errors.Unavailable("the API server")
        return answer.text if text else answer.json()

    async def may(
        self, caller: access.Identity, verb: str, resource: str, name: str = "", *, group: str = "learnloop.dev"
    ) -> bool:
        """May this service account do that to objects of `group` in its namespace? The API server decides.

        Raises:
            Unavailable: it does not answer.
            ApiServerRefused: the data plane itself may not ask.
        """
        attributes = {
            "namespace": caller.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": caller.namespace},
            "spec": {"user": caller.subject, "groups": groups(caller.subject), "resourceAttributes": attributes},
        }
        path = _REVIEWS.format(namespace=quote(caller.namespace, safe=""))
        answer = await self.request("POST", path, body=review)
        return bool(answer.get("status", {}).get("allowed"))

    def _open(self) -> httpx.AsyncClient:
        ca = Path(self._config.jwks_ca_file)
        verify: Any = ssl.create_default_context(cafile=str(ca)) if ca.exists() else True
        return httpx.AsyncClient(
            base_url=self._config.kube_url,
            verify=verify,
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
            trust_env=False,
        )


def groups(subject: str) -> list[str]:
    """The groups that the API server gives a service account of this name."""
    if not subject.startswith("system:serviceaccount:"):
        return ["system:unauthenticated"]
    own = subject.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"the API server answered {answer.status_code}"


GROUP = "data.learnloop.dev"
FRESH_SECONDS = 30.0
MAX_KNOWN = 10_000
Resource = Literal["agents", "deployments", "memories", "memorybudgets", "people", "rewardpolicies", "runs", "studies"]
Verb = Literal["delete", "update"]


class Roles:
    """Asks once for each caller, right and half a minute.

    Args:
        kube: with the right to create LocalSubjectAccessReviews; None: the listed ones are all.
    """

    def __init__(self, config: Config, kube: KubeApi | None) -> None:
        self._open = config.auth == "none" or config.roles == "off"
        self._listed = frozenset({*config.admins.split(), *filter(None, [config.operator_subject])})
        self._kube = kube
        self._fresh: TTLCache[tuple[str, str, str, str], bool] = TTLCache(MAX_KNOWN, FRESH_SECONDS)

    async def require(self, caller: access.Identity, verb: Verb, resource: Resource) -> None:
        """Returns when the caller may.

        Raises:
            ApiError: 403, with the right that is missing.
            Unavailable: the API server does not answer, and nothing fresh is known.
        """
        if self._open or caller.subject in self._listed or await self._granted(caller, verb, resource):
            return
        raise errors.ApiError(
            403,
            f"{caller.subject} is an agent in namespace {caller.namespace} and may not {verb} {resource}; bind it a "
            f"Role with verb {verb} on {resource}.{GROUP}, or the ClusterRole learnloop-data-admin",
        )

    async def _granted(self, caller: access.Identity, verb: Verb, resource: Resource) -> bool:
        if self._kube is None:
            return False
        key = (caller.subject, caller.namespace, verb, resource)
        if (fresh := self._fresh.get(key)) is not None:
            return fresh
        allowed = await self._kube.may(caller, verb, resource, group=GROUP)
        self._fresh[key] = allowed
        return allowed


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
}
"""The kinds that make pods of a gang, with version and resource. A TrainJob makes a JobSet, and a JobSet Jobs."""
MOST_MAKERS = 3


class PodOwners:
    """Checks of callers.

    Args:
        kube: with the right to get pods, TrainingJobs, and the kinds in `MAKERS`.
    """

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._attempts: TTLCache[tuple[str, str, str, str], int] = TTLCache(MOST_RANKS, RANK_SECONDS)

    async def require_rank(
        self, caller: access.Identity, job: str, attempt: int | None = None, *, fresh: bool = False
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

    async def require_suite(self, caller: access.Identity, deployment: str, job: str) -> None:
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

    async def _attempt_of(self, caller: access.Identity, job: str, owner: Object) -> int:
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

    async def _pod_of(self, caller: access.Identity, sentence: str) -> Object:
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
