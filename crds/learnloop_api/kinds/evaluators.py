"""Evaluators: how good an episode's output is, 0 to 1. A RewardPolicy's component of type `evaluator` names one."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from learnloop_api.kinds.base import Resource, Rule

EvaluatorType = Literal[
    "exact", "fuzzy", "numeric", "json-schema", "regex", "linter", "unit-tests", "judge", "reward-model"
]
"""Names as a RewardPolicy writes them; the settings of a type are in the field of its name, in camelCase."""


class ExactMatch(Resource):
    """1 where output and expected are the same, else 0."""

    ignore_case: bool = Field(default=False, description="Upper and lower case are the same.")
    ignore_space: bool = Field(
        default=True, description="Space around a text does not count, and any run of space in it counts as one."
    )


class FuzzyMatch(Resource):
    """Similarity of two texts, 0 to 1."""

    measure: Literal["words", "characters"] = Field(
        default="words",
        description="words: harmonic mean of precision and recall of the words (F1, as SQuAD counts it). characters:"
        " 1 - edit distance / length of the longer text, of the first 4,096 characters.",
    )
    at_least: float = Field(default=0.0, ge=0, le=1, description="A lower similarity is worth 0.")


class NumericTolerance(Resource):
    """1 where the output is a number near the expected one, else 0."""

    absolute: float = Field(default=0.0, ge=0, le=1e12, description="Allowed difference.")
    relative: float = Field(
        default=1e-6, ge=0, le=1, description="Allowed difference as a share of the expected number."
    )


class JsonSchemaMatch(Resource):
    """1 where the output is JSON that the schema accepts, else 0."""

    json_schema: Annotated[str, Field(min_length=2, max_length=16_384)] = Field(
        alias="schema",
        description="A JSON Schema (draft 2020-12 unless $schema says another), as JSON text. $ref, contains, "
        "uniqueItems and unevaluated* are refused; patterns match in linear time.",
    )


class RegexMatch(Resource):
    """1 where the pattern is found in the output, else 0."""

    pattern: Annotated[str, Field(min_length=1, max_length=1024)] = Field(
        description="Regular expression, without look-around and back-references: it is matched in linear time. "
        "Anchor it with ^ and $ if it is to match the whole output; (?i) ignores case."
    )
    absent: bool = Field(default=False, description="true: 1 where it is not found.")


class Linter(Resource):
    """1 - findings per statement / tolerance, never below 0. The code is read and never run."""

    language: Literal["python"] = Field(default="python", description="ruff reads Python.")
    select: list[Annotated[str, Field(max_length=16, pattern="^[A-Z]{1,4}[0-9]{0,4}$")]] = Field(
        default_factory=lambda: ["E", "F", "W", "B", "UP", "SIM"],
        min_length=1,
        max_length=32,
        description="Rules by ruff's codes or their beginnings.",
    )
    tolerance: float = Field(default=0.2, gt=0, le=10, description="Findings per statement at which the score is 0.")


class UnitTests(Resource):
    """Share of unit tests that the code of an output passes, run in a Job of the chart's dataPlane.sandbox.

    Tests are calls of the code's functions and what they return or raise, as JSON; the code sees the calls alone.
    """

    tests: Annotated[str, Field(min_length=1, max_length=32_768)] | None = Field(
        default=None,
        description='Tests for every episode, as JSON: [{"call": "add", "args": [1, 2], "kwargs": {}, "returns": 3}, '
        '{"call": "add", "raises": "TypeError"}]. Left out, the `expected` of each episode is its tests.',
    )
    seconds: int = Field(default=10, ge=1, le=60, description="Of processor and of wall time, for all tests together.")
    memory_megabytes: int = Field(default=256, ge=64, le=2048, description="That the code may take.")


class Judge(Resource):
    """A language model (the chart's dataPlane.judge) says which of two answers is better, the output or the expected
    one, in both orders.

    1: the output is better or as good in both; 0: worse in both; 0.5: the judge's answer follows the order.
    """

    question: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        default="Which answer solves the task better: more correct, more complete, easier to use?",
        description="What the judge is asked about the two answers.",
    )


class LearnedReward(Resource):
    """A reward model that a TrainingJob with algorithm bradley-terry made of people's preferences.

    It reads the task as the question and the output as the answer. The score is the probability that people prefer it
    to a middling answer of those that the model learned from.
    """

    sha256: Annotated[str, Field(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}$")] = Field(
        description="Digest of the artifact, in this namespace: status.artifact.sha256 of the TrainingJob."
    )


SETTINGS: dict[str, str] = {
    "exact": "exact",
    "fuzzy": "fuzzy",
    "numeric": "numeric",
    "json-schema": "jsonSchema",
    "regex": "regex",
    "linter": "linter",
    "unit-tests": "unitTests",
    "judge": "judge",
    "reward-model": "rewardModel",
}
"""The field that has the settings of each type."""
REQUIRED = ("json-schema", "regex", "reward-model")
"""Types that say nothing without settings."""


def _only_its_own() -> tuple[Rule, ...]:
    rules = [
        Rule(
            f"!has(self.{field}) || self.type == '{kind}'",
            f"{field} goes with type {kind} only: remove it, or set type: {kind}",
            f".{field}",
        )
        for kind, field in SETTINGS.items()
    ]
    for kind in REQUIRED:
        field = SETTINGS[kind]
        rules.append(Rule(f"self.type != '{kind}' || has(self.{field})", f"type {kind} needs {field}", f".{field}"))
    return tuple(rules)


class Evaluator(Resource):
    """One way to score an output, with its settings."""

    cel_rules: ClassVar[tuple[Rule, ...]] = _only_its_own()

    type: EvaluatorType = Field(
        description="exact, fuzzy, numeric: the output against `expected`. json-schema, regex: the form of the output. "
        "linter: findings in the code. unit-tests: tests that the code passes, in a Job. judge: a language model "
        "compares the output with `expected`. reward-model: a model of people's preferences scores the output."
    )
    exact: ExactMatch | None = Field(default=None, description="Settings of type exact.")
    fuzzy: FuzzyMatch | None = Field(default=None, description="Settings of type fuzzy.")
    numeric: NumericTolerance | None = Field(default=None, description="Settings of type numeric.")
    json_schema: JsonSchemaMatch | None = Field(default=None, description="Settings of type json-schema.")
    regex: RegexMatch | None = Field(default=None, description="Settings of type regex.")
    linter: Linter | None = Field(default=None, description="Settings of type linter.")
    unit_tests: UnitTests | None = Field(default=None, description="Settings of type unit-tests.")
    judge: Judge | None = Field(default=None, description="Settings of type judge.")
    reward_model: LearnedReward | None = Field(default=None, description="Settings of type reward-model.")
    task_types: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default_factory=list,
        max_length=16,
        description="Episodes of these task types only; others have no measurement of it. Left out: all.",
    )

    @model_validator(mode="after")
    def _settings_fit(self) -> "Evaluator":
        for kind, field in SETTINGS.items():
            name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)
            if getattr(self, name) is not None and kind != self.type:
                raise ValueError(f"{field}: goes with type {kind}, and this is {self.type}; remove it")
            if kind == self.type and kind in REQUIRED and getattr(self, name) is None:
                raise ValueError(f"{field}: type {kind} needs it")
        return self
