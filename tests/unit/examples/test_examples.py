"""Every file under examples/ says what the models understand, and nothing they would ignore."""

from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.memory_service import MemoryServiceSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.kinds.training_job import TrainingJobSpec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
SPECS = {
    "LearningAgent": LearningAgentSpec,
    "MemoryService": MemoryServiceSpec,
    "ModelDeployment": ModelDeploymentSpec,
    "RewardPolicy": RewardPolicySpec,
    "TrainingJob": TrainingJobSpec,
}
OWN = [
    pytest.param(item, id=f"{file.parent.name}-{item['kind']}")
    for file in FILES
    for item in yaml.safe_load_all(file.read_text())
    if item["apiVersion"] == names.API_VERSION
]


def lost(given, understood, path: str = "spec") -> list[str]:
    """Paths of `given` that the model did not take over."""
    if isinstance(given, dict):
        values = understood if isinstance(understood, dict) else {}
        return [
            entry
            for key, value in given.items()
            for entry in (lost(value, values[key], f"{path}.{key}") if key in values else [f"{path}.{key}"])
        ]
    if isinstance(given, list):
        pairs = zip(given, understood, strict=True)
        return [entry for place, pair in enumerate(pairs) for entry in lost(*pair, f"{path}[{place}]")]
    return []


@pytest.mark.parametrize("item", OWN)
def test_an_object_is_valid_and_every_field_of_it_is_known(item: dict) -> None:
    spec = SPECS[item["kind"]].model_validate(item["spec"])
    assert lost(item["spec"], spec.to_kube()) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_every_agent_brings_its_reward_policy(file: Path) -> None:
    items = list(yaml.safe_load_all(file.read_text()))
    policies = {item["metadata"]["name"] for item in items if item["kind"] == "RewardPolicy"}
    wanted = {item["spec"]["rewardPolicyRef"]["name"] for item in items if item["kind"] == "LearningAgent"}
    assert wanted <= policies


def test_the_quickstart_fits_a_screen_and_a_small_machine() -> None:
    text = (EXAMPLES / "quickstart" / "quickstart.yaml").read_text()
    assert len(text.splitlines()) <= 40
    agent = next(item for item in yaml.safe_load_all(text) if item["kind"] == "LearningAgent")
    spec = LearningAgentSpec.model_validate(agent["spec"])
    assert spec.training.template.workers == 2
    assert spec.training.template.gates.min_return == 400
    assert [step.weight for step in spec.deployment.template.rollout.steps] == [10, 25, 50, 100]


def test_links_between_the_argo_cd_example_and_the_repository_hold() -> None:
    for item in yaml.safe_load_all((EXAMPLES / "argocd" / "application.yaml").read_text()):
        assert (ROOT / item["spec"]["source"]["path"]).is_dir()
