"""The five kinds: names, columns, subresources. Their fields are in `learnloop_api.kinds`."""

from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api.kinds import base, learning_agent, memory_service, model_deployment, reward_policy, training_job
from learnloop_api.kinds.training.training_status import TrainingJobStatus


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones appear with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    wide: bool = False
    description: str = ""

    def to_crd(self) -> dict[str, Any]:
        """The column as an item of `additionalPrinterColumns`."""
        item: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            item["description"] = self.description
        if self.wide:
            item["priority"] = 1
        return item


@dataclass(frozen=True, slots=True)
class Kind:
    """Parts of a CustomResourceDefinition other than the schema."""

    name: str
    plural: str
    short_name: str
    description: str
    spec: type[base.Resource]
    status: type[base.Resource]
    columns: tuple[Column, ...]
    name_limit: int = 50
    """Longest metadata.name: what the operator derives from it must still be a DNS label of 63 characters."""
    scale: str | None = None
    """JSON path of the replicas that `kubectl scale` and autoscalers set."""
    selectable: tuple[str, ...] = ()
    """JSON paths that `kubectl get --field-selector` understands."""

    @property
    def singular(self) -> str:
        return self.name.lower()


# Without -o wide a line fits 120 characters, of objects of several kinds too, whose names have the kind before them.
PHASE = Column("Phase", ".status.phase")
WHY = Column("Why", ".status.brief", description="Beginning of Message.")
MESSAGE = Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True)
AGE = Column("Age", ".metadata.creationTimestamp", "date")

LEARNING_AGENT = Kind(
    name="LearningAgent",
    plural="learningagents",
    short_name="la",
    description=(
        "A LearningAgent keeps one agent's loop turning. It counts the agent's experience, and creates a"
        " TrainingJob when a trigger fires. It serves the newest proven model through a ModelDeployment "
        "of the same name."
    ),
    spec=learning_agent.LearningAgentSpec,
    status=learning_agent.LearningAgentStatus,
    columns=(
        PHASE,
        Column("Episodes", ".status.rewarded", "integer", description="Rewarded episodes so far."),
        Column("Return", ".status.recentReturn", "number", description="Mean return of the newest episodes."),
        WHY,
        AGE,
        Column("Model", ".status.model.source", wide=True, description="Where the served model comes from."),
        Column("Training", ".status.lastTraining.name", wide=True),
        Column("Weight", ".status.weight", wide=True),
        Column("Baseline", ".status.baselineReturn", "number", wide=True),
        Column("Success", ".status.successRate", "number", wide=True),
        Column("Rewards", ".spec.rewardPolicyRef.name", wide=True),
        Column("Revision", ".status.servingRevision", wide=True),
        MESSAGE,
    ),
    name_limit=40,  # it names TrainingJobs NAME-<number>
    selectable=(".spec.rewardPolicyRef.name", ".spec.suspend"),
)
TRAINING_JOB = Kind(
    name="TrainingJob",
    plural="trainingjobs",
    short_name="tjob",
    description=(
        "A TrainingJob is one training run: a gang of one master and any number of workers. The "
        "run has checkpoints, a held-out evaluation against the serving policy, and a proof of "
        "the exported model. It is Trained when the proof is durable, and Validated when the "
        "gates passed. Its recipe is immutable."
    ),
    spec=training_job.TrainingJobSpec,
    status=TrainingJobStatus,
    columns=(
        PHASE,
        Column("%", ".status.progress", description="Share of the steps done."),
        Column("Return", ".status.return", description="Mean return with its 95 % interval."),
        WHY,
        AGE,
        Column("Step", ".status.step", "integer", wide=True, description="Environment steps done."),
        Column("ETA", ".status.eta", wide=True, description="Time left at the current speed."),
        Column("Algorithm", ".spec.algorithm", wide=True),
        Column("Workers", ".spec.workers", "integer", wide=True),
        Column("Backend", ".status.backend", wide=True, description="What runs its ranks."),
        Column("Steps/s", ".status.stepsPerSecond", "number", wide=True),
        Column("Attempts", ".status.attempts", "integer", wide=True),
        Column("Update", ".status.update", "integer", wide=True, description="Newest update of a rank that stays."),
        Column("Best", ".status.study.bestTrial", wide=True, description="Best trial of its study."),
        Column("Artifact", ".status.artifact.sha256", wide=True),
        MESSAGE,
    ),
    selectable=(".spec.algorithm", ".spec.data.learningAgentRef.name", ".spec.suspend"),
)
REWARD_POLICY = Kind(
    name="RewardPolicy",
    plural="rewardpolicies",
    short_name="rp",
    description=(
        "A RewardPolicy says how an episode becomes a number: weighted components, then normalisation. Every change "
        "is published as a new immutable revision, and every reward names the revision it was computed by."
    ),
    spec=reward_policy.RewardPolicySpec,
    status=reward_policy.RewardPolicyStatus,
    columns=(
        PHASE,
        Column("Revision", ".status.revision"),
        Column("Agents", ".status.agents", "integer", description="LearningAgents that use it."),
        WHY,
        AGE,
        Column("Components", ".spec.components[*].name", wide=True),
        Column("Dry-Run", ".status.dryRun.correlation", "number", wide=True, description="Its rank correlation."),
        Column("Published", ".status.publishedAt", "date", wide=True),
        Column(
            "Hacking",
            '.status.conditions[?(@.type=="RewardHackingSuspected")].reason',
            wide=True,
            description="The sign of reward hacking that was found, or that none was.",
        ),
        Column(
            "Bias",
            '.status.conditions[?(@.type=="BiasSuspected")].reason',
            wide=True,
            description="What the bias check found, or that it found nothing.",
        ),
        MESSAGE,
    ),
)
MODEL_DEPLOYMENT = Kind(
    name="ModelDeployment",
    plural="modeldeployments",
    short_name="mdep",
    description=(
        "A ModelDeployment serves a policy and rolls a new one out in steps. Each step needs evidence; without it the "
        "weight holds. A canary that is worse is rolled back and stays blocked, with the reason in status."
    ),
    spec=model_deployment.ModelDeploymentSpec,
    status=model_deployment.ModelDeploymentStatus,
    columns=(
        PHASE,
        Column("Weight", ".status.weight", "integer", description="Percent of new episodes for the canary."),
        Column("Canary", ".status.canary.revision"),
        WHY,
        AGE,
        Column("Stable", ".status.stable.revision", wide=True),
        Column("Step", ".status.stepText", wide=True, description="Step of the rollout, e.g. 2/4."),
        Column("Return", ".status.stable.meanReturn", "number", wide=True, description="Mean return of stable."),
        Column("Canary return", ".status.canary.meanReturn", "number", wide=True),
        Column("Episodes", ".status.canary.episodes", "integer", wide=True, description="Finished canary episodes."),
        Column("Blocked", ".status.blockedRevision.revision", wide=True),
        Column("Winner", ".status.experiment.winner", wide=True, description="Arm that won the last experiment."),
        Column("Mode", ".spec.routing.mode", wide=True),
        MESSAGE,
    ),
    scale=".spec.serving.replicas",
    selectable=(".spec.model.learningAgentRef.name", ".spec.routing.mode", ".spec.suspend"),
)
MEMORY_SERVICE = Kind(
    name="MemoryService",
    plural="memoryservices",
    short_name="memsvc",
    description=(
        "A MemoryService is a namespace's own memory and experience service: PostgreSQL with pgvector, run by "
        "learnloop on a volume or by you, and the pods in front of it."
    ),
    spec=memory_service.MemoryServiceSpec,
    status=memory_service.MemoryServiceStatus,
    columns=(
        PHASE,
        Column("Ready", ".status.readyReplicas", "integer", description="Pods that answer."),
        Column("Engine", ".spec.engine"),
        WHY,
        AGE,
        Column("URL", ".status.url", wide=True),
        Column(
            "Retention",
            ".spec.retentionDays",
            "integer",
            wide=True,
            description="Days episodes are kept, and what was made of them.",
        ),
        Column("Size", ".spec.storage.size", wide=True),
        MESSAGE,
    ),
    name_limit=40,  # it names NAME-postgres-0 and the like
    scale=".spec.replicas",
)

KINDS = (LEARNING_AGENT, TRAINING_JOB, REWARD_POLICY, MODEL_DEPLOYMENT, MEMORY_SERVICE)
