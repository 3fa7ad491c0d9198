"""Agents of every kind begin by YAML alone; what they say of their situation reaches their jobs and actors whole."""

import json

import pytest

from learnloop_api.kinds.learning_agent import LearningAgentSpec
from learnloop_api.kinds.task import World as PlayedWorld
from learnloop_api.kinds.training.algorithms import ALGORITHMS, FROM_LOG
from learnloop_api.kinds.training_job import TrainingData, TrainingTemplate
from learnloop_operator.agents.agent_children import training_job
from learnloop_operator.agents.decide_agent import decide
from learnloop_operator.agents.triggers import Trigger
from learnloop_operator.core.plan import Plan

from .test_learning_agent import created, situation, spec

PLAYED = {
    "environmentConfigMap": {"name": "worlds"},
    "level": "hard",
    "randomise": [{"parameter": "gain", "low": 0.5, "high": 1.5}],
    "credit": "difference",
    "maxStepsPerEpisode": 50,
}
"""Something else than the default in every field of World."""
FILLED = {
    "algorithm": "ppo",
    "engine": "own",
    "settings": {"any": 1},
    "hyperparameters": {"horizon": 32},
    "totalSteps": 4321,
    "seed": 5,
    "workers": 2,
    "backend": "trainjob",
    "queue": {"name": "team-a", "priorityClass": "low"},
    "checkpoint": {"everySeconds": 9},
    "evaluation": {"episodes": 33, "seed": 2, "firstEpisode": 7},
    "gates": {"minReturn": 3.5},
    "export": {"formats": ["torchscript"]},
    "curriculum": {"until": "hard"},
    "shaping": {"potential": True},
    "safety": {"constraints": [{"name": "calm", "forbid": [1]}], "fallback": [0]},
    "tracking": {"tensorboard": {"directory": "/curves"}},
    "initialPolicy": {"serving": True},
    "study": {"trials": 4, "space": [{"parameter": "horizon", "int": {"low": 8, "high": 64}}]},
    "maxAttempts": 7,
    "stallSeconds": 99,
    "deadlineSeconds": 1234,
    "ttlSecondsAfterFinished": 55,
    "pod": {"labels": {"team": "blue"}},
}


def agent(task: dict, data: dict | None = None, **template):
    body = spec()
    body["training"]["data"] = data or {}
    body["task"] = task
    body["training"]["template"] = {**body["training"]["template"], **template}
    return situation(120, spec=LearningAgentSpec.model_validate(body).to_kube())


def in_world(name: str, **more) -> dict:
    return {"environment": {"name": name, **more}}


def model(plan: Plan):
    return (plan.status.get("model") or {}).get("uri")


def actor(plan: Plan) -> dict:
    (deployment,) = [item for item in plan.apply if item["kind"] == "Deployment"]
    return dict(deployment["spec"]["template"]["spec"])


def variables(plan: Plan) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in actor(plan)["containers"][0]["env"]}


def test_every_field_of_the_template_arrives_in_the_job() -> None:
    given = set(TrainingTemplate.model_validate(FILLED).model_fields_set)
    missing = {name for name in TrainingTemplate.model_fields if name not in given}
    assert not missing, f"say something of {missing} in FILLED"
    wanted = TrainingTemplate.model_validate(FILLED).to_kube()
    job = training_job(agent(in_world("CartPole-v1"), **FILLED), 1, Trigger("episodes", "enough"))
    for field, value in wanted.items():
        assert job["spec"][field] == value, field


@pytest.mark.parametrize("external", [False, True], ids=["played by actors", "played elsewhere"])
def test_every_field_of_the_data_arrives_in_the_job(external: bool) -> None:
    assert {name for name in PlayedWorld.model_fields} == {*_snake(PLAYED)}, "say something of all of them in PLAYED"
    kinds = {"observations": 3, "actions": 2}
    own = {"trainingEnvironment": "worlds:Warehouse", **PLAYED}
    fields = {} if external else {"successReturn": 7.0}
    task = {"external": own} if external else in_world("worlds:Warehouse", **PLAYED, **fields)
    chosen = {"source": "clickhouse", "tasks": ["t"], "optedIn": True}
    logged = {"rewards": "policy", "agents": ["other"], "filter": chosen}
    situation = agent({**task, **kinds}, data=logged)
    data = training_job(situation, 1, Trigger("episodes", "enough"))["spec"]["data"]
    wanted = {**PLAYED, **logged, **fields, "environment": "worlds:Warehouse", "learningAgentRef": {"name": "la"}}
    wanted["filter"] = {"modelRevisions": [], **wanted["filter"]}
    assert set(wanted) == set(TrainingData.model_validate(wanted).to_kube()), "a new field of data needs a source"
    spoken = "language_model"  # see test_language_agent.py
    assert {*_snake(wanted), "success_return", "spaces", spoken} == set(TrainingData.model_fields)
    assert data == wanted


SPACES = [
    ({"observations": 4, "actions": 2}, "uniform://discrete/2?observations=4"),
    ({"observations": 5, "multiDiscrete": [3, 4]}, "uniform://discrete/12?observations=5"),
    ({"observations": 3, "continuous": [{"low": -2, "high": 2}]}, "uniform://continuous/-2..2?observations=3"),
    (
        {"observations": 6, "continuous": [{"low": 0, "high": 1, "times": 2}], "choices": 3},
        "uniform://hybrid/3/0..1*2?observations=6",
    ),
]


LEARNABLE = [
    (added, spaces, name)
    for added, spaces in SPACES
    for name in FROM_LOG
    if spaces.removeprefix("uniform://").partition("/")[0] in ALGORITHMS[name].acts
]


@pytest.mark.parametrize(("fields", "spaces", "algorithm"), LEARNABLE)
def test_an_agent_without_an_environment_trains_from_its_log_alone(fields, spaces, algorithm):
    template = {"algorithm": algorithm, "gates": {"significant": False}}
    plan = decide(agent({"external": {}, **fields}, {"filter": {"tasks": ["t"]}}, **template))
    (job,) = [item for item in plan.apply if item["kind"] == "TrainingJob"]
    assert job["spec"]["data"]["spaces"] == spaces
    assert "environment" not in job["spec"]["data"]
    assert job["spec"]["data"]["learningAgentRef"] == {"name": "la"}
    assert job["spec"]["data"]["filter"]["tasks"] == ["t"]
    assert model(plan) == spaces, "and it begins with chance"
    assert not [item for item in plan.apply if item["kind"] == "Deployment"], "no actor plays for it"


def _snake(fields: dict) -> list[str]:
    return ["".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name) for name in fields]


def test_actors_play_under_the_conditions_of_training() -> None:
    task = {**in_world("worlds:Warehouse", **PLAYED), "observations": 3, "actions": 2}
    plan = decide(agent(task))
    environment = variables(plan)
    assert environment["LEARNLOOP_ACTOR_ENVIRONMENT"] == "worlds:Warehouse"
    assert environment["LEARNLOOP_ACTOR_LEVEL"] == "hard"
    assert json.loads(environment["LEARNLOOP_ACTOR_RANDOMISE"]) == [["gain", 0.5, 1.5]]
    assert environment["LEARNLOOP_ACTOR_CREDIT"] == "difference"
    pod = actor(plan)
    mounts = pod["containers"][0]["volumeMounts"]
    (mount,) = [item for item in mounts if item.get("readOnly") and "environment" in item["name"]]
    assert mount["mountPath"] == environment["LEARNLOOP_ENVIRONMENT_DIRECTORY"]
    (volume,) = [item for item in pod["volumes"] if item["name"] == mount["name"]]
    assert volume["configMap"] == {"name": "worlds"}


WAREHOUSE = {**in_world("worlds:Warehouse"), "observations": 3}


@pytest.mark.parametrize(
    ("task", "uri"),
    [
        (in_world("CartPole-v1"), "uniform://discrete/2?observations=4"),
        (in_world("Pendulum-v1"), "uniform://continuous/-2..2?observations=3"),
        (in_world("FrozenLake-v1"), "uniform://discrete/4?observations=16"),
        ({**WAREHOUSE, "actions": 2}, "uniform://discrete/2?observations=3"),
        ({**WAREHOUSE, "multiDiscrete": [3, 4]}, "uniform://discrete/12?observations=3"),
        ({**WAREHOUSE, **SPACES[3][0]}, "uniform://hybrid/3/0..1*2?observations=6"),
    ],
)
def test_an_agent_begins_by_its_environments_name_or_by_what_its_task_says(task: dict, uri: str) -> None:
    plan = decide(agent(task))
    assert (model(plan), created(plan)) == (uri, ["la-1"])


def reason(plan: Plan) -> tuple[str, str]:
    ready = next(item for item in plan.status["conditions"] if item["type"] == "Ready")
    return ready["reason"], ready["message"]


def test_an_agent_of_whom_nobody_knows_what_it_sees_says_so_and_trains_nothing() -> None:
    plan = decide(agent(in_world("worlds:Warehouse")))
    assert created(plan) == []
    assert model(plan) is None
    assert reason(plan)[0] == "SpacesUnknown"
    assert "spec.task.environment.name: 'worlds:Warehouse'" in reason(plan)[1]
    assert "set observations, and one of actions, multiDiscrete and continuous" in reason(plan)[1]


def test_what_the_task_says_must_be_what_a_known_environment_is() -> None:
    plan = decide(agent({**in_world("CartPole-v1"), "observations": 5, "actions": 2}))
    assert reason(plan)[0] == "SpacesUnknown"
    assert "CartPole-v1 is uniform://discrete/2?observations=4" in reason(plan)[1]


def test_more_combinations_than_can_be_learned_are_refused() -> None:
    plan = decide(agent({**in_world("worlds:Warehouse"), "observations": 3, "multiDiscrete": [100, 100]}))
    assert "10000 combinations, 4096 are the most" in reason(plan)[1]


def test_an_agent_that_acts_elsewhere_must_say_its_kinds() -> None:
    plan = decide(agent({"external": {}}, algorithm="cql"))
    assert (created(plan), reason(plan)[0]) == ([], "SpacesUnknown")
    assert "no environment defines what the agent sees and does" in reason(plan)[1]
    body = {**spec(), "task": {"external": {}}}
    del body["training"]
    idle = situation(120, spec=LearningAgentSpec.model_validate(body).to_kube())
    assert reason(decide(idle))[0] == "SpacesUnknown"
