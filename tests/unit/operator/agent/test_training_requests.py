"""A training request gets the template or less of it; whatever would widen the template is refused by name."""

from dataclasses import replace

import pytest
from tests.unit.operator.agent.test_learning_agent import created, situation, spec

from learnloop_api import names
from learnloop_api.kinds.learning_agent import Training
from learnloop_api.wire.training_request import TrainingRequest
from learnloop_operator.agents.agent_snapshot import AgentSnapshot
from learnloop_operator.agents.apply_training_request import narrowed
from learnloop_operator.agents.decide_agent import decide

TEMPLATE = {
    "algorithm": "dqn",
    "totalSteps": 1000,
    "workers": 2,
    "deadlineSeconds": 600,
    "hyperparameters": {"learningRate": 0.001},
    "gates": {"minReturn": 100.0},
    "evaluation": {"episodes": 50},
}
WIDE = {"low": -9.0, "high": 9.0}
WRONG = ("learningRate", "learningrate")
ALLOWED = [
    {"parameter": "learningRate", "float": {"low": 0.0001, "high": 0.01}},
    {"parameter": "batchSize", "int": {"low": 32, "high": 128, "step": 32}},
]
TRAINING = {
    "triggers": {},
    "requests": {"hyperparameters": ALLOWED},
    "template": TEMPLATE,
    "data": {"filter": {"since": "2026-01-10T00:00:00Z", "tasks": ["north", "south"], "minReward": 0.0}},
}


def request(**wish) -> TrainingRequest:
    return TrainingRequest.model_validate({"request_id": "r1", **wish})


def after(**wish) -> Training:
    result = narrowed(Training.model_validate(TRAINING), request(**wish))
    assert result.refusals == ()
    return result.training


def agent_with(wish: TrainingRequest, **changes) -> AgentSnapshot:
    snapshot = situation(0, "r1", spec=spec(training=TRAINING), **changes)
    return replace(snapshot, stats=snapshot.stats.model_copy(update={"training_wish": wish}))


def test_a_request_that_says_nothing_runs_the_template() -> None:
    training = Training.model_validate(TRAINING)
    assert narrowed(training, request()).training is training
    assert narrowed(training, None).training is training


def test_everything_a_request_may_narrow_reaches_the_run() -> None:
    wish = request(
        dataset={"since": "2026-01-20T00:00:00Z", "tasks": ["north"], "min_reward": 0.5, "success": True},
        hyperparameters={"learningRate": 0.002, "batchSize": 64},
        compute={"total_steps": 500, "workers": 1, "deadline_seconds": 60},
        evaluation={"episodes": 200, "min_return": 150.0, "min_improvement": 1.0},
    )
    plan = decide(agent_with(wish))
    run = next(item["spec"] for item in plan.apply if item["kind"] == "TrainingJob")
    assert (run["totalSteps"], run["workers"], run["deadlineSeconds"]) == (500, 1, 60)
    assert (run["hyperparameters"]["learningRate"], run["hyperparameters"]["batchSize"]) == (0.002, 64)
    assert run["evaluation"]["episodes"] == 200
    assert (run["gates"]["minReturn"], run["gates"]["minImprovement"]) == (150.0, 1.0)
    chosen = run["data"]["filter"]
    assert (chosen["since"], chosen["tasks"]) == ("2026-01-20T00:00:00Z", ["north"])
    assert (chosen["minReward"], chosen["success"]) == (0.5, True)
    assert plan.status["observedTrainingRequest"] == "r1"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"compute": {"workers": 3}}, "compute.workers: 3 is above template.workers (2)"),
        ({"compute": {"total_steps": 1001}}, "compute.total_steps: 1001 is above template.totalSteps (1000)"),
        ({"evaluation": {"episodes": 49}}, "evaluation.episodes: 49 is below template.evaluation.episodes (50)"),
        ({"evaluation": {"min_return": 99.0}}, "evaluation.min_return: 99.0 is below template.gates.minReturn (100.0)"),
        ({"evaluation": {"significant": False}}, "evaluation.significant: False is below template.gates.significant"),
        ({"hyperparameters": {"gamma": 0.9}}, "hyperparameters.gamma: 0.9: spec.training.requests.hyperparameters"),
        ({"hyperparameters": {"learningRate": 0.1}}, "hyperparameters.learningRate: 0.1 is not a number from 0.0001"),
        ({"hyperparameters": {"learningRate": True}}, "hyperparameters.learningRate: True is not a number"),
        (
            {"hyperparameters": {"batchSize": 48}},
            "hyperparameters.batchSize: 48 is not a whole number from 32 to 128 in",
        ),
        ({"dataset": {"tasks": ["east"]}}, "dataset.tasks: ['east'] is wider than spec.training.data.filter.tasks"),
        ({"dataset": {"min_reward": -1.0}}, "dataset.min_reward: -1.0 is wider than"),
        ({"dataset": {"since": "2026-01-01T00:00:00Z"}}, "dataset.since: 2026-01-01T00:00:00Z is wider than"),
        ({"dataset": {"max_age_seconds": 60}}, "dataset.since: maxAgeSeconds already says where the window begins"),
        ({"dataset": {"until": "2026-01-02T00:00:00Z"}}, "is not before until"),
        ({"dataset": {"max_reward": -3.0}}, "dataset.min_reward: 0.0 is above max_reward"),
    ],
)
def test_what_would_widen_the_template_is_refused_with_field_value_and_bound(wish: dict, words: str) -> None:
    plan = decide(agent_with(request(**wish)))
    assert created(plan) == []
    assert words in plan.status["refusedTrainingRequest"]
    notice = next(item for item in plan.events if item.reason == "TrainingRequestRefused")
    assert notice.message == plan.status["refusedTrainingRequest"]
    assert plan.status["observedTrainingRequest"] == "r1", "it is answered once"


def test_a_refused_request_says_all_that_is_wrong_with_it() -> None:
    result = narrowed(Training.model_validate(TRAINING), request(compute={"workers": 9}, evaluation={"episodes": 1}))
    assert len(result.refusals) == 2


def test_a_value_that_the_algorithm_does_not_take_is_refused_although_it_is_listed() -> None:
    training = Training.model_validate(
        {**TRAINING, "requests": {"hyperparameters": [{"parameter": name, "float": WIDE} for name in WRONG]}}
    )
    result = narrowed(training, request(hyperparameters={"learningRate": 5.0}))
    assert result.training is training
    assert "learningRate: 5.0:" in result.sentence
    result = narrowed(training, request(hyperparameters={"learningrate": 5.0}))
    assert "learningrate: dqn has no such hyperparameter; it has " in result.sentence


def test_a_dataset_is_refused_where_the_algorithm_reads_no_log() -> None:
    plays = Training.model_validate({**TRAINING, "template": {"algorithm": "ppo", "totalSteps": 1000}, "data": {}})
    result = narrowed(plays, request(dataset={"success": True}))
    assert result.refusals == ("dataset: ppo reads no logged episodes; leave it out",)


def test_a_run_that_somebody_else_asked_for_leaves_a_narrowing_request_for_the_next_one() -> None:
    wish = request(compute={"workers": 1})
    plan = decide(agent_with(wish, annotations={names.ANNOTATION_TRAIN: "now"}))
    run = next(item["spec"] for item in plan.apply if item["kind"] == "TrainingJob")
    assert run["workers"] == 2
    assert "observedTrainingRequest" not in plan.status
    bare = decide(agent_with(request(), annotations={names.ANNOTATION_TRAIN: "now"}))
    assert bare.status["observedTrainingRequest"] == "r1"


def test_the_next_granted_request_clears_the_refusal() -> None:
    refused = decide(agent_with(request(compute={"workers": 9}))).status
    before = {**refused, "observedTrainingRequest": "r0", "registered": "solving/r1"}
    plan = decide(agent_with(request(compute={"workers": 1}), before=before))
    assert len(created(plan)) == 1
    assert "refusedTrainingRequest" not in plan.status
