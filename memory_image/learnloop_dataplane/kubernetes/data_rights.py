"""Rights beyond an agent's: Kubernetes RBAC decides which callers administer a namespace's data.

Every ServiceAccount of a namespace is an agent there: it records, recalls, stores, rewards, reads. What destroys data,
leaves people out, or decides for others is an administrator's or the operator's. An administrator is who may do the
verb to the resource below, of the API group `data.learnloop.dev`, in the namespace: no such objects exist, the rights
alone are real. Who is listed in the installation's values needs no Role.
"""

from typing import TYPE_CHECKING, Literal

from cachetools import TTLCache

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import ApiError

if TYPE_CHECKING:
    from learnloop_dataplane.kubernetes.api_client import KubeApi

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

    def __init__(self, config: Config, kube: "KubeApi | None") -> None:
        self._open = config.auth == "none" or config.roles == "off"
        self._listed = frozenset({*config.admins.split(), *filter(None, [config.operator_subject])})
        self._kube = kube
        self._fresh: TTLCache[tuple[str, str, str, str], bool] = TTLCache(MAX_KNOWN, FRESH_SECONDS)

    async def require(self, caller: Identity, verb: Verb, resource: Resource) -> None:
        """Returns when the caller may.

        Raises:
            ApiError: 403, with the right that is missing.
            Unavailable: the API server does not answer, and nothing fresh is known.
        """
        if self._open or caller.subject in self._listed or await self._granted(caller, verb, resource):
            return
        raise ApiError(
            403,
            f"{caller.subject} is an agent in namespace {caller.namespace} and may not {verb} {resource}; bind it a "
            f"Role with verb {verb} on {resource}.{GROUP}, or the ClusterRole learnloop-data-admin",
        )

    async def _granted(self, caller: Identity, verb: Verb, resource: Resource) -> bool:
        if self._kube is None:
            return False
        key = (caller.subject, caller.namespace, verb, resource)
        if (fresh := self._fresh.get(key)) is not None:
            return fresh
        allowed = await self._kube.may(caller, verb, resource, group=GROUP)
        self._fresh[key] = allowed
        return allowed
