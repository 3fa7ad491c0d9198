"""What a policy must never do: constraints on actions, and what to do instead."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule, ShortText

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


class Safety(Resource):
    """Constraints that training, evaluation and the exported policy itself obey; every intervention is counted."""

    constraints: Annotated[list[Constraint], Field(min_length=1, max_length=32)] = Field(
        description="Limits on actions; an action beyond them is moved to the nearest one found within."
    )
    fallback: Annotated[list[float], Field(min_length=1, max_length=256)] = Field(
        description="The action where none within the limits is found, or the policy answers NaN: it must obey every "
        "constraint, whatever is observed. For discrete actions one number."
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
