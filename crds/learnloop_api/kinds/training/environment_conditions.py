"""How a training run plays its environment: difficulty, randomised physics, curriculum and shaped rewards."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule

LevelName = Annotated[str, Field(min_length=1, max_length=63)]


class Randomised(Resource):
    """One physical parameter, drawn anew for each training episode (domain randomisation, arXiv 1703.06907)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.low <= self.high", "low must not be above high: correct the range", ".low"),
    )

    parameter: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name of the environment's parameter, e.g. gain; a wrong one is refused with those there are."
    )
    low: float = Field(description="Least value, in the environment's own unit.")
    high: float = Field(description="Largest value.")


class ReturnThreshold(Resource):
    """What the mean return of the newest episodes at a level decides."""

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
        "Russell, 1999); for environments that have a potential, e.g. Navigation-v1 and Manipulation-v1.",
    )
    coordination_bonus: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="Weight of the cosine between what an agent does and the team's best joint action, where the "
        "environment knows one, e.g. Cooperative-v1.",
    )
