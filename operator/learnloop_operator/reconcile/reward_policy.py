"""RewardPolicy: gather, decide."""

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.kube.kinds import LEARNING_AGENT, REWARD_POLICY, ResourceKind
from learnloop_operator.reconcile.work_queue import Services, answer, read_spec
from learnloop_operator.reward_revisions import (
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
        live = await self._services.kube.find(REWARD_POLICY, namespace, name)
        if live is None:
            return None
        spec = read_spec(RewardPolicySpec, live)
        agents = await self._services.kube.list(LEARNING_AGENT, namespace)
        using = sum(((agent.get("spec") or {}).get("rewardPolicyRef") or {}).get("name") == name for agent in agents)
        status = live.get("status") or {}
        revision = str(status.get("revision") or "") if spec.dry_run else content_revision(spec)
        # Publishing must not wait for a suspicion: without an answer the last one stands.
        data, signals, tried, bias = self._services.data_plane, None, None, None
        if using and revision:
            signals, _ = await answer(data.reward_signals(namespace, name, revision))
        if needs_dry_run(spec, status):
            tried, _ = await answer(data.dry_run(namespace, content(spec), DRY_RUN_EPISODES))
        if spec.bias:
            bias, _ = await answer(data.reward_bias(namespace, content_with_bias(spec), name))
        return RewardPolicySnapshot(
            now=self._services.clock(),
            object=live,
            spec=spec,
            agents=using,
            signals=signals,
            dry_run=tried,
            bias=bias,
        )

    def decide(self, snapshot: RewardPolicySnapshot) -> Plan:
        return decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Revisions are immutable history that rewards refer to: they stay."""
        return ()
