"""LearningAgent: keeps one agent's loop turning."""

from typing import Annotated

from pydantic import Field

from learnloop_api.kinds.base import (
    Digest,
    LocalRef,
    PodOptions,
    Resource,
    Revision,
    ShortText,
    Status,
    Time,
    Uri,
)
from learnloop_api.kinds.model_deployment import DeploymentTemplate
from learnloop_api.kinds.training_job import TrainingTemplate


class Actors(Resource):
    """Pods that run the agent in its environment against the served policy."""

    replicas: int = Field(default=1, ge=0, le=1000)
    concurrency: int = Field(default=4, ge=1, le=256, description="episodes each pod plays at the same time")
    pod: PodOptions = Field(default_factory=PodOptions)


class EnvironmentTask(Resource):
    """learnloop runs the agent itself, in a Gymnasium environment of the actor image."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="e.g. CartPole-v1")
    success_return: float | None = Field(default=None, description="an episode with at least this return is a success")
    actors: Actors = Field(default_factory=Actors)


class ExternalTask(Resource):
    """The agent runs elsewhere and uses the SDK."""

    training_environment: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, description="environment the trainer uses; required as soon as training is set"
    )


class Task(Resource):
    """What the agent does. Exactly one of environment and external."""

    environment: EnvironmentTask | None = None
    external: ExternalTask | None = None
    observations: int = Field(ge=1, le=65536, description="length of the observation vector")
    actions: int = Field(ge=2, le=65536, description="number of discrete actions")


class Memory(Resource):
    """Whether and where the agent remembers."""

    service_ref: LocalRef | None = Field(
        default=None,
        description="a MemoryService of this namespace; left out, the installation's own data plane",
    )
    recall: int = Field(default=0, ge=0, le=100, description="memories the actors recall per episode; 0: none")


class Triggers(Resource):
    """When to train. Any of them fires; runs of one agent never overlap.

    `kubectl annotate la/NAME learnloop.dev/train=$(date +%s) --overwrite` and the NATS subject
    agent.rl.training.request.v1 always work.
    """

    episodes: int | None = Field(default=None, ge=1, description="rewarded episodes since the last run began")
    schedule: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="cron, five fields, UTC", pattern=r"^\S+(\s+\S+){4}$"
    )
    min_interval_seconds: int = Field(default=60, ge=0, le=2_592_000, description="rest between two runs")


class Training(Resource):
    """When and how to train."""

    triggers: Triggers = Field(default_factory=Triggers)
    template: TrainingTemplate
    history: int = Field(default=5, ge=1, le=100, description="finished TrainingJobs to keep")


class PinnedModel(Resource):
    """Serve exactly this model, not the newest proven one."""

    uri: Uri
    sha256: Digest


class AgentDeployment(Resource):
    """How the agent's policy is served."""

    template: DeploymentTemplate = Field(default_factory=DeploymentTemplate)
    model: PinnedModel | None = None


class LearningAgentSpec(Resource):
    """One learning agent."""

    task: Task
    reward_policy_ref: LocalRef
    memory: Memory = Field(default_factory=Memory)
    training: Training | None = None
    deployment: AgentDeployment = Field(default_factory=AgentDeployment)
    suspend: bool = False


class AgentModel(Resource):
    """The model the agent should be served with now: the newest proven one, the pinned one, or uniform."""

    uri: Uri
    sha256: Digest | None = None
    source: ShortText = Field(description="TrainingJob name, pinned, or uniform")
    mean_return: float | None = None


class LastTraining(Resource):
    """The newest run."""

    name: ShortText
    trigger: ShortText
    phase: ShortText | None = None
    at: Time
    rewarded: int | None = Field(default=None, description="rewarded episodes when it was triggered")


class LearningAgentStatus(Status):
    """The loop at a glance."""

    trajectories: int | None = None
    rewarded: int | None = None
    rewarded_since_training: int | None = None
    recent_return: float | None = None
    baseline_return: float | None = None
    success_rate: float | None = None
    reward_policy_revision: ShortText | None = None
    model: AgentModel | None = None
    last_training: LastTraining | None = None
    trainings: int | None = None
    serving_revision: Revision | None = None
    weight: ShortText | None = Field(default=None, description="canary weight while a rollout runs")
    observed_train: ShortText | None = Field(default=None, description="value of learnloop.dev/train already obeyed")
    observed_training_request: ShortText | None = None
    registered: ShortText | None = Field(default=None, description="what the data plane was told last")
