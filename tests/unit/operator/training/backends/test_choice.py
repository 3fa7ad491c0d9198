"""The backend of a TrainingJob, and the sentence when none can run it."""

import pytest

from learnloop_operator.training.backends import BACKENDS, Backends
from learnloop_operator.training.ranks import RankDefaults
from testing.training.training_builders import ALL, DEFAULTS, condition, plan, reason, resource, situation, spec

TRAIN = "trainjob"
EVERY = frozenset(backend.name for backend in BACKENDS)
NO_RUNTIME = Backends(
    defaults=RankDefaults(image=DEFAULTS.image, pull_policy="Always", data_url=DEFAULTS.data_url, runtime="")
)


def chosen(backends: Backends = ALL, installed=EVERY, recorded: str | None = None, **changes) -> str | None:
    status = {"backend": recorded} if recorded else {}
    choice = backends.chosen(situation(status, spec=spec(**changes), installed=frozenset(installed)))
    return choice.name if choice else None


@pytest.mark.parametrize(
    ("installed", "workers", "expected"),
    [
        (EVERY, 2, "pytorchjob"),
        (EVERY - {"pytorchjob"}, 2, "trainjob"),
        ({"trainjob", "job"}, 2, "trainjob"),
        ({"job"}, 0, "job"),
        ({"job"}, 2, None),
        ({"trainjob", "job"}, 0, "trainjob"),
    ],
)
def test_auto_is_the_first_that_is_installed_and_can_run_it(installed, workers: int, expected: str | None) -> None:
    assert chosen(installed=installed, workers=workers) == expected


def test_auto_passes_over_a_train_job_without_our_runtime_or_with_options_it_cannot_carry() -> None:
    there = EVERY - {"pytorchjob"}
    assert chosen(NO_RUNTIME, there, workers=0) == "job"
    assert chosen(installed=there, workers=0, pod={"priorityClassName": "low"}) == "job"


@pytest.mark.parametrize(
    ("length", "workers", "expected"),
    [(48, 0, TRAIN), (49, 0, "job"), (48, 9, TRAIN), (48, 10, None), (45, 1024, TRAIN), (46, 1024, None)],
)
def test_no_trainjob_is_made_whose_pods_had_too_long_names(length: int, workers: int, expected: str | None) -> None:
    there, wanted = frozenset({"trainjob", "job"}), spec(workers=workers)
    choice = ALL.chosen(situation(object=resource(name="t" * length), spec=wanted, installed=there))
    assert (choice.name if choice else None) == expected


@pytest.mark.parametrize(("length", "expected"), [(47, "rayjob"), (48, None)])
def test_a_ray_job_is_made_where_it_is_wanted_under_a_name_that_kuberay_takes(length, expected):
    program = {"algorithm": "custom", "pod": {"image": "x", "command": ["y"]}}
    assert chosen(installed={"rayjob"}, **program) is None, "auto never means it"
    wanted, there = spec(backend="rayjob", **program), frozenset({"rayjob"})
    choice = ALL.chosen(situation(object=resource(name="t" * length), spec=wanted, installed=there))
    assert (choice.name if choice else None) == expected


def test_a_run_stays_where_it_began_while_that_can_run_it() -> None:
    assert chosen(recorded="trainjob") == "trainjob"
    assert chosen(recorded="trainjob", installed={"pytorchjob", "job"}) == "pytorchjob"
    assert chosen(recorded="job", workers=2) == "pytorchjob", "a Job cannot grow"
    assert chosen(recorded="trainjob", backend="pytorchjob") == "pytorchjob", "what is asked for counts"


def test_the_condition_names_what_each_backend_lacks() -> None:
    made = plan(situation(spec=spec(workers=2), installed=frozenset({"job"})))
    assert (reason(made), made.apply, made.status["phase"]) == ("BackendMissing", (), "Holding")
    message = condition(made, "Ready")["message"]
    assert "pytorchjob: the kind PyTorchJob (kubeflow.org/v1) does not exist in this cluster" in message
    assert "trainjob: the kind TrainJob (trainer.kubeflow.org/v1alpha1) does not exist in this cluster" in message
    assert "job: a Job runs one rank, and spec.workers is 2: set it to 0" in message
    alone = plan(situation(spec=spec(backend="trainjob"), installed=EVERY - {"trainjob"}))
    assert "pytorchjob" not in condition(alone, "Ready")["message"], "only what was asked for"
