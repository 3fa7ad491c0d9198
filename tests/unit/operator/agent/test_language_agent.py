"""An agent that speaks: its base model serves first, its runs learn it, and nothing of numbers is made."""

import pytest

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.kinds.training.algorithms import LANGUAGE
from learnloop_api.kinds.training_job import TrainingJobSpec
from learnloop_operator.agents.agent_children import model_deployment, training_job
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.agents.triggers import Trigger
from testing.language.spoken import DIGEST, SPOKEN

from .test_learning_agent import situation, spec


def agent(algorithm: str = "rloo", **task):
    body = spec()
    body["task"] = {"external": {"trainingEnvironment": "ToolLookup-v1"}, "languageModel": SPOKEN, **task}
    body["training"]["template"] = {"algorithm": algorithm, "totalSteps": 256}
    return situation(120, spec=LearningAgentSpec.model_validate(body).to_kube())


def test_it_begins_with_its_base_model_and_no_policy_of_chance() -> None:
    plan = decide(agent())
    assert plan.status["model"] == {"uri": f"base://{DIGEST}", "sha256": DIGEST, "source": "base"}
    assert not [item for item in plan.apply if item["kind"] == "Deployment"]


def test_its_deployment_knows_the_whole_language_model() -> None:
    made = model_deployment(agent())["spec"]
    assert made["languageModel"] == SPOKEN
    assert ModelDeploymentSpec.model_validate(made).language_model is not None


@pytest.mark.parametrize("algorithm", LANGUAGE)
def test_its_runs_know_the_whole_language_model(algorithm: str) -> None:
    made = training_job(agent(algorithm), 1, Trigger("episodes", "enough"))["spec"]
    assert made["algorithm"] == algorithm
    assert made["data"]["languageModel"] == SPOKEN
    assert made["data"]["environment"] == "ToolLookup-v1"
    assert TrainingJobSpec.model_validate(made).data.language_model is not None


def test_a_tool_is_given_to_templates_as_the_chat_completions_api_has_it() -> None:
    model = agent().spec.task.language_model
    assert model.tools[0].to_openai() == {
        "type": "function",
        "function": {"name": "lookup", "description": "The value of a key.", "parameters": {"type": "object"}},
    }


def test_in_a_world_of_learnloops_actors_talk_to_its_gateway_and_its_runs_are_trained_there() -> None:
    body = spec()
    body["task"] = {"environment": {"name": "ToolLookup-v1", "actors": {"concurrency": 6}}, "languageModel": SPOKEN}
    body["training"]["template"] = {"algorithm": "rloo", "totalSteps": 256}
    snapshot = situation(120, spec=LearningAgentSpec.model_validate(body).to_kube())
    actor = next(item for item in decide(snapshot).apply if item["metadata"]["name"] == "la-actor")
    (container,) = actor["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "learnloop_sdk.conversation_actor"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["LEARNLOOP_ACTOR_ENVIRONMENT"] == "ToolLookup-v1"
    assert env["LEARNLOOP_ENDPOINT"] == "http://la.ns.svc:8080"
    assert training_job(snapshot, 1, Trigger("episodes", "enough"))["spec"]["data"]["environment"] == "ToolLookup-v1"
