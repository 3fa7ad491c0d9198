"""RewardPolicy: gather, decide."""

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.adapters.kinds import LEARNING_AGENT, REWARD_POLICY, ResourceKind
from learnloop_operator.controllers.services import Services
from learnloop_operator.controllers.specs import read_spec
from learnloop_operator.core.plan import Call, Plan
from learnloop_operator.core.reward_policy import RewardWorld, decide


class RewardPolicyController:
    """Publishes revisions to the data plane."""

    kind: ResourceKind = REWARD_POLICY

    def __init__(self, services: Services) -> None:
        self._services = services

    async def gather(self, namespace: str, name: str) -> RewardWorld | None:
        """The policy and the agents that name it."""
        live = await self._services.kube.find(REWARD_POLICY, namespace, name)
        if live is None:
            return None
        live = {"apiVersion": REWARD_POLICY.api_version, "kind": REWARD_POLICY.kind, **live}
        spec = read_spec(RewardPolicySpec, live)
        agents = await self._services.kube.list(LEARNING_AGENT, namespace)
        using = sum(((agent.get("spec") or {}).get("rewardPolicyRef") or {}).get("name") == name for agent in agents)
        return RewardWorld(now=self._services.clock(), object=live, spec=spec, agents=using)

    def decide(self, snapshot: RewardWorld) -> Plan:
        """See core.reward_policy."""
        return decide(snapshot)

    def gone(self, namespace: str, name: str) -> tuple[Call, ...]:
        """Revisions are immutable history that rewards refer to: they stay."""
        return ()
