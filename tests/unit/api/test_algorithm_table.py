"""The table of algorithms: the hyperparameters of a TrainingJob, their defaults and rules follow from it."""

from typing import get_args

import pytest
from pydantic import ValidationError

from learnloop_api.crd.definition import spec_schema
from learnloop_api.kinds.behaviour import GREEDY, SAMPLED, usual
from learnloop_api.kinds.training.algorithms import ALGORITHMS, Parameters, hyperparameters
from learnloop_api.kinds.training.recipe import Hyperparameters
from learnloop_api.kinds.training_job import FROZEN, TrainingJobSpec, TrainingTemplate

JOB = {"totalSteps": 1, "data": {"environment": "X-v1"}}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_has_its_name_description_defaults_and_rules_in_a_training_job(name: str) -> None:
    one, algorithm = ALGORITHMS[name], TrainingTemplate.model_fields["algorithm"]
    assert name in get_args(algorithm.annotation)
    assert f"{name}: {one.summary}." in (algorithm.description or "")
    assert set(one.defaults) <= set(Parameters.model_fields), "a hyperparameter without bounds"
    given = TrainingJobSpec.model_validate(JOB | {"algorithm": name}).hyperparameters
    assert one.complete(given) == hyperparameters(name)
    assert set(type(one.complete(given)).model_fields) == set(one.defaults)
    assert ("hyperparameters", False) in FROZEN, "a run keeps its hyperparameters"


def test_every_hyperparameter_has_an_algorithm_and_its_description_tells_the_defaults() -> None:
    taken = {name for one in ALGORITHMS.values() for name in one.defaults}
    assert taken == set(Parameters.model_fields)
    described = spec_schema(TrainingJobSpec)["properties"]["hyperparameters"]["properties"]
    assert described["clip"]["description"].endswith("(epsilon). Default 0.2. Taken by ppo.")
    assert "Default 0.99; ppo-lm 1.0." in described["discount"]["description"]
    assert all("default" not in field for field in described.values()), "a default depends on the algorithm"


def test_what_is_given_wins_over_the_default_and_keeps_its_bounds() -> None:
    given = Hyperparameters(epsilonEnd=0.2, hidden=[8])
    complete = ALGORITHMS["dqn"].complete(given)
    assert (complete.epsilon_end, complete.hidden, complete.batch_size) == (0.2, [8], 64)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        TrainingJobSpec.model_validate(JOB | {"algorithm": "dqn", "hyperparameters": {"epsilonEnd": 2}})


def test_foreign_hyperparameters_and_unknown_algorithms_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dqn does not take clip, embedding: it takes .*batchSize"):
        ALGORITHMS["dqn"].complete(Hyperparameters(clip=0.1, embedding=3, batch_size=4))
    with pytest.raises(ValueError, match="Input should be 'ppo', 'dqn'"):
        TrainingJobSpec.model_validate(JOB | {"algorithm": "toy"})


@pytest.mark.parametrize(("name", "behaviour"), [("dqn", GREEDY), ("cql", GREEDY), ("ppo", SAMPLED), ("?", SAMPLED)])
def test_an_algorithm_that_values_actions_acts_greedily(name: str, behaviour: object) -> None:
    assert usual(name, continuous=False) == behaviour
