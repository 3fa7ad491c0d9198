"""Snapshot for decisions about a MemoryService, and the names of its children."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from learnloop_api import names
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_api.wire.memory import budgets_config_map
from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.core.ownership import standard_labels
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.snapshot import BaseSnapshot
from learnloop_operator.core.workload_network import WorkloadNetwork
from learnloop_operator.memory_services.agent_budgets import DeliveredBudgets

PASSWORD_KEY, AUDIT_KEY = "postgres-password", "audit-key"
DATABASE = "learnloop"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServiceSnapshot(BaseSnapshot):
    """A MemoryService and its children. The operator reads no Secret: what of one cannot be used its pods say."""

    spec: MemoryServiceSpec
    images: tuple[str, str]
    """Memory service, PostgreSQL."""
    pull_policy: str
    budgets: DeliveredBudgets
    """Of the agents that name it and have one of their own."""
    operator_subject: str = ""
    tls: bool = False
    """The namespace has a certificate for its pods."""
    pod_rules: PodRules = field(default_factory=PodRules)
    """What its pods may have."""
    network: WorkloadNetwork | None = None
    """What its pods may call; None: the installation wants no NetworkPolicy."""
    fresh_password: str = ""
    """Newly drawn by gather for a database that does not exist yet; never the password in use."""
    fresh_audit_key: str = ""
    """As the password. The API server keeps the Secret that is there already: the operator may make one, read none."""
    degraded: Mapping[str, str] | None = None
    """What the running service does without, and why; None when it did not answer."""
    server: Manifest | None = None
    """Live Deployment."""
    database: Manifest | None = None
    """Live StatefulSet."""
    complaint: str | None = None
    """What the first pod that is not ready says."""

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
    def audit_name(self) -> str:
        """Secret with the key that signs the audit chain: made once by us, unless somebody put one there before."""
        return f"{self.name}-audit"

    @property
    def budgets_name(self) -> str:
        """ConfigMap with the budgets of its agents."""
        return budgets_config_map(self.name)

    @property
    def url(self) -> str:
        """Address of the service inside the cluster."""
        return f"{'https' if self.tls else 'http'}://{self.server_name}.{self.namespace}.svc:{names.PORT_DATA}"

    @property
    def replicas(self) -> int:
        """Wanted pods of the service."""
        return 0 if self.spec.suspend else self.spec.replicas

    def selector(self, component: str) -> dict[str, str]:
        """Labels that pick the pods of one component."""
        return {names.LABEL_MEMORY: self.name, names.LABEL_COMPONENT: component}

    def labels(self, component: str) -> dict[str, str]:
        """Labels of a child."""
        return standard_labels(component, {names.LABEL_MEMORY: self.name})
