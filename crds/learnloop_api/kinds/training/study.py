"""Hyperparameter search over trials, and training that begins from another policy."""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import URI_FORMS, Digest, Resource, Rule, ShortText, Uri
from learnloop_api.kinds.training.hyperparameters import Layers

Parameter = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z][A-Za-z0-9]*$")]
Choice = Annotated[str, Field(max_length=63, pattern=r"^[\w-]+$")]


class Range(Resource):
    """Numbers from low to high."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.low < self.high", "low must be below high: correct the range", ".low"),
        Rule(
            "!self.log || self.low > 0.0", "a logarithmic range begins above 0: raise low, or set log to false", ".low"
        ),
    )

    low: float = Field(description="Least value.")
    high: float = Field(description="Largest value.")
    log: bool = Field(default=False, description="Sample the logarithm uniformly: for what spans orders of magnitude.")


class WholeRange(Resource):
    """Whole numbers from low to high."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.low < self.high", "low must be below high: correct the range", ".low"),
        Rule("!self.log || self.low > 0", "a logarithmic range begins above 0: raise low, or set log to false", ".low"),
        Rule("!self.log || self.step == 1", "a logarithmic range has no step: remove step, or log", ".step"),
    )

    low: int = Field(ge=-(2**31), le=2**31 - 1, description="Least value.")
    high: int = Field(ge=-(2**31), le=2**31 - 1, description="Largest value.")
    log: bool = Field(default=False, description="Sample the logarithm uniformly.")
    step: int = Field(default=1, ge=1, le=2**31 - 1, description="Only low, low + step and so on.")


class SearchDimension(Resource):
    """One hyperparameter that is searched: exactly one of float, int, choices and layers."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.float) ? 1 : 0) + (has(self.int) ? 1 : 0) + (has(self.choices) ? 1 : 0)"
            " + (has(self.layers) ? 1 : 0) == 1",
            "a parameter has one kind of value: set exactly one of float, int, choices and layers",
        ),
    )

    parameter: Parameter = Field(description="Hyperparameter, e.g. learningRate; the algorithm must take it.")
    float_: Range | None = Field(default=None, alias="float", description="A real number in a range.")
    int_: WholeRange | None = Field(default=None, alias="int", description="A whole number in a range.")
    choices: list[Choice] | None = Field(
        default=None,
        min_length=2,
        max_length=32,
        description='One of these words: for enums, and "true" and "false" for switches.',
        json_schema_extra={"listType": "set"},
    )
    layers: list[Annotated[Layers, Field(min_length=1, max_length=8)]] | None = Field(
        default=None,
        min_length=2,
        max_length=32,
        description="One of these architectures: widths of hidden layers, input side first.",
    )


class Pruner(Resource):
    """When a trial that does badly is stopped: trials are compared at each tenth of their steps."""

    type: Literal["median", "successive-halving", "none"] = Field(
        default="median",
        description="median: worse than the median of the others at the same point; successive-halving: not among the "
        "best third at ever more distant points (arXiv 1810.05934); none: never.",
    )
    startup_trials: int = Field(
        default=4, ge=1, le=1000, description="With median: nothing is stopped before so many trials are finished."
    )
    warmup: int = Field(default=2, ge=0, le=9, description="With median: tenths of the steps that every trial may do.")


DEFAULT_SPACE = tuple(
    SearchDimension.model_validate(dimension)
    for dimension in (
        {"parameter": "learningRate", "float": {"low": 1e-5, "high": 1e-2, "log": True}},
        {"parameter": "discount", "float": {"low": 0.9, "high": 0.999}},
        {"parameter": "epsilonEnd", "float": {"low": 0.01, "high": 0.3}},
        {"parameter": "batchSize", "int": {"low": 32, "high": 512}},
        {"parameter": "bufferSize", "int": {"low": 10_000, "high": 1_000_000, "log": True}},
        {"parameter": "hidden", "layers": [[64, 64], [128, 128], [256, 256]]},
    )
)
"""The specification's search space, of which an algorithm has what it takes."""


class StudyCost(Resource):
    """A second objective, of which less is better. The cheapest trial whose objective is within the tolerance wins."""

    measure: Literal["cpuHours", "gpuHours", "money", "seconds"] = Field(
        default="cpuHours", description="Of each trial: a figure of its status.cost, or its wall time."
    )
    tolerance: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="How far the winner may be from the best objective, as a share of best less worst of all trials.",
    )


class Study(Resource):
    """Optuna's tree-structured Parzen estimator over child TrainingJobs NAME-t0, NAME-t1 and so on."""

    trials: int = Field(ge=2, le=1000, description="Trials in all; pruned and failed ones count.")
    parallelism: int = Field(default=1, ge=1, le=100, description="Trials that run at the same time at most.")
    space: list[SearchDimension] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="What is searched; every other hyperparameter stays as the job has it. Left out: learningRate, "
        "discount, epsilonEnd, batchSize, bufferSize and hidden, as far as the algorithm takes them.",
        json_schema_extra={"listType": "map", "listMapKeys": ["parameter"]},
    )
    cost: StudyCost | None = Field(
        default=None, description="Searches for cheap trials, too; then nothing is stopped early."
    )
    objective: Literal["mean", "iqm"] = Field(
        default="mean",
        description="What is sought: this figure of the return on validation seeds, which neither training nor the "
        "proof uses.",
    )
    direction: Literal["maximize", "minimize"] = Field(default="maximize", description="Whether more is better.")
    startup_trials: int = Field(
        default=8, ge=1, le=1000, description="Trials drawn at random before the estimator takes over."
    )
    seed: int = Field(default=0, ge=0, le=2_147_483_647, description="Seed of the search.")
    pruner: Pruner = Field(default_factory=Pruner)
    max_failed_trials: int = Field(
        default=3, ge=1, le=1000, description="So many failed trials end the study: the recipe itself is wrong."
    )

    def searched(self, takes: Collection[str]) -> list[SearchDimension]:
        """The space for an algorithm that takes these hyperparameters."""
        if self.space is not None:
            return self.space
        return [dimension for dimension in DEFAULT_SPACE if dimension.parameter in takes]


class InitialPolicy(Resource):
    """The weights training begins from, instead of random ones: of the same algorithm family and architecture."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.uri) != self.serving",
            "set either uri, or serving: true for the policy that serves data.learningAgentRef now",
            ".uri",
        ),
        Rule("!has(self.sha256) || has(self.uri)", "sha256 goes with uri only: set uri, or remove sha256", ".sha256"),
        *URI_FORMS,
    )

    uri: Uri | None = Field(default=None, description="Exported policy, e.g. another job's status.artifact.uri.")
    sha256: Digest | None = Field(default=None, description="Its digest; another one is refused.")
    serving: bool = Field(
        default=False,
        description="The policy that serves data.learningAgentRef when the attempt begins; while none does, random "
        "weights.",
    )
    required: bool = Field(
        default=True,
        description="Where the policy does not fit, the run fails; false: it begins from random weights and says why.",
    )


class StudyStatus(Resource):
    """How far the search has come."""

    trials: int = Field(ge=0, description="Trials begun.")
    running: int = Field(ge=0, description="Trials at work.")
    completed: int = Field(ge=0, description="Trials with a result.")
    pruned: int = Field(ge=0, description="Trials stopped because they did badly.")
    failed: int = Field(ge=0, description="Trials without a result.")
    best_trial: ShortText | None = Field(default=None, description="TrainingJob with the best result so far.")
    best_value: float | None = Field(default=None, description="Its objective, on validation seeds.")
    best_parameters: ShortText | None = Field(default=None, description="Its hyperparameters.")
    front: list[ShortText] | None = Field(
        default=None,
        max_length=16,
        description="With cost: trials that no other one beats in both objectives, the cheapest first.",
    )
