"""Task of a LearningAgent: its environment, observations and actions."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import LocalRef, PodOptions, Resource, Rule
from learnloop_api.kinds.language_model import LanguageModel
from learnloop_api.kinds.training.environment_conditions import MAX_STEPS, LevelName, MaxSteps, Randomised

EnvironmentName = Annotated[str, Field(min_length=1, max_length=253)]


class Actors(Resource):
    """Pods that run the agent in its environment against the served policy."""

    replicas: int = Field(default=1, ge=0, le=1000, description="How many such pods.")
    concurrency: int = Field(default=4, ge=1, le=256, description="Episodes each pod plays at the same time.")
    max_steps_per_second: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Pace of each pod over all its episodes. Left out: as fast as it can.",
    )
    pod: PodOptions = Field(default_factory=PodOptions, description="The actors' pods.")


class World(Resource):
    """How the environment is played, by actors and in training alike."""

    environment_config_map: LocalRef | None = Field(
        default=None,
        description="ConfigMap in this namespace whose keys are Python files, e.g. worlds.py for worlds:Warehouse. "
        "Mounted read-only into actors and ranks, whose code it becomes: nothing else runs it.",
    )
    level: LevelName | None = Field(default=None, description="Level of difficulty; left out, the easiest.")
    randomise: list[Randomised] = Field(
        default_factory=list, max_length=16, description="Physics that change from one episode to the next."
    )
    credit: Literal["team", "individual", "difference"] | None = Field(
        default=None,
        description="What an agent of a team earns: the team's reward (left out), its own, or the difference its "
        "presence makes.",
    )
    max_steps_per_episode: MaxSteps | None = Field(default=None, description=MAX_STEPS)


def _own_code(name: str, field: str) -> Rule:
    return Rule(
        f"!has(self.environmentConfigMap) || ({name}.contains(':'))",
        f"environmentConfigMap holds modules: name one of them as {field}: module:EntryPoint",
        f".{field}",
    )


class EnvironmentTask(World):
    """learnloop runs the agent itself, in an environment that actors and trainer play.

    With languageModel the environment is a world that is talked to, and actors ask the model through its gateway.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = (_own_code("self.name", "name"),)

    name: EnvironmentName = Field(
        description="Environment name known to the actor and trainer images, e.g. CartPole-v1, or module:EntryPoint."
    )
    success_return: float | None = Field(default=None, description="An episode with at least this return is a success.")
    actors: Actors = Field(default_factory=Actors)


class ExternalTask(World):
    """The agent runs elsewhere and uses the SDK."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        _own_code("has(self.trainingEnvironment) && self.trainingEnvironment", "trainingEnvironment"),
        Rule(
            "has(self.trainingEnvironment) || !(has(self.level) || has(self.credit) || has(self.maxStepsPerEpisode)"
            " || (has(self.randomise) && self.randomise.size() > 0))",
            "level, randomise, credit and maxStepsPerEpisode say how an environment is played, and there is none: name "
            "it as trainingEnvironment, or leave them out",
            ".trainingEnvironment",
        ),
    )

    training_environment: EnvironmentName | None = Field(
        default=None,
        description="Environment the trainer uses. Left out, bc, cql and iql-offline learn from what "
        "the agent has logged, and nothing is played; observations and the kind of actions must then be said.",
    )


class Bound(Resource):
    """The ends of one number of an action, or of several numbers that follow one another."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.low < self.high", "low must be below high: correct the bound", ".low"),
    )

    low: float = Field(description="Least value.")
    high: float = Field(description="Largest value.")
    times: int = Field(default=1, ge=1, le=1024, description="How many numbers have these ends.")


class Task(Resource):
    """Task of the agent. Exactly one of environment and external.

    What it sees and does need not be said where the environment is one of learnloop's or of Gymnasium's own.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.environment) != has(self.external)",
            "set exactly one of environment (learnloop runs the agent) and external (you run it, with the SDK)",
        ),
        Rule(
            "(has(self.actions) ? 1 : 0) + (has(self.multiDiscrete) ? 1 : 0) + (has(self.continuous) ? 1 : 0) <= 1",
            "an action has one kind: set one of actions, multiDiscrete and continuous (with choices: hybrid)",
        ),
        Rule(
            "!has(self.choices) || has(self.continuous)",
            "choices go with continuous: a hybrid action is a choice and numbers; set actions for choices alone",
            ".choices",
        ),
        Rule(
            "has(self.observations) == (has(self.actions) || has(self.multiDiscrete) || has(self.continuous))",
            "observations and the kind of actions belong together: say both, or neither for an environment known here",
            ".observations",
        ),
        Rule(
            "!has(self.languageModel) || !(has(self.observations) || has(self.actions) || has(self.multiDiscrete)"
            " || has(self.continuous) || has(self.choices))",
            "a language model speaks, it has no numbers to see and do: remove observations and the kind of actions",
            ".languageModel",
        ),
        Rule(
            "!has(self.languageModel) || !(has(self.environment) && has(self.environment.maxStepsPerEpisode)"
            " || has(self.external) && has(self.external.maxStepsPerEpisode))",
            "worlds that are talked to do not heed maxStepsPerEpisode: leave it out",
            ".languageModel",
        ),
    )

    environment: EnvironmentTask | None = None
    external: ExternalTask | None = None
    observations: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Length of the observation vector; of composed observations, flattened.",
    )
    actions: int | None = Field(default=None, ge=2, le=65536, description="Number of discrete actions.")
    multi_discrete: (
        Annotated[list[Annotated[int, Field(ge=2, le=65536)]], Field(min_length=1, max_length=32)] | None
    ) = Field(
        default=None,
        description="Several choices in one action, e.g. [3, 4]: the action is the number of their combination in "
        "row-major order, at most 4,096.",
    )
    continuous: Annotated[list[Bound], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Actions are numbers within these bounds; a member of a team chooses its own."
    )
    choices: int | None = Field(
        default=None, ge=2, le=65536, description="With continuous: number of discrete choices; each takes the numbers."
    )
    language_model: LanguageModel | None = Field(
        default=None,
        description="The agent speaks by this model, through a gateway; observations and actions are then left out.",
    )
