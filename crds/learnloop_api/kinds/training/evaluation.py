"""How a trained policy is proven: held-out evaluation, suite and gates."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, Rule, ShortText, Time
from learnloop_api.kinds.reward_policy import LARGEST_REWARD
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, MOST_CHOICES

EPISODES_PER_RUN = 2**23
"""Numbers of held-out episodes that are set aside for each run of a LearningAgent: more than any run can play."""
MOST_EPISODES = 2**53 - 2**24
"""So that every number of a run is exact in JSON, of run 999,999,999 too."""


LOGGED_SHARE = 0.3


Dimension = Literal["sample-efficiency", "generalisation", "robustness", "coordination", "adaptability"]
DIMENSIONS: tuple[Dimension, ...] = (
    "sample-efficiency",
    "generalisation",
    "robustness",
    "coordination",
    "adaptability",
)
WEIGHTS: dict[Dimension, float] = {
    "sample-efficiency": 0.3,
    "generalisation": 0.2,
    "robustness": 0.2,
    "coordination": 0.2,
    "adaptability": 0.1,
}
"""Shares of the overall score; those of dimensions that were not measured go to the others in proportion."""


class Suite(Resource):
    """Each dimension plays the exported and the serving policy on held-out seeds that nothing else uses."""

    dimensions: list[Dimension] = Field(
        default_factory=lambda: list(DIMENSIONS),
        min_length=1,
        max_length=5,
        description="Dimensions to measure. sample-efficiency: the return along training. generalisation: levels "
        "that were not trained. robustness: noisy observations and perturbed physics. coordination: "
        "teams with partners that follow the serving policy. adaptability: the return after a little "
        "fine-tuning in changed conditions. One that does not apply to the environment is reported as "
        "not measured.",
        json_schema_extra={"listType": "set"},
    )
    episodes: int = Field(
        default=64, ge=8, le=1000, description="Episodes of each of the two policies under each condition."
    )
    max_seconds: int = Field(
        default=120,
        ge=5,
        le=86_400,
        description="Wall time of the whole suite; a dimension that finds no time left is reported as not measured.",
    )
    noise: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Robustness: standard deviation of the noise on each observation, relative to its own.",
    )
    perturbation: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Robustness: physical parameters are raised and lowered by this share, and this share of actions "
        "is the one before again.",
    )
    adaptation_steps: int = Field(
        default=4096, ge=1, le=10_000_000, description="Adaptability: environment steps of fine-tuning."
    )


class SuiteGate(Resource):
    """A gate on one dimension. A dimension that was not measured fails."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.minIqm) || has(self.minImprovement)",
            "a gate without a bar proves nothing: set minIqm or minImprovement",
        ),
    )

    dimension: Dimension = Field(description="The dimension the bars are for.")
    min_iqm: float | None = Field(default=None, description="Interquartile mean return at least this.")
    min_improvement: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Probability of improvement over the serving policy: lower end of its 95 % interval at least this.",
    )


SuiteGates = Annotated[
    list[SuiteGate],
    Field(
        max_length=5,
        json_schema_extra={"listType": "map", "listMapKeys": ["dimension"]},
    ),
]


class DimensionStatus(Resource):
    """One dimension in words and figures."""

    dimension: Dimension = Field(description="Which dimension.")
    measured: bool = Field(description="Whether it could be measured.")
    iqm: float | None = Field(default=None, description="Interquartile mean return under its conditions.")
    improvement: float | None = Field(
        default=None, description="Probability that its return is above the serving policy's, averaged over conditions."
    )
    message: ShortText = Field(description="The figures with their 95 % intervals, or why there are none.")


class EvaluationSuiteStatus(Resource):
    """Results of the evaluation suite."""

    overall: float | None = Field(
        default=None,
        description="Weighted mean of the dimensions' probabilities of improvement; 0.5: no better, no worse.",
    )
    improvement: float | None = Field(
        default=None, description="Probability of improvement over the serving policy in the held-out evaluation."
    )
    dimensions: list[DimensionStatus] = Field(
        default_factory=list,
        max_length=5,
        description="One entry for each dimension asked for.",
        json_schema_extra={"listType": "map", "listMapKeys": ["dimension"]},
    )


class WhileTraining(Resource):
    """Evaluation along training, on episodes of its own: neither training nor the proof plays them."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.everySteps) || !has(self.everyEpisodes)",
            "everySteps and everyEpisodes both say when: keep one of them",
            ".everyEpisodes",
        ),
    )

    every_steps: int | None = Field(
        default=None, ge=1, le=10_000_000_000, description="Environment steps of all ranks from one to the next."
    )
    every_episodes: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Training episodes from one to the next; with neither this nor everySteps, 100.",
    )
    episodes: int = Field(default=20, ge=1, le=10000, description="Episodes of each evaluation, always the same ones.")
    patience: int | None = Field(
        default=None,
        ge=1,
        le=10000,
        description="Ends the run early after so many evaluations without a better one; left out, it goes on.",
    )


class Evaluation(Resource):
    """Held-out evaluation: episodes on seeds that training never uses."""

    episodes: int = Field(default=100, ge=1, le=10000, description="Episodes for each of the two policies compared.")
    seed: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="With a number, the seed of a held-out episode. Left out: of a LearningAgent one that all its runs "
        "share, else the job's seed.",
    )
    first_episode: int | None = Field(
        default=None,
        ge=0,
        le=MOST_EPISODES,
        description=f"Number of the first held-out episode. Left out: in run N of a LearningAgent N × "
        f"{EPISODES_PER_RUN:,}, so that no two runs of an agent play the same episode, else 0.",
    )
    validation_episodes: int = Field(
        default=0,
        ge=0,
        le=10000,
        description="Episodes on further held-out seeds. A study chooses among its trials by them, so that the proof"
        " has no part in the choice. A study plays at least as many as episodes.",
    )
    while_training: WhileTraining | None = Field(
        default=None, description="Evaluates along training; left out, only at its end."
    )
    logged_share: float | None = Field(
        default=None,
        ge=0.05,
        le=0.9,
        description=f"Without an environment: share of the logged episodes that prove it; left out, {LOGGED_SHARE}. "
        "They are the same in every run of the agent, and no run learns from them.",
    )
    suite: Suite | None = Field(
        default=None, description="Measures more than the return, for the proof and its gates; left out, nothing."
    )


class TrainingGates(Resource):
    """Gates that the evaluation must pass before the model may serve.

    Without an environment the returns are discounted and estimated from logged episodes. The lower ends of the 95 %
    intervals must then pass the bars. Where the log allows no estimate, no gate passes.
    """

    min_return: float | None = Field(default=None, description="Held-out mean return at least this.")
    min_improvement: float | None = Field(
        default=None, description="Held-out mean return at least this much above the baseline policy's."
    )
    significant: bool = Field(
        default=True,
        description="The gain in return over the baseline, episode by episode, must have a 95 % interval that lies "
        "above 0. Of two equal policies one passes in at most 2.5 % of all runs. Needs 6 episodes.",
    )
    suite: SuiteGates | None = Field(default=None, description="What dimensions of evaluation.suite must show.")


TaskText = Annotated[str, Field(min_length=1, max_length=MAX_TASK)]
ModelRevision = Annotated[str, Field(min_length=1, max_length=MAX_REVISION)]


class EpisodeFilter(Resource):
    """An episode is read where it meets all that is said. Left out, every episode of the agent is."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.since) || !has(self.until) || self.since < self.until",
            "since must be before until: correct the window",
            ".since",
        ),
        Rule(
            "!has(self.maxAgeSeconds) || !has(self.since)",
            "since and maxAgeSeconds both say where the window begins: keep one of them",
            ".maxAgeSeconds",
        ),
        Rule(
            "!has(self.minReward) || !has(self.maxReward) || self.minReward <= self.maxReward",
            "minReward must not be above maxReward: correct the range",
            ".minReward",
        ),
    )

    source: Literal["postgresql", "clickhouse"] = Field(
        default="postgresql",
        description="postgresql: what the data plane still keeps itself; clickhouse: all that its warehouse keeps, "
        "where the installation has one.",
    )
    since: Time | None = Field(default=None, description="Received then or later.")
    until: Time | None = Field(default=None, description="Received before then.")
    max_age_seconds: int | None = Field(
        default=None, ge=1, le=315_360_000, description="Maximum age of an episode when the run reads it."
    )
    tasks: list[TaskText] = Field(default_factory=list, max_length=MOST_CHOICES, description="Of one of these tasks.")
    model_revisions: list[ModelRevision] = Field(
        default_factory=list, max_length=MOST_CHOICES, description="Played by one of these policy revisions."
    )
    min_reward: float | None = Field(
        default=None,
        ge=-LARGEST_REWARD,
        le=LARGEST_REWARD,
        description="With a stored reward of at least this; episodes without a reward are left out.",
    )
    max_reward: float | None = Field(
        default=None, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="With a stored reward of at most this."
    )
    success: bool | None = Field(
        default=None, description="true: only those that succeeded; false: only those that failed."
    )
    opted_in: bool = Field(
        default=False,
        description='Only those whose metadata says `opted_in: "true"`: the person agreed to learning from them. '
        "Episodes of people who opted out are never read.",
    )


class LoggedData(Resource):
    """The part of an agent's log, and the rewards, that a run learns from."""

    rewards: Literal["environment", "policy"] | None = Field(
        default=None,
        description="environment (left out): learn from the environment's own rewards. policy: from what the agent's"
        " RewardPolicy makes of the same steps, played and logged, by the revision in force when the run"
        " begins. Evaluation counts the environment's rewards either way.",
    )
    agents: Annotated[list[ObjectName], Field(min_length=1, max_length=31)] | None = Field(
        default=None,
        json_schema_extra={"listType": "set"},
        description="More LearningAgents of this namespace, which see and do the same: their logs are read, too, each "
        "in equal part.",
    )
    filter: EpisodeFilter | None = Field(
        default=None, description="Which logged episodes are learned from; left out, the newest of all."
    )
