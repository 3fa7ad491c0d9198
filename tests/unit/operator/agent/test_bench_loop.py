"""The bench of the loop: its agents are good objects."""

from typing import Any

import pytest
import yaml

from bench.loop.__main__ import AGENTS, COMPLETE, HALF_LENGTHS, document
from bench.loop.external_agent import OF_MANY, deployment
from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_operator.agents.agent_children import actors, training_job
from learnloop_operator.agents.triggers import Trigger

from .test_learning_agent import world

KINDS: dict[str, Any] = {"LearningAgent": LearningAgentSpec, "RewardPolicy": RewardPolicySpec}


@pytest.mark.parametrize("name", [*AGENTS, OF_MANY])
def test_every_agent_of_the_bench_is_a_good_object_and_makes_a_good_job(name: str) -> None:
    for number in range(1, 7):
        found = {item["kind"]: item for item in yaml.safe_load_all(document(name, number, 10_000))}
        for kind, model in KINDS.items():
            said = found[kind]["spec"]
            assert _within(said, model.model_validate(said).to_kube()), "a field that the kind does not know"
        training_job(world(120, spec=found["LearningAgent"]["spec"]), number, Trigger("episodes", "enough"))
    assert set(COMPLETE) < set(AGENTS)


def test_the_pole_is_another_one_in_each_turn_and_its_code_runs() -> None:
    texts = [document("pole", number) for number in range(1, 6)]
    assert len(set(texts)) == len(HALF_LENGTHS) == 5
    (code,) = [item["data"]["poles.py"] for item in yaml.safe_load_all(texts[1]) if item["kind"] == "ConfigMap"]
    assert f"HALF_LENGTH = {HALF_LENGTHS[1]}" in code
    compile(code, "poles.py", "exec")


def test_the_external_agent_is_an_actor_of_the_same_installation_without_the_others_code() -> None:
    spec = next(item for item in yaml.safe_load_all(document("pole", 1)) if item["kind"] == "LearningAgent")["spec"]
    snapshot = world(120, spec=spec)
    made = deployment(actors(snapshot, snapshot.spec.task.environment, 1), snapshot.name)  # type: ignore[arg-type]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert (env["LEARNLOOP_ACTOR_AGENT"], env["LEARNLOOP_ACTOR_ENVIRONMENT"]) == ("clerk", "CartPole-v1")
    assert str(env["LEARNLOOP_ENDPOINT"]).startswith(("http://clerk.", "https://clerk."))
    assert "LEARNLOOP_ENVIRONMENT_DIRECTORY" not in env
    assert "learnloop-environment" not in str(made)
    assert "Blackjack-v1" in str(deployment(actors(snapshot, snapshot.spec.task.environment, 1), "pole", OF_MANY))  # type: ignore[arg-type]


def _within(said: Any, known: Any) -> bool:
    if isinstance(said, dict):
        return all(key in known and _within(value, known[key]) for key, value in said.items())
    if isinstance(said, list):
        return len(said) == len(known) and all(map(_within, said, known))
    return bool(said == known)
