"""Which backend runs a TrainingJob, and what is said when none can."""

from typing import Any

import pytest

from learnloop_operator.training.backends import BACKENDS, CONTAINERS, Backends
from learnloop_operator.training.ranks import RankDefaults
from testing.training.training_builders import ALL, DEFAULTS, condition, plan, reason, resource, spec, world

TRAIN = "trainjob"
EVERY = frozenset(backend.name for backend in BACKENDS)
NO_RUNTIME = Backends(
    defaults=RankDefaults(image=DEFAULTS.image, pull_policy="Always", data_url=DEFAULTS.data_url, runtime="")
)


def chosen(backends: Backends = ALL, installed: Any = EVERY, recorded: str | None = None, **changes: Any) -> str | None:
    status = {"backend": recorded} if recorded else {}
    found = backends.chosen(world(status, spec=spec(**changes), installed=frozenset(installed)))
    return found.name if found else None


def test_every_backend_is_registered_once_under_its_own_name() -> None:
    assert len(EVERY) == len(BACKENDS) == len({backend.kind for backend in BACKENDS}) == 3
    assert {"pytorch", "trainer", "node"} == CONTAINERS


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
def test_auto_is_the_first_that_is_installed_and_can_run_it(installed: Any, workers: int, expected: str | None) -> None:
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
    there, asked = frozenset({"trainjob", "job"}), spec(workers=workers)
    found = ALL.chosen(world(object=resource(name="t" * length), spec=asked, installed=there))
    assert (found.name if found else None) == expected


def test_a_name_that_is_too_long_for_a_trainjob_is_said_with_the_most_that_it_may_have() -> None:
    asked = spec(backend="trainjob", workers=10)
    made = plan(world(object=resource(name="t" * 50), spec=asked, installed=frozenset({"trainjob"})))
    assert reason(made) == "BackendMissing"
    assert "create it again under a name of at most 47, or on another backend" in condition(made, "Ready")["message"]


def test_a_run_stays_where_it_began_while_that_can_run_it() -> None:
    assert chosen(recorded="trainjob") == "trainjob"
    assert chosen(recorded="trainjob", installed={"pytorchjob", "job"}) == "pytorchjob"
    assert chosen(recorded="job", workers=2) == "pytorchjob", "a Job cannot grow"
    assert chosen(recorded="trainjob", backend="pytorchjob") == "pytorchjob", "what is asked for counts"


def test_the_condition_names_what_each_backend_lacks() -> None:
    made = plan(world(spec=spec(workers=2), installed=frozenset({"job"})))
    assert (reason(made), made.apply, made.status["phase"]) == ("BackendMissing", (), "Holding")
    said = condition(made, "Ready")["message"]
    assert "pytorchjob: the kind PyTorchJob (kubeflow.org/v1) does not exist in this cluster" in said
    assert "trainjob: the kind TrainJob (trainer.kubeflow.org/v1alpha1) does not exist in this cluster" in said
    assert "job: a Job runs one rank, and spec.workers is 2: set it to 0" in said
    alone = plan(world(spec=spec(backend="trainjob"), installed=EVERY - {"trainjob"}))
    assert "pytorchjob" not in condition(alone, "Ready")["message"], "only what was asked for"


def test_the_start_records_the_backend_that_was_chosen() -> None:
    made = plan(world(spec=spec(workers=0), installed=frozenset({"job"})))
    assert (made.apply[0]["kind"], made.status["backend"]) == ("Job", "job")
