"""The models as Python reads and writes them."""

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from learnloop_api.crd.printer_columns import KINDS, Kind
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.kinds.training.training_status import TrainingJobStatus
from learnloop_api.kinds.training_job import TrainingJobSpec


def policy(*weights: float, **first) -> dict:
    """A reward policy with components of these weights."""
    components = [{"name": f"c{at}", "type": "success", "weight": weight} for at, weight in enumerate(weights)]
    components[0] |= first
    return {"components": components}


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=16))
def test_shares_of_a_whole_are_accepted(parts: list[int]) -> None:
    spec = RewardPolicySpec.model_validate(policy(*(part / sum(parts) for part in parts)))
    assert len(spec.components) == len(parts)


def test_a_component_name_is_used_once() -> None:
    with pytest.raises(ValidationError, match="c1 is there twice"):
        RewardPolicySpec.model_validate(policy(0.5, 0.5, name="c1"))


@pytest.mark.parametrize("first", [{"type": "outcome"}, {"type": "success", "key": "tool_errors"}])
def test_a_key_goes_with_an_outcome(first: dict) -> None:
    with pytest.raises(ValidationError, match="set it with outcome"):
        RewardPolicySpec.model_validate(policy(1.0, **first))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_field_from_a_newer_version_does_not_stop_an_older_operator(kind: Kind) -> None:
    assert kind.status.model_validate({"somethingNew": {"a": 1}, "observedGeneration": 2}).observed_generation == 2


def test_a_spec_survives_the_way_through_the_api_server() -> None:
    spec = LearningAgentSpec.model_validate(
        {
            "task": {"environment": {"name": "CartPole-v1"}, "observations": 4, "actions": 2},
            "rewardPolicyRef": {"name": "balance"},
            "training": {"template": {"algorithm": "ppo", "totalSteps": 1000}},
        }
    )
    assert LearningAgentSpec.model_validate(spec.to_kube()) == spec
    assert "dqn" not in spec.to_kube()["training"]["template"]


def test_opaque_parts_pass_through_unchanged() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists", "somethingNew": {"deep": [1, 2]}}]
    spec = TrainingJobSpec.model_validate(
        {
            "algorithm": "ppo",
            "totalSteps": 1,
            "data": {"environment": "CartPole-v1"},
            "pod": {"tolerations": tolerations, "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}}},
        }
    )
    pod = spec.to_kube()["pod"]
    assert pod["tolerations"] == tolerations
    assert pod["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "4Gi"}


def test_names_that_camel_case_would_spoil_are_kept() -> None:
    status = TrainingJobStatus.model_validate({"queuedAt": "2026-03-01T12:00:00Z", "return": "1.0 [0.5, 1.5]"})
    assert status.to_kube() == {"queuedAt": "2026-03-01T12:00:00Z", "return": "1.0 [0.5, 1.5]", "conditions": []}


def test_defaults_in_python_are_those_in_the_schema() -> None:
    spec = ModelDeploymentSpec.model_validate({"model": {"uri": "uniform://discrete/2?observations=4"}})
    assert [step.weight for step in spec.rollout.steps] == [10, 25, 50, 100]
    assert [metric.name for metric in spec.analysis.metrics] == ["success", "errors"]
