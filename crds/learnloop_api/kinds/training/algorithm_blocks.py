"""The part of a training recipe that names an algorithm and sets its hyperparameters, from the table of algorithms."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.cel_rules import Rule
from learnloop_api.kinds.training.algorithms import ALGORITHMS, block


def field_name(algorithm: str) -> str:
    """The field with an algorithm's hyperparameters, e.g. independentDqn."""
    return to_camel(block(algorithm))


def _only_with(algorithm: str) -> Rule:
    field = field_name(algorithm)
    return Rule(
        f"!has(self.{field}) || self.algorithm == '{algorithm}'",
        f"{field} goes with algorithm: {algorithm} only: remove it, or change algorithm",
        f".{field}",
    )


def _enough_environments(algorithm: str) -> Rule:
    field, default = field_name(algorithm), ALGORITHMS[algorithm].model_fields["environments"].default
    return Rule(
        f"self.algorithm != '{algorithm}'"
        f" || (has(self.{field}) ? self.{field}.environments : {default}) > self.workers",
        f"every rank steps environments of its own: {field}.environments (left out: {default}) must be at least "
        "1 + workers; raise it, or lower workers",
        ".workers",
    )


ALGORITHM_RULES: tuple[Rule, ...] = (
    *map(_only_with, ALGORITHMS),
    *(_enough_environments(name) for name, one in ALGORITHMS.items() if "environments" in one.model_fields),
)


def _fields() -> dict[str, Any]:
    names = Literal[tuple(ALGORITHMS)]  # type: ignore[valid-type]
    said = " ".join(f"{name}: {parameters.summary}." for name, parameters in ALGORITHMS.items())
    fields: dict[str, Any] = {"algorithm": (names, Field(description=said))}
    for name, parameters in ALGORITHMS.items():
        said = f"Hyperparameters, only with algorithm: {name}; left out, the defaults."
        fields[block(name)] = (parameters | None, Field(default=None, description=said))
    return fields


if TYPE_CHECKING:

    class AlgorithmBlocks(Resource):
        """An algorithm by name; its hyperparameters are the attribute `block(algorithm)`, None: the defaults."""

        algorithm: str
        cel_rules: ClassVar[tuple[Rule, ...]]

else:
    AlgorithmBlocks = create_model("AlgorithmBlocks", __base__=Resource, __module__=__name__, **_fields())
