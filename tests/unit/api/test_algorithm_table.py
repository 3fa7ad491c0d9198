"""One line in the table of algorithms is all that the contract needs: the rest of a TrainingJob follows from it."""

from typing import get_args

import pytest

from learnloop_api.kinds.behaviour import GREEDY, SAMPLED, usual
from learnloop_api.kinds.training.algorithm_blocks import ALGORITHM_RULES, field_name
from learnloop_api.kinds.training.algorithms import ALGORITHMS, PpoParameters, _table, block
from learnloop_api.kinds.training_job import FROZEN, TrainingJobSpec, TrainingTemplate


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_of_the_table_has_its_name_block_rule_and_description_in_a_training_job(name: str) -> None:
    algorithm = TrainingTemplate.model_fields["algorithm"]
    assert name in get_args(algorithm.annotation)
    assert f"{name}: {ALGORITHMS[name].summary}." in (algorithm.description or "")
    assert get_args(TrainingTemplate.model_fields[block(name)].annotation) == (ALGORITHMS[name], type(None))
    assert any(rule.rule == f"!has(self.{field_name(name)}) || self.algorithm == '{name}'" for rule in ALGORITHM_RULES)
    assert (field_name(name), True) in FROZEN, "a run keeps its hyperparameters"


def test_a_block_goes_to_its_own_attribute_and_unknown_algorithms_are_refused() -> None:
    given = {"algorithm": "independent-dqn", "totalSteps": 1, "independentDqn": {}, "data": {"environment": "X-v1"}}
    spec = TrainingJobSpec.model_validate(given)
    assert isinstance(getattr(spec, block(spec.algorithm)), ALGORITHMS["independent-dqn"])
    with pytest.raises(ValueError, match="Input should be 'ppo', 'dqn'"):
        TrainingJobSpec.model_validate(given | {"algorithm": "toy"})


def test_two_algorithms_of_one_name_are_refused() -> None:
    class Twin(PpoParameters):
        """The same name again."""

    with pytest.raises(AssertionError, match="same name"):
        _table(PpoParameters, Twin)


@pytest.mark.parametrize(("name", "behaviour"), [("dqn", GREEDY), ("cql", GREEDY), ("ppo", SAMPLED), ("?", SAMPLED)])
def test_who_values_actions_acts_greedily(name: str, behaviour: object) -> None:
    assert usual(name, continuous=False) == behaviour
