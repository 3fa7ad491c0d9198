"""LearningAgent: keeps one agent's loop turning."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds import memory_service, model_deployment, training_job
from learnloop_api.kinds.base import (
    URI_FORMS,
    Digest,
    KubeName,
    LocalRef,
    Resource,
    Revision,
    Rule,
    ShortText,
    Status,
    Time,
    Uri,
    explained,
)
from learnloop_api.kinds.task import Task
from learnloop_api.kinds.training import recipe, study
from learnloop_api.kinds.training.algorithms import FROM_LOG, LANGUAGE, READS_LOG, REWARD_MODELS
from learnloop_api.kinds.training.evaluation import LoggedData


class Memory(Resource):
    """Whether and where the agent remembers, and how much."""

    service_ref: LocalRef | None = Field(
        default=None,
        description="A MemoryService of this namespace; left out, the installation's own data plane.",
    )
    group: KubeName | None = Field(
        default=None,
        description="Agents of this namespace with the same group may recall from one another, by `scope: group`. Left "
        "out, the agent is in none.",
    )
    recall: int = Field(default=0, ge=0, le=100, description="Memories the actors recall per episode; 0: none.")
    budget: memory_service.AgentMemoryBudget | None = Field(
        default=None,
        description="How much the agent may remember: above, what is worth least by value and freshness is forgotten, "
        "within minutes; pinned memories stay. A MemoryService keeps to the smaller of this and its agentBudget. Left "
        "out, as much as the installation or the MemoryService allows.",
    )


class Triggers(Resource):
    """When to train. Any of them fires; runs of one agent never overlap.

    `kubectl learnloop train NAME` and the NATS subject agent.rl.training.request.v1 always work.
    """

    episodes: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Rewarded episodes since the last run began."
    )
    schedule: (
        Annotated[
            str,
            Field(
                max_length=128,
                pattern=r"^\S+(\s+\S+){4}$",
                json_schema_extra=dict(explained("must be a cron line of five fields in UTC, e.g. 0 3 * * *")),
            ),
        ]
        | None
    ) = Field(default=None, description="Cron, five fields, UTC.")
    min_interval_seconds: int = Field(default=60, ge=0, le=2_592_000, description="Rest between two runs.")


class Requests(Resource):
    """Limits of agent.rl.training.request.v1. It may always ask for less than the template, and for more proof."""

    hyperparameters: list[study.SearchDimension] = Field(
        default_factory=list,
        max_length=32,
        description="Hyperparameters that a request may set, each within its range or choices; a request that names "
        "another one is refused.",
        json_schema_extra={"listType": "map", "listMapKeys": ["parameter"]},
    )


class Training(Resource):
    """When and how to train."""

    triggers: Triggers = Field(default_factory=Triggers)
    requests: Requests = Field(default_factory=Requests, description="What a training request may choose.")
    template: training_job.TrainingTemplate = Field(
        description="Spec of each TrainingJob, less its data. `kubectl explain tjob.spec` describes the fields.",
        json_schema_extra={"embedded": True},
    )
    data: LoggedData = Field(
        default_factory=LoggedData, description="What of the agent's own log each run learns from, by which rewards."
    )
    warm_start: bool = Field(
        default=True,
        description="Each run begins from the weights of the policy that serves when it begins; where that does not "
        "fit, from random ones, and the run's proof says why. The template's own initialPolicy wins.",
    )
    continuous: recipe.Continuous | None = Field(
        default=None,
        description="Keeps the rank of a run: further triggers are updates of it, in seconds. Left out, each is a run.",
    )
    history: int = Field(default=5, ge=1, le=100, description="Finished TrainingJobs to keep.")


class PinnedModel(Resource):
    """Serve exactly this model, not the newest proven one."""

    cel_rules: ClassVar[tuple[Rule, ...]] = URI_FORMS

    uri: Uri = Field(description="Address of the ONNX file, as in a ModelDeployment's spec.model.uri.")
    sha256: Digest = Field(description="Digest of the ONNX file, as sha256sum prints it.")


class AgentDeployment(Resource):
    """How the agent's policy is served."""

    template: model_deployment.DeploymentTemplate = Field(
        default_factory=model_deployment.DeploymentTemplate,
        description="Spec of the ModelDeployment, less its model. `kubectl explain mdep.spec` describes the fields.",
        json_schema_extra={"embedded": True},
    )
    model: PinnedModel | None = None


class LearningAgentSpec(Resource):
    """One learning agent."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.training) || !has(self.task.external) || has(self.task.external.trainingEnvironment)"
            f" || self.training.template.algorithm in {list(FROM_LOG)}",
            f"this algorithm plays: name the trainingEnvironment, or learn from the log alone by {', '.join(FROM_LOG)}",
            ".task.external.trainingEnvironment",
        ),
        Rule(
            "!has(self.training) || self.training.template.algorithm == 'custom'"
            f" || ({training_job.SPOKEN.replace('self.', 'self.training.template.')}) == has(self.task.languageModel)",
            f"{', '.join(LANGUAGE)} and custom train task.languageModel: set both, or neither",
            ".training.template.algorithm",
        ),
        Rule(
            f"!has(self.training) || !(self.training.template.algorithm in {list(REWARD_MODELS)})",
            f"{', '.join(REWARD_MODELS)} trains a reward model, which cannot serve users: create a TrainingJob for it",
            ".training.template.algorithm",
        ),
        Rule(
            "!has(self.training) || !(has(self.training.data.filter) || has(self.training.data.agents))"
            f" || self.training.template.algorithm in {list(READS_LOG)}",
            "filter and agents choose logged episodes, and this algorithm reads none: leave them out, or set algorithm "
            "to one of " + ", ".join(READS_LOG),
            ".training.data",
        ),
        Rule(
            "!has(self.training) || !has(self.training.template.hyperparameters.lagrangianLearningRate)"
            " || has(self.training.data.rewards) && self.training.data.rewards == 'policy'",
            "the constraints are those of the RewardPolicy: set rewards to policy, or remove lagrangianLearningRate",
            ".training.data",
        ),
        Rule(
            "!has(self.training) || !has(self.training.continuous) || !("
            + recipe.NOT_CONTINUOUS.replace("self.", "self.training.template.")
            + ") && (has(self.task.environment) || has(self.task.external.trainingEnvironment))",
            f"{recipe.CONTINUOUS_FIX}; an environment proves each update",
            ".training.continuous",
        ),
        Rule(
            "!has(self.deployment.template.serving.language) || has(self.task.languageModel)",
            "only a language model is served so: set task.languageModel, or remove serving.language",
            ".deployment.template.serving.language",
        ),
    )

    task: Task
    reward_policy_ref: LocalRef = Field(description="The RewardPolicy that turns its episodes into rewards.")
    memory: Memory = Field(default_factory=Memory)
    training: Training | None = Field(
        default=None, description="When and how to train. Left out, experience is collected and nothing is trained."
    )
    deployment: AgentDeployment = Field(default_factory=AgentDeployment)
    suspend: bool = Field(
        default=False,
        description="No new training and no new model until this is false; what is served stays served.",
    )


class AgentModel(Resource):
    """The model the agent should be served with now: the newest proven one, the pinned one, or uniform."""

    uri: Uri = Field(description="Address of the model.")
    sha256: Digest | None = Field(default=None, description="Digest of the model; absent for uniform.")
    source: ShortText = Field(description="TrainingJob name, pinned, or uniform.")
    mean_return: float | None = Field(default=None, description="Its held-out mean return, when a run proved it.")


class LastTraining(Resource):
    """The newest run."""

    name: ShortText = Field(description="Name of the TrainingJob.")
    trigger: ShortText = Field(description="What fired: episodes, schedule, annotation or request.")
    phase: ShortText | None = Field(default=None, description="Phase of the TrainingJob.")
    at: Time = Field(description="When it was created.")
    rewarded: int | None = Field(default=None, ge=0, description="Rewarded episodes when it was triggered.")


class LearningAgentStatus(Status):
    """The loop at a glance."""

    trajectories: int | None = Field(default=None, ge=0, description="Episodes recorded so far.")
    rewarded: int | None = Field(default=None, ge=0, description="Of these, how many have a reward.")
    rewarded_since_training: int | None = Field(
        default=None, ge=0, description="Rewarded episodes since the last run began."
    )
    recent_return: float | None = Field(default=None, description="Mean return of the newest episodes, at most 100.")
    baseline_return: float | None = Field(default=None, description="Mean return of the first episodes, at most 100.")
    success_rate: float | None = Field(default=None, description="Share of recent episodes that succeeded, 0 to 1.")
    reward_policy_revision: ShortText | None = Field(
        default=None, description="The RewardPolicy revision new episodes are rewarded by."
    )
    model: AgentModel | None = None
    last_training: LastTraining | None = None
    trainings: int | None = Field(default=None, ge=0, description="Runs so far; the newest TrainingJob's number.")
    serving_revision: Revision | None = Field(
        default=None, description="Stable revision of the agent's ModelDeployment."
    )
    weight: ShortText | None = Field(default=None, description="Canary weight while a rollout runs, e.g. 25%.")
    observed_train: ShortText | None = Field(default=None, description="Value of learnloop.dev/train already obeyed.")
    observed_training_request: ShortText | None = Field(
        default=None, description="Id of the agent.rl.training.request.v1 already obeyed."
    )
    refused_training_request: ShortText | None = Field(
        default=None, description="Why the newest agent.rl.training.request.v1 was refused: each field with the fix."
    )
    registered: ShortText | None = Field(default=None, description="The registration last sent to the data plane.")
