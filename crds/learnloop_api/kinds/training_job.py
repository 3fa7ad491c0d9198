"""TrainingJob: one training run, from a gang of ranks to a proven artifact."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import HttpUrl, KubeName, LocalRef, ObjectName, PodOptions, Resource, Rule, immutable
from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.kinds.language_model import LanguageModel
from learnloop_api.kinds.training.algorithms import FROM_LOG, LANGUAGE, READS_LOG
from learnloop_api.kinds.training.environment_conditions import (
    MAX_STEPS,
    Curriculum,
    LevelName,
    MaxSteps,
    Randomised,
    Safety,
    Shaping,
)
from learnloop_api.kinds.training.evaluation import Evaluation, LoggedData, TrainingGates
from learnloop_api.kinds.training.recipe import BY_SB3, CONTINUOUS_FIX, FOREIGN, NOT_CONTINUOUS, ContinuousRun, Recipe
from learnloop_api.kinds.training.study import InitialPolicy, Study
from learnloop_api.uniform_policy import COARSE


class TensorBoard(Resource):
    """Event files that `tensorboard --logdir` reads."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.directory.startsWith('/')",
            "directory must be a path from the root, where pod.volumeMounts has mounted a volume",
            ".directory",
        ),
    )

    directory: Annotated[str, Field(min_length=2, max_length=1024)] = Field(
        description="Directory in rank 0's pod, on a volume of pod.volumes; a run writes to the folder of its name."
    )


class MlFlow(Resource):
    """A run on an MLflow 2 or 3 tracking server."""

    tracking_uri: HttpUrl = Field(
        description="Address of the tracking server, e.g. http://mlflow.mlops:5000. Its user comes from a Secret, as "
        "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, in pod.env."
    )
    experiment: Annotated[str, Field(min_length=1, max_length=250)] = Field(
        default="learnloop", description="Name of the experiment; made when there is none."
    )


class Tracking(Resource):
    """Curves for other tools. What cannot be written is left out with a warning: training never waits for it."""

    tensorboard: TensorBoard | None = Field(default=None, description="Left out, no event files.")
    mlflow: MlFlow | None = Field(
        default=None, description="Left out, no MLflow run, unless pod.env sets MLFLOW_TRACKING_URI."
    )


class Queue(Resource):
    """A queue of Kueue (kueue.x-k8s.io). It alone decides when the gang runs, and may preempt it."""

    name: ObjectName = Field(description="LocalQueue in this namespace.")
    priority_class: KubeName | None = Field(
        default=None, description="WorkloadPriorityClass of the run; left out, that of its pods."
    )


class TrainingData(LoggedData):
    """The source of a run's experience."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.environment) != has(self.spaces)",
            "set exactly one of environment (it is played) and spaces (logged experience is all there is)",
        ),
        Rule(
            "!has(self.environmentConfigMap) || (has(self.environment) && self.environment.contains(':'))",
            "environmentConfigMap holds modules: name one of them as environment: module:EntryPoint",
            ".environment",
        ),
        Rule(
            "has(self.environment)"
            " || !(has(self.level) || has(self.credit) || self.randomise.size() > 0 || has(self.maxStepsPerEpisode))",
            "level, randomise, credit and maxStepsPerEpisode say how an environment is played: name it as environment, "
            "or leave them out",
            ".spaces",
        ),
        Rule(
            "!has(self.rewards) || self.rewards == 'environment' || has(self.learningAgentRef)",
            "rewards: policy are those of an agent's RewardPolicy: name the agent as learningAgentRef",
            ".rewards",
        ),
        Rule(
            "!(has(self.filter) || has(self.agents)) || has(self.learningAgentRef)",
            "filter and agents choose what joins an agent's log: name the agent as learningAgentRef",
            ".learningAgentRef",
        ),
        Rule(
            "!(has(self.languageModel) && has(self.maxStepsPerEpisode))",
            "worlds that are talked to do not heed maxStepsPerEpisode: leave it out",
            ".maxStepsPerEpisode",
        ),
    )

    environment: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None,
        description="Environment name known to the trainer image, e.g. CartPole-v1, or module:EntryPoint. Left out, "
        "there is none: the run learns from logged experience alone, by bc, cql or iql-offline, and "
        "is proven by off-policy evaluation.",
    )
    spaces: Annotated[str, Field(max_length=2048, pattern=COARSE)] | None = Field(
        default=None,
        description="Without an environment: what is seen and done, as the address of the uniform policy, e.g. "
        "uniform://discrete/2?observations=4.",
    )
    environment_config_map: LocalRef | None = Field(
        default=None,
        description="ConfigMap in this namespace whose keys are Python files, e.g. worlds.py for environment: "
        "worlds:Warehouse. Mounted read-only into the ranks, whose code it becomes: nothing else runs it. Make it "
        "immutable, so that a restart trains on what the run began with; its digest goes into the proof.",
    )
    level: LevelName | None = Field(
        default=None, description="Level of difficulty, or where a curriculum begins; left out, the easiest."
    )
    randomise: list[Randomised] = Field(
        default_factory=list,
        max_length=16,
        description="Physics that change from one training episode to the next; evaluation plays the nominal ones.",
    )
    credit: Literal["team", "individual", "difference"] | None = Field(
        default=None,
        description="What an agent of a team learns from: the team's reward (left out), its own, or the difference its "
        "presence makes; evaluation counts the team's reward.",
    )
    max_steps_per_episode: MaxSteps | None = Field(default=None, description=MAX_STEPS)
    success_return: float | None = Field(
        default=None,
        description="An episode with at least this return is a success, where the environment does not say itself; "
        "only rewards: policy asks.",
    )
    learning_agent_ref: LocalRef | None = Field(
        default=None,
        description="Agent whose recorded observations verify the exported policy, and from whose logged episodes bc, "
        "cql, iql-offline, dqn, sac and the algorithms for language models learn.",
    )
    language_model: LanguageModel | None = Field(
        default=None,
        description="What sft, dpo, rloo, grpo, ppo-lm and bradley-terry train, and custom where it is set.",
    )

    @property
    def world(self) -> str:
        """Name of the run's world in proofs and messages: its environment, else its spaces."""
        return self.environment or self.spaces or ""


class Checkpointing(Resource):
    """How much work a crash may cost."""

    every_seconds: int = Field(
        default=1,
        ge=1,
        le=3600,
        description="Seconds between two durable checkpoints; more where a large state would take over 1.5 % of time.",
    )


class Export(Resource):
    """The trained policy as a file: ONNX, which is what policy servers load, and what goes with it."""

    behaviour: Behaviour | None = Field(
        default=None,
        description="How the policy acts, in the evaluation that the gates read and wherever it is served. Left out: "
        "sampled for choices of ppo, bc and iql-offline, greedy for everything else.",
    )

    formats: list[Literal["torchscript"]] = Field(
        default_factory=list,
        max_length=1,
        description="torchscript: the policy as TorchScript too, which must "
        "agree with the trained network on at least 10,000 observations, or the run fails and nothing is stored.",
    )
    policy: Literal["best", "last"] | None = Field(
        default=None,
        description="best: the policy with the best return in evaluation.whileTraining; last (left out): the one that "
        "training ends with.",
    )


class TrainingPod(PodOptions):
    """Settings of the ranks' pods."""

    command: list[Annotated[str, Field(max_length=4096)]] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="engine image: the program in image, with its arguments; docs/reference/engines.md says what it "
        "gets and hands in. The operator's own image proves what it has trained.",
    )


SPOKEN = f"self.algorithm in [{', '.join(repr(name) for name in LANGUAGE)}]"
"""CEL: the algorithm trains a language model."""
OF_NUMBERS = ("curriculum", "shaping", "safety", "study")
"""Fields of TrainingTemplate that say nothing to a language model."""
OF_OWN = ("curriculum", "shaping", "safety", "study", "evaluation.suite", "evaluation.whileTraining")
"""Fields that learnloop's own learners alone know."""


class TrainingTemplate(Recipe):
    """Everything about a run but its data: what a LearningAgent repeats for each new job."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.backend != 'job' || self.workers == 0",
            "a Job runs one rank: set workers to 0, or choose another backend",
            ".backend",
        ),
        Rule(
            "!has(self.gates.suite) || self.gates.suite.all(gate, has(self.evaluation.suite)"
            " && self.evaluation.suite.dimensions.exists(measured, measured == gate.dimension))",
            "a gate needs its dimension measured: add it to evaluation.suite.dimensions, or remove the gate",
            ".gates.suite",
        ),
        Rule(
            "!has(self.export.policy) || self.export.policy == 'last' || has(self.evaluation.whileTraining)",
            "the best policy is found along training: set evaluation.whileTraining, or export.policy to last",
            ".export.policy",
        ),
        Rule(
            f"!({SPOKEN}) || !({' || '.join(f'has(self.{name})' for name in OF_NUMBERS)}"
            " || has(self.evaluation.suite) || has(self.evaluation.whileTraining)"
            " || self.export.formats.size() > 0 || has(self.export.behaviour))",
            f"{', '.join(OF_NUMBERS)}, evaluation.suite, export.formats and export.behaviour are for policies of "
            "numbers, as is evaluation.whileTraining: remove them, or choose another algorithm",
            ".algorithm",
        ),
        Rule(
            f"!{FOREIGN} || !({' || '.join(f'has(self.{name})' for name in OF_OWN)} || self.export.formats.size() > 0"
            " || has(self.initialPolicy) && !(has(self.engine) && self.engine == 'trl'))",
            f"{', '.join(OF_OWN)}, initialPolicy and export.formats are engine own's: remove them, or leave engine "
            "out and choose an algorithm of own; trl has initialPolicy, too",
            ".engine",
        ),
        Rule(
            f"!{BY_SB3} || self.workers == 0",
            "engine sb3 trains in one process: set workers to 0, or leave engine out for an algorithm of engine own",
            ".workers",
        ),
        Rule(
            "(self.algorithm == 'custom') == has(self.pod.command)"
            " && (self.algorithm != 'custom' || has(self.pod.image))",
            "custom is what pod.command in pod.image trains: set all three, or remove pod.command",
            ".pod.command",
        ),
    )

    total_steps: int = Field(ge=1, le=10_000_000_000, description="Environment steps of all ranks together.")
    seed: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="Seed of everything random in a run. Left out, each run of a LearningAgent has one of its own.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Worker pods in addition to the master; ranks = 1 + workers. May be changed during the run.",
    )
    backend: Literal["auto", "pytorchjob", "trainjob", "job", "rayjob"] = Field(
        default="auto",
        description="What runs the ranks. pytorchjob: Kubeflow training operator v1; trainjob: Kubeflow Trainer v2; "
        "job: a plain Job of one rank, which needs no operator. auto: the first of these that the "
        "cluster has and that can run this. rayjob: KubeRay, for engine image.",
    )
    queue: Queue | None = Field(
        default=None, description="Waits for its turn in a queue of Kueue; if omitted, it begins immediately."
    )
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    gates: TrainingGates = Field(default_factory=TrainingGates)
    export: Export = Field(default_factory=Export)
    curriculum: Curriculum | None = Field(
        default=None, description="Begins at data.level and goes on to harder levels; left out, one level throughout."
    )
    shaping: Shaping | None = Field(default=None, description="Additional rewards for learning; left out, none.")
    safety: Safety | None = Field(
        default=None,
        description="What the policy must never do, in training, evaluation and serving; left out, nothing.",
    )
    tracking: Tracking | None = Field(
        default=None, description="Curves for TensorBoard and MLflow; left out, only heartbeats."
    )
    initial_policy: InitialPolicy | None = Field(
        default=None, description="Begins from the weights of another policy (transfer); left out, from random ones."
    )
    study: Study | None = Field(
        default=None,
        description="Searches for the best hyperparameters: the trials are TrainingJobs of their own, and the best "
        "one's artifact becomes this job's; left out, one run.",
    )
    max_attempts: int = Field(default=4, ge=1, le=100, description="Starts of the whole gang, the first one included.")
    stall_seconds: int = Field(default=120, ge=10, le=86400, description="No heartbeat for so long: restart the gang.")
    deadline_seconds: int | None = Field(
        default=None, ge=1, le=31_536_000, description="Give up after this much wall time; left out, never."
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None, ge=0, le=31_536_000, description="Delete the gang's object and its pods this long after the end."
    )
    pod: TrainingPod = Field(default_factory=TrainingPod, description="The ranks' pods; here GPUs are asked for.")


# Field of TrainingJobSpec that never changes → whether it may be left out.
FROZEN = (
    ("algorithm", False),
    ("engine", True),
    ("settings", True),
    ("hyperparameters", False),
    ("totalSteps", False),
    ("seed", False),
    ("backend", False),
    ("queue", True),
    ("checkpoint", False),
    ("evaluation", False),
    ("gates", False),
    ("export", False),
    ("curriculum", True),
    ("shaping", True),
    ("safety", True),
    ("tracking", True),
    ("initialPolicy", True),
    ("study", True),
    ("maxAttempts", False),
    ("stallSeconds", False),
    ("deadlineSeconds", True),
    ("pod", False),
    ("data", False),
)


class TrainingJobSpec(TrainingTemplate):
    """One run. All but suspend, workers, continuous and ttlSecondsAfterFinished is immutable: a
    result belongs to one recipe."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        *(
            rule
            for field, optional in FROZEN
            for rule in immutable(field, "create a new TrainingJob", optional=optional)
        ),
        Rule(
            f"self.algorithm == 'custom' || ({SPOKEN}) == has(self.data.languageModel)",
            f"{', '.join(LANGUAGE)} and custom train data.languageModel: set both, or neither",
            ".data.languageModel",
        ),
        Rule(
            f"has(self.data.environment) || self.algorithm in {list(FROM_LOG)}",
            f"without data.environment nothing is played: name one, or set algorithm to one of {', '.join(FROM_LOG)}",
            ".algorithm",
        ),
        Rule(
            f"!(has(self.data.filter) || has(self.data.agents)) || self.algorithm in {list(READS_LOG)}",
            "filter and agents choose logged episodes, and this algorithm reads none: leave them out, or set algorithm "
            "to one of " + ", ".join(READS_LOG),
            ".data",
        ),
        Rule(
            "!has(self.hyperparameters.lagrangianLearningRate)"
            " || has(self.data.rewards) && self.data.rewards == 'policy'",
            "the constraints are those of a RewardPolicy: set data.rewards to policy, or remove lagrangianLearningRate",
            ".data",
        ),
        Rule(
            "has(self.data.environment) || !(has(self.curriculum) || has(self.shaping) || has(self.study)"
            " || has(self.evaluation.suite) || has(self.evaluation.whileTraining))",
            "curriculum, shaping, study and evaluation.suite play an environment, as evaluation.whileTraining does: "
            "name it as data.environment, or leave them out",
            ".data",
        ),
        Rule(
            f"!has(self.continuous) || !({NOT_CONTINUOUS}) && has(self.data.environment)",
            f"{CONTINUOUS_FIX}; data.environment proves each update",
            ".continuous",
        ),
    )

    seed: int = Field(default=0, ge=0, le=2_147_483_647, description="Seed of everything random in the run.")
    data: TrainingData
    continuous: ContinuousRun | None = Field(
        default=None, description="The rank stays after the run and makes updates; removed, the run ends."
    )
    suspend: bool = Field(
        default=False, description="Stops the pods and keeps the newest checkpoint; false resumes from it."
    )
