"""The API server, as the data plane's own account sees it, and the Roles of callers that it decides by.

Every ServiceAccount of a namespace is an agent there: it records, recalls, stores, rewards, reads. The rest is an
administrator's or the operator's. An administrator is who may do the verb to the resource below, of the API group
`data.learnloop.dev`, in the namespace: no such objects exist, the rights alone are real. Who is listed in the
installation's values needs no Role.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
from cachetools import TTLCache

from learnloop_dataplane import errors
from learnloop_dataplane.access import tokens
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
        self, caller: tokens.Identity, verb: str, resource: str, name: str = "", *, group: str = "learnloop.dev"
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
MAX_CACHED = 10_000
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
        self._fresh: TTLCache[tuple[str, str, str, str], bool] = TTLCache(MAX_CACHED, FRESH_SECONDS)

    async def require(self, caller: tokens.Identity, verb: Verb, resource: Resource) -> None:
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

    async def _granted(self, caller: tokens.Identity, verb: Verb, resource: Resource) -> bool:
        if self._kube is None:
            return False
        key = (caller.subject, caller.namespace, verb, resource)
        if (fresh := self._fresh.get(key)) is not None:
            return fresh
        allowed = await self._kube.may(caller, verb, resource, group=GROUP)
        self._fresh[key] = allowed
        return allowed
