"""How a training run plays its environment: difficulty, physics, curriculum, shaping and constraints."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Digest, Resource, Rule, ShortText, Uri

LevelName = Annotated[str, Field(min_length=1, max_length=63)]
MaxSteps = Annotated[int, Field(ge=1, le=100_000)]
MAX_STEPS = "An episode is truncated after so many steps; left out, or above it, the environment's own limit holds."


class Randomised(Resource):
    """One physical parameter, drawn for each training episode (domain randomisation, arXiv 1703.06907)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.low <= self.high", "low must not be above high: correct the range", ".low"),
    )

    parameter: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name of the environment's parameter, e.g. gain; a wrong one is refused with those there are."
    )
    low: float = Field(description="Least value, in the environment's own unit.")
    high: float = Field(description="Largest value.")


class ReturnThreshold(Resource):
    """Return bounds at which a curriculum changes its level."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.demoteBelow) || self.demoteBelow < self.promoteAt",
            "demoteBelow must be below promoteAt, or the level would never rest",
            ".demoteBelow",
        ),
    )

    promote_at: float = Field(description="Mean return of an episode, unshaped, that leads on to the next level.")
    demote_below: float | None = Field(
        default=None, description="Below this mean return it goes back a level; left out: never."
    )


class Curriculum(Resource):
    """From easy to hard by the share of successful episodes, or by their returns; the level is in the checkpoint."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.promoteAt) || self.demoteBelow < self.promoteAt",
            "demoteBelow must be below promoteAt, or the level would never rest",
            ".demoteBelow",
        ),
        Rule(
            "!has(self.returns) || !has(self.promoteAt)",
            "returns and promoteAt both decide what leads on: set one of them",
            ".returns",
        ),
        Rule("self.window <= self.minEpisodes", "window must not be above minEpisodes: raise that one", ".window"),
    )

    until: LevelName | None = Field(
        default=None, description="The last level, which evaluation plays; left out, the hardest there is."
    )
    promote_at: float | None = Field(
        default=None, gt=0, le=1, description="Share of successes that leads on; left out, each level's own threshold."
    )
    demote_below: float = Field(
        default=0.05, ge=0, lt=1, description="Below this share of successes it goes back a level; 0: never."
    )
    returns: Annotated[list[ReturnThreshold], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Thresholds of each level's mean return, easiest level first, in the place of shares of successes; "
        "a level beyond the list is not left upwards.",
    )
    window: int = Field(default=50, ge=1, le=10_000, description="Newest episodes the evidence is taken over.")
    min_episodes: int = Field(
        default=100, ge=1, le=1_000_000, description="Episodes at a level, of all ranks, before it may change."
    )


class Shaping(Resource):
    """Rewards for learning only: evaluation and gates count the environment's own."""

    potential: bool = Field(
        default=False,
        description="Adds discount × potential(next) - potential(now), which changes no optimal policy (Ng, Harada & "
        "Russell, 1999); for environments that have a potential.",
    )
    coordination_bonus: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="Weight of the cosine between what an agent does and the team's best joint action, where the "
        "environment knows one.",
    )


Index = Annotated[int, Field(ge=0, le=65535)]


class When(Resource):
    """A condition on one number of the observation."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.below) || has(self.above)", "a condition needs below or above: set one of them, or both", ".below"
        ),
    )

    observation: Index = Field(description="Which number of the observation, counted from 0.")
    below: float | None = Field(default=None, description="Holds while the number is below this.")
    above: float | None = Field(default=None, description="Holds while the number is above this.")


class Constraint(Resource):
    """One limit on actions, always or only while conditions hold."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.forbid) != has(self.components)",
            "a constraint has forbid (discrete actions) or components (continuous ones): set exactly one of them",
            ".forbid",
        ),
        Rule(
            "!has(self.components) || has(self.min) || has(self.max) || has(self.maxNorm)",
            "components need a limit: set min, max or maxNorm",
            ".components",
        ),
        Rule(
            "has(self.components) || (!has(self.min) && !has(self.max) && !has(self.maxNorm))",
            "min, max and maxNorm limit components: set components, or remove them",
            ".components",
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min must not be above max: correct them",
            ".min",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(description="How the audit record calls it.")
    when: list[When] = Field(
        default_factory=list, max_length=8, description="Conditions that must all hold; none: the limit holds always."
    )
    forbid: Annotated[list[Index], Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="Discrete actions that are not taken."
    )
    components: Annotated[list[Index], Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="Which numbers of a continuous action are limited, counted from 0."
    )
    min: float | None = Field(default=None, description="Each of the components at least this.")
    max: float | None = Field(default=None, description="Each of the components at most this.")
    max_norm: float | None = Field(
        default=None, ge=0, description="Length of the vector of the components at most this, e.g. a speed."
    )


class FallbackPolicy(Resource):
    """A policy that acts where another one may not."""

    uri: Uri = Field(description="ONNX policy of the same observations and actions, without memory.")
    sha256: Digest = Field(description="Its digest; another one is refused.")


class Safety(Resource):
    """Constraints that training, evaluation and the exported policy itself obey; every intervention is counted."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.fallback) != has(self.fallbackPolicy)",
            "set exactly one of fallback (an action) and fallbackPolicy (a policy)",
            ".fallback",
        ),
    )

    constraints: Annotated[list[Constraint], Field(min_length=1, max_length=32)] = Field(
        description="Limits on actions; an action beyond them is moved to the nearest one found within."
    )
    fallback: Annotated[list[float], Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="The action where none within the limits is found, or the policy answers NaN: it must obey every "
        "constraint, whatever is observed. For discrete actions one number.",
    )
    fallback_policy: FallbackPolicy | None = Field(
        default=None,
        description="Acts, greedily and within the limits, where what the policy wants is beyond them, or NaN. It "
        "becomes part of the exported policy.",
    )


class Intervention(Resource):
    """One line of the audit record: an action that was not executed as the policy wanted."""

    timestamp: ShortText = Field(description="When, RFC 3339, UTC.")
    agent_id: ShortText = Field(description="The run, and the environment's number in it.")
    action_hash: ShortText = Field(description="SHA-256 of the action the policy wanted, float32 little-endian.")
    reward: float = Field(description="What the executed action earned.")
    q_value: float | None = Field(
        default=None, description="The policy's own estimate of the action, where it has one."
    )
    exploration_flag: bool = Field(description="Whether the policy was exploring.")
    constraints: list[ShortText] = Field(
        default_factory=list, max_length=32, description="The limits it would have broken."
    )
    fallback: bool = Field(description="Whether the fallback was executed instead of the nearest allowed action.")
