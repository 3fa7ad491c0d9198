"""Snapshot for a decision about a LearningAgent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from learnloop_api import names
from learnloop_api.kinds import learning_agent, model_deployment
from learnloop_api.wire.reward import AgentStats
from learnloop_operator.core import allowed_pods, plan, workload_network


@dataclass(frozen=True, slots=True)
class Policy:
    """The RewardPolicy the agent names."""

    exists: bool = False
    revision: str | None = None
    """The published revision."""


@dataclass(frozen=True, slots=True)
class MemoryHome:
    """The MemoryService the agent names."""

    exists: bool = False
    url: str | None = None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    name: str
    number: int
    phase: str
    finished: bool
    created_at: str
    finished_at: str | None = None
    uri: str | None = None
    sha256: str | None = None
    mean_return: float | None = None
    verdict: str = ""
    """The reason of its condition Ready."""
    notes: Mapping[str, str] | None = None
    """Annotations: what triggered it, and what had been seen then."""
    update: int | None = None
    """Newest update that was asked for; None: its rank does not stay."""
    rests: bool = False
    """All updates that were asked for are judged: its rank waits."""
    proven: bool = False
    """Its artifact has passed the gates, whatever became of a later update."""
    spec: Mapping[str, Any] | None = None
    """Live spec of a run whose rank stays."""

    @property
    def last(self) -> int:
        """Number of its newest run: each update counts as one."""
        return self.number + (self.update or 0)


@dataclass(frozen=True, slots=True)
class AgentDefaults:
    """The installation's defaults for every actor."""

    image: str
    data_url: str
    image_pull_policy: str = "IfNotPresent"
    tls: tuple[str, ...] = ()
    """Namespaces whose pods serve by TLS."""
    pods: allowed_pods.PodRules = field(default_factory=allowed_pods.PodRules)
    """Rules for the pods of actors, jobs and servers."""
    network: workload_network.WorkloadNetwork | None = None
    """Destinations that actors may call; None: the installation wants no NetworkPolicy."""
    names_are_verified: bool = False
    """The API server checks the names in annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot(plan.BaseSnapshot):
    """Input of `decide`. Equal snapshots give equal plans."""

    spec: learning_agent.LearningAgentSpec
    before: learning_agent.LearningAgentStatus
    policy: Policy
    environment_code: str = ""
    """Digest of the ConfigMap with the environment's modules; "" where the task names none, or it does not exist."""
    memory: MemoryHome | None = None
    stats: AgentStats | None = None
    stats_problem: str = ""
    """Reason why the stats are missing: the data plane does not answer."""
    jobs: tuple[TrainingRun, ...] = ()
    """Sorted by number, oldest first."""
    deployment: model_deployment.ModelDeploymentStatus | None = None
    actors: plan.KubeObject | None = None
    """Status of the actors' Deployment."""
    actors_trouble: str = ""
    """The obstacle that keeps the actors from playing; "" while they play or are on their way."""
    defaults: AgentDefaults

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations, each cut to the length that a status can hold."""
        return plan.obeyed(self.object)

    @property
    def memory_url(self) -> str:
        """Address of the agent's own MemoryService; "" for the installation's data plane."""
        return (self.memory.url or "") if self.memory else ""

    @property
    def memory_audience(self) -> str:
        """Audience of tokens for that MemoryService; "" without one."""
        own = self.spec.memory.service_ref
        return names.memory_audience(self.namespace, own.name) if own and self.memory_url else ""
