"""Snapshot for decisions about a MemoryService, the names of its children, and the budgets of its agents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.kinds import learning_agent, memory_service
from learnloop_api.wire.memory_budget import AgentMemorySettings, budgets_config_map
from learnloop_operator.core import allowed_pods, plan, workload_network


def budgets_of(service: str, agents: Iterable[plan.KubeObject]) -> dict[str, AgentMemorySettings]:
    """Of these LearningAgents the budgets and groups of those that name the MemoryService, by name.

    One that this version cannot read is left out, which makes no agent forget more; its own status says what is wrong.
    """
    result = {str(item["metadata"]["name"]): _budget(service, item) for item in agents}
    return {name: budget for name, budget in result.items() if budget is not None}


def _budget(service: str, agent: plan.KubeObject) -> AgentMemorySettings | None:
    text = (agent.get("spec") or {}).get("memory") or {}
    if not (text.get("budget") or text.get("group")) or (text.get("serviceRef") or {}).get("name") != service:
        return None
    try:
        memory = learning_agent.Memory.model_validate(text)
    except ValidationError:
        return None
    limits = memory.budget.limits().model_dump() if memory.budget else {}
    return AgentMemorySettings(**limits, group=memory.group)


def budgets_json(namespace: str, budgets: Mapping[str, AgentMemorySettings]) -> str:
    """The file that the service's pods read. Equal agents give equal text."""
    agents = {name: item.model_dump(exclude_none=True, exclude_defaults=True) for name, item in budgets.items()}
    return plan.canonical({"namespace": namespace, "agents": agents})


PASSWORD_KEY = "postgres-password"
DATABASE = "learnloop"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServiceSnapshot(plan.BaseSnapshot):
    """A MemoryService and its children. The operator reads no Secret: what of one cannot be used its pods say."""

    spec: memory_service.MemoryServiceSpec
    images: tuple[str, str]
    """Memory service, PostgreSQL."""
    pull_policy: str
    budgets: str
    """Budgets and groups of the agents that name it, as `budgets.json`."""
    operator_subject: str = ""
    tls: bool = False
    """The namespace has a certificate for its pods."""
    pod_rules: allowed_pods.PodRules = field(default_factory=allowed_pods.PodRules)
    """Rules for its pods."""
    network: workload_network.WorkloadNetwork | None = None
    """Destinations that its pods may call; None: the installation wants no NetworkPolicy."""
    fresh_password: str = ""
    """Newly drawn by gather for a database that does not exist yet; never the password in use."""
    server: plan.KubeObject | None = None
    """Live Deployment."""
    database: plan.KubeObject | None = None
    """Live StatefulSet."""
    complaint: str | None = None
    """The message of the first pod that is not ready."""

    @property
    def server_name(self) -> str:
        """Deployment, Service and ServiceAccount of the memory service."""
        return f"{self.name}-memory"

    @property
    def database_name(self) -> str:
        """StatefulSet and Service of PostgreSQL; with TLS its ConfigMap, too."""
        return f"{self.name}-postgres"

    @property
    def credentials_name(self) -> str:
        """Secret made once by us."""
        return f"{self.name}-postgres"

    @property
    def budgets_name(self) -> str:
        return budgets_config_map(self.name)

    @property
    def url(self) -> str:
        """Address of the service inside the cluster."""
        return f"{'https' if self.tls else 'http'}://{self.server_name}.{self.namespace}.svc:{names.PORT_DATA}"

    @property
    def replicas(self) -> int:
        return 0 if self.spec.suspend else self.spec.replicas

    def selector(self, component: str) -> dict[str, str]:
        return {names.LABEL_MEMORY: self.name, names.LABEL_COMPONENT: component}

    def labels(self, component: str) -> dict[str, str]:
        return plan.standard_labels(component, {names.LABEL_MEMORY: self.name})
