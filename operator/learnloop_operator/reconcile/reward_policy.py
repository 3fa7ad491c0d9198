"""RewardPolicy: gather, decide."""

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, DryRunFigures, RewardSignals
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.data_plane import DataPlaneUnavailable
from learnloop_operator.kube.kinds import LEARNING_AGENT, REWARD_POLICY, ResourceKind
from learnloop_operator.reconcile.services import Services, read_spec
from learnloop_operator.rewards import (
    DRY_RUN_EPISODES,
    RewardPolicySnapshot,
    content,
    content_revision,
    content_with_bias,
    decide,
    needs_dry_run,
)


class RewardPolicyController:
    """Publishes revisions to the data plane."""

    kind: ResourceKind = REWARD_POLICY

    def __init__(self, services: Services) -> None:
        self._services = services

    async def gather(self, namespace: str, name: str) -> RewardPolicySnapshot | None:
        """The policy and the agents that name it."""
        live = await self._services.kube.find(REWARD_POLICY, namespace, name)
        if live is None:
            return None
        live = {"apiVersion": REWARD_POLICY.api_version, "kind": REWARD_POLICY.kind, **live}
        spec = read_spec(RewardPolicySpec, live)
        agents = await self._services.kube.list(LEARNING_AGENT, namespace)
        using = sum(((agent.get("spec") or {}).get("rewardPolicyRef") or {}).get("name") == name for agent in agents)
        status = live.get("status") or {}
        revision = str(status.get("revision") or "") if spec.dry_run else content_revision(spec)
        signals = await self._signals(namespace, name, revision) if using and revision else None
        tried = await self._try(namespace, spec) if needs_dry_run(spec, status) else None
        bias = await self._bias(namespace, name, spec) if spec.bias else None
        now = self._services.clock()
        return RewardPolicySnapshot(
            now=now, object=live, spec=spec, agents=using, signals=signals, dry_run=tried, bias=bias
        )

    async def _bias(self, namespace: str, name: str, spec: RewardPolicySpec) -> BiasFigures | None:
        """Tries the spec, published or not; without an answer the last one stands."""
        try:
            return await self._services.data_plane.reward_bias(namespace, content_with_bias(spec), name)
        except DataPlaneUnavailable:
            return None

    async def _try(self, namespace: str, spec: RewardPolicySpec) -> DryRunFigures | None:
        try:
            return await self._services.data_plane.dry_run(namespace, content(spec), DRY_RUN_EPISODES)
        except DataPlaneUnavailable:
            return None

    async def _signals(self, namespace: str, name: str, revision: str) -> RewardSignals | None:
        """Publishing must not wait for a suspicion: without an answer the last one stands."""
        try:
            return await self._services.data_plane.reward_signals(namespace, name, revision)
        except DataPlaneUnavailable:
            return None

    def decide(self, snapshot: RewardPolicySnapshot) -> Plan:
        """See core.reward_policy."""
        return decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Revisions are immutable history that rewards refer to: they stay."""
        return ()
