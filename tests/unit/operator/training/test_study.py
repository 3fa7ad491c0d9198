"""Studies: no trial is lost or doubled whenever the operator dies, and the best one's proof is the job's."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.training.decide_study import decide
from learnloop_operator.training.study_trials import problem, sentence, takes, trial_spec
from testing.training.study_simulation import Cluster, run, spec


def condition(status: dict, type_: str = "Ready") -> dict:
    return next(item for item in status["conditions"] if item["type"] == type_)


def ends(*values: float | None) -> Callable[[int], float | None]:
    return lambda number: values[number % len(values)]


@given(
    trials=st.integers(2, 7),
    parallelism=st.integers(1, 4),
    outcomes=st.lists(st.one_of(st.none(), st.floats(-50, 500)), min_size=1, max_size=7),
    cuts=st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=1, max_size=40),
)
def test_an_operator_that_dies_anywhere_neither_loses_nor_doubles_a_trial(trials, parallelism, outcomes, cuts):
    wanted = spec(trials=trials, parallelism=parallelism, study={"maxFailedTrials": 1000})
    # After the last cut the operator lives, or it would never end.
    dies = lambda number: cuts[number] if number < len(cuts) else None  # noqa: E731
    cluster = run(Cluster(wanted, ends(*outcomes)), cut=dies)
    assert [trial["number"] for trial in cluster.trials] == list(range(trials))
    assert len(cluster.jobs) == trials
    assert sorted(cluster.ends) == list(range(trials))
    assert cluster.most <= parallelism
    wins = [value for number in range(trials) if (value := ends(*outcomes)(number)) is not None and value >= 0]
    if wins:
        assert cluster.status["study"]["bestValue"] == pytest.approx(max(wins), abs=1e-3)
        assert "artifact" in cluster.status


def test_a_trial_worth_stopping_is_suspended_first_and_then_told_as_pruned() -> None:
    cluster = run(Cluster(spec(trials=3, parallelism=1), ends(-5.0, 10.0, 20.0)))
    assert cluster.jobs["s-t0"]["spec"]["suspend"] is True
    assert not cluster.jobs["s-t0"]["status"].get("finishedAt")
    assert [trial["state"] for trial in cluster.trials] == ["pruned", "complete", "complete"]
    assert cluster.status["study"]["pruned"] == 1


def test_so_many_failures_end_the_study_and_stop_what_runs() -> None:
    cluster = run(Cluster(spec(trials=50, parallelism=3, study={"maxFailedTrials": 2}), ends(None, 5.0, None)))
    assert cluster.status["phase"] == "Failed"
    assert condition(cluster.status)["reason"] == "TrialsFailed"
    assert "maxFailedTrials: 2" in condition(cluster.status)["message"]
    assert len(cluster.trials) < 10
    assert all(job["status"].get("finishedAt") or job["spec"]["suspend"] for job in cluster.jobs.values())


def test_at_the_deadline_the_best_so_far_is_what_counts() -> None:
    cluster = run(Cluster(spec(trials=50, parallelism=1, deadlineSeconds=60), ends(10.0, 90.0, 20.0)))
    assert cluster.status["phase"] == "Validated"
    assert cluster.status["study"]["bestValue"] == 90.0
    assert 2 < len(cluster.trials) < 10


def test_a_suspended_study_suspends_its_trials_and_goes_on_with_them() -> None:
    cluster = Cluster(spec(trials=2, parallelism=2), ends(10.0, 20.0))
    for _ in range(4):
        cluster.apply(decide(cluster.gather()))
    assert len(cluster.jobs) == 2
    cluster.spec = cluster.spec.model_copy(update={"suspend": True})
    for _ in range(3):
        cluster.apply(decide(cluster.gather()))
        cluster.work()
    assert all(job["spec"]["suspend"] for job in cluster.jobs.values())
    assert cluster.status["phase"] == "Suspended"
    assert not cluster.ends
    cluster.spec = cluster.spec.model_copy(update={"suspend": False})
    assert run(cluster).status["phase"] == "Validated"


def test_a_study_of_a_deleted_job_of_the_same_name_is_forgotten() -> None:
    cluster = Cluster(spec(trials=2), ends(1.0, 2.0))
    cluster.owner, cluster.trials = "u-0", [{"number": 0, "state": "complete", "value": 99.0}]
    run(cluster)
    assert cluster.owner == "u-1"
    assert cluster.status["study"]["bestValue"] == 2.0


def test_a_study_at_work_writes_nothing_when_nothing_changed() -> None:
    cluster = Cluster(spec(trials=4), ends(1.0))
    for _ in range(5):
        cluster.apply(decide(cluster.gather()))
    before = cluster.status
    plan = decide(cluster.gather())
    assert (plan.apply, plan.calls, plan.events) == ((), (), ())
    assert plan.status == before


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        ({"parameter": "learningSpeed", "float": {"low": 0, "high": 1}}, "no such hyperparameter; it has clip"),
        ({"parameter": "clip", "float": {"low": 0.1, "high": 3}}, "space[clip]: 3.0 is refused: input should be"),
        ({"parameter": "epochs", "choices": ["few", "many"]}, "space[epochs]: 'few' is refused"),
        ({"parameter": "environments", "int": {"low": 0, "high": 8}}, "space[environments]: 0 is refused"),
    ],
)
def test_a_space_that_cannot_be_trained_is_refused_before_the_first_trial(dimension, words):
    wanted = spec(study={"space": [dimension]})
    assert words in (problem("s", wanted) or "")
    cluster = run(Cluster(wanted, ends(1.0)))
    assert condition(cluster.status)["reason"] == "ConfigurationError"
    assert not cluster.jobs


@pytest.mark.parametrize(
    "engine", [{"algorithm": "a2c"}, {"engine": "sb3"}, {"engine": "sb3", "study": {"space": None}}]
)
def test_a_study_of_another_engines_learner_is_refused_with_a_fix_that_helps(engine) -> None:
    why = problem("s", spec(**engine))
    assert why.startswith("spec.study: searches hyperparameters of engine own, and sb3 trains ")
    assert why.endswith("remove study, or leave engine out and choose an algorithm of own")


def test_a_name_too_long_for_its_trials_is_refused_with_the_length_that_fits() -> None:
    why = problem("n" * 48, spec(trials=100))
    assert why.endswith("use at most 46")
    assert problem("n" * 46, spec(trials=100)) is None


def test_a_trial_has_its_parameters_validation_episodes_and_no_gates_of_its_own() -> None:
    given = {"gates": {"minReturn": 400}, "evaluation": {"episodes": 70}, "hyperparameters": {"clip": 0.3}}
    wanted = spec(deadlineSeconds=99, **given)
    body = trial_spec(wanted, {"learningRate": 0.02, "hidden": [32]})
    assert body["hyperparameters"]["learningRate"] == 0.02
    assert (body["hyperparameters"]["hidden"], body["hyperparameters"]["clip"]) == ([32], 0.3)
    assert body["evaluation"]["validationEpisodes"] == 70
    assert body["gates"] == {"significant": False}
    assert not {"study", "deadlineSeconds"} & body.keys()


def test_a_study_that_names_no_space_searches_what_its_algorithm_takes_of_the_default() -> None:
    wanted = spec(algorithm="dqn", study={"space": None})
    assert wanted.study.space is None
    assert problem("s", wanted) is None
    searched = {one.parameter for one in wanted.study.searched(takes(wanted))}
    assert searched == {"learningRate", "discount", "epsilonEnd", "batchSize", "bufferSize", "hidden"}
    assert "batchSize" not in {one.parameter for one in wanted.study.searched(takes(spec()))}, "ppo has none"


def test_a_study_with_a_cost_reports_it_and_refuses_money_without_prices() -> None:
    cluster = run(Cluster(spec(trials=2, study={"cost": {"measure": "cpuHours"}}), ends(10.0, 20.0)))
    assert [trial["cost"] for trial in cluster.trials] == [0.25, 0.25]
    assert "best 20.0 at 0.25 cpuHours: s-t1" in sentence(cluster.gather())
    refused = run(Cluster(spec(study={"cost": {"measure": "money"}}), ends(1.0)))
    assert condition(refused.status)["message"].startswith("spec.study.cost.measure: money takes trainer.prices")
