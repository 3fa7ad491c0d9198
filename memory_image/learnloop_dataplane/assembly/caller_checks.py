"""Who calls, and what a caller may do."""

from typing import TYPE_CHECKING

from learnloop_dataplane.access.callers import Identity
from learnloop_dataplane.assembly.shared_parts import SharedParts
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.kubernetes.data_rights import Resource, Roles, Verb

if TYPE_CHECKING:
    from learnloop_dataplane.kubernetes.pod_owners import Asked, GangMembers, GateSuites


class CallerChecks:
    """The checks that routes make before they do anything."""

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        self.authenticator = shared.authenticator
        self.anonymous = config.auth == "none"
        self._operator = config.operator_subject
        self._roles = Roles(config, shared.kube)
        ranks_only = not self.anonymous and config.run_writers == "ranks"
        self._gangs = _gang_members(shared) if shared.kube and ranks_only else None
        self._suites = _gate_suites(shared) if shared.kube and ranks_only else None

    async def identify(self, authorization: str | None, namespace: str | None) -> Identity:
        """The caller; see `Authenticator.identify`."""
        return await self.authenticator.identify(authorization, namespace)

    async def require(self, caller: Identity, verb: Verb, resource: Resource) -> None:
        """Raises a 403 where the caller is an agent and the route is not an agent's."""
        await self._roles.require(caller, verb, resource)

    async def require_rank(
        self, caller: Identity, job: str, attempt: int | None = None, *, asked: "Asked" = "lately"
    ) -> int | None:
        """The attempt of the run that the caller reports; raises a 403 where it does not belong to the run's gang."""
        if self._gangs is None:
            return attempt
        known = await self._gangs.require(caller, job, attempt, asked=asked)
        return attempt if known is None else known

    async def require_suite(self, caller: Identity, deployment: str, job: str) -> None:
        """Raises a 403 where the caller is no pod of this gate suite's Job."""
        if self._suites is not None:
            await self._suites.require(caller, deployment, job)

    def is_operator(self, caller: Identity) -> bool:
        return not self.anonymous and caller.subject == self._operator

    def require_operator(self, caller: Identity, message: str) -> None:
        """Raises a 403 with this message where the caller is not the operator's service account."""
        if not self.anonymous and caller.subject != self._operator:
            raise ApiError(403, message, field="authorization")


def _gang_members(shared: SharedParts) -> "GangMembers":
    from learnloop_dataplane.kubernetes.pod_owners import GangMembers

    assert shared.kube is not None
    return GangMembers(shared.kube)


def _gate_suites(shared: SharedParts) -> "GateSuites":
    from learnloop_dataplane.kubernetes.pod_owners import GateSuites

    assert shared.kube is not None
    return GateSuites(shared.kube)
