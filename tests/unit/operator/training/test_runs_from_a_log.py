"""A hand-made run that learns from a log alone: what its pod would refuse is refused before there is one."""

from typing import Any

import pytest

from learnloop_api.kinds.training.algorithms import ALGORITHMS, FROM_LOG
from testing.training.training_builders import condition, plan, reason, spec, world

KINDS = {
    "discrete": "uniform://discrete/2?observations=4",
    "continuous": "uniform://continuous/-1..1*2?observations=3",
    "hybrid": "uniform://hybrid/3/0..1?observations=6",
}
UNGATED: dict[str, Any] = {"gates": {"significant": False}}


def acts(name: str) -> tuple[str, ...]:
    return ALGORITHMS[name].acts


@pytest.mark.parametrize("algorithm", FROM_LOG)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_begins_only_with_actions_that_its_algorithm_learns(kind: str, algorithm: str) -> None:
    asked = spec(algorithm=algorithm, data={"spaces": KINDS[kind]}, **UNGATED)
    made = plan(world(spec=asked))
    if kind in acts(algorithm):
        assert made.apply
        return
    assert not made.apply
    assert (made.status["phase"], reason(made)) == ("Failed", "ConfigurationError")
    said = condition(made, "Ready")["message"]
    assert said.startswith(f"spec.algorithm: {algorithm} learns ")
    assert f"those of spec.data.spaces are {kind}; set it to " in said


def test_a_policy_that_its_log_cannot_judge_is_refused() -> None:
    made = plan(world(spec=spec(algorithm="iql-offline", data={"spaces": KINDS["continuous"]})))
    assert not made.apply
    assert condition(made, "Ready")["message"].startswith("spec.export.behaviour.kind: a policy that is greedy has no")


def test_spaces_that_the_schema_lets_through_are_refused_with_the_fix() -> None:
    said = "uniform://continuous/2..1?observations=3"
    made = plan(world(spec=spec(algorithm="cql-sac", data={"spaces": said})))
    assert not made.apply
    assert condition(made, "Ready")["message"].startswith(f"spec.data.spaces: {said}: 2..1 is no range")


def test_a_run_that_has_begun_is_left_to_its_pod() -> None:
    asked = spec(algorithm="cql", data={"spaces": KINDS["continuous"]})
    assert reason(plan(world({"attempts": 1}, spec=asked))) != "ConfigurationError"
