"""Evaluation while training: its own episodes, the best policy kept, patience, and the same after a crash."""

from collections.abc import Callable

import numpy as np
import torch

from learnloop_trainer.distributed import Alone
from learnloop_trainer.evaluation.held_out_episodes import held_out
from learnloop_trainer.evaluation.suite import disturbances
from learnloop_trainer.store.run_store import DirectoryStore, part, unpack
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run import validation
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_proof import VALIDATION
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin
from learnloop_trainer.training_run.rank import run

CPU = torch.device("cpu")
Make = Callable[..., Order]


def validating(make_order: Make, **changes) -> Order:
    body = {"everySteps": 128, "episodes": 4, **changes}
    return make_order(steps=1024, evaluation={"episodes": 8, "whileTraining": body}, export={"policy": "best"})


def rounds(training: PolicyTraining, count: int) -> None:
    for _ in range(count):
        training.observation, experiences = training.learner.iterate(training.observation)
        ended = sum(int(one.ended.sum()) for one in experiences)
        training.validation.note(training.learner.step, ended, lambda doing: None)


def test_its_episodes_are_neither_the_proofs_nor_a_studys_nor_the_suites(make_order: Make) -> None:
    assert VALIDATION + 10_000 < validation.FIRST
    assert validation.FIRST + 10_000 < disturbances.FIRST
    order = validating(make_order)
    starts = [held_out(order, first=first)(range(8)).reset() for first in (0, validation.FIRST)]
    assert not {row.tobytes() for row in starts[0]} & {row.tobytes() for row in starts[1]}


def test_it_changes_nothing_of_what_is_learned(make_order: Make) -> None:
    with_it, without = validating(make_order), make_order(steps=1024)
    one, other = begin(with_it, Alone(), CPU), begin(without, Alone(), CPU)
    rounds(one, 6)
    for _ in range(6):
        other.observation, _ = other.learner.iterate(other.observation)
    assert one.validation.steps == [128, 256, 384]
    assert one.learner.network.digest() == other.learner.network.digest()


def test_a_run_that_goes_on_validates_as_the_undisturbed_one(make_order: Make) -> None:
    order = validating(make_order)
    calm, killed = begin(order, Alone(), CPU), begin(order, Alone(), CPU)
    rounds(calm, 10)
    rounds(killed, 5)
    body = save(killed, order, Alone())
    again = begin(order, Alone(), CPU)
    restore(again, order, Alone(), body)
    rounds(again, 5)
    saved, wanted = (save(one, order, Alone()) for one in (again, calm))
    ours, expected = (part(unpack(one)[0], "validation") for one in (saved, wanted))
    assert ours.keys() == expected.keys()
    assert "best/policy.0.weight" in ours
    assert all(np.array_equal(ours[name], expected[name]) for name in ours)


def test_episodes_of_training_can_say_when(make_order: Make) -> None:
    order = validating(make_order, everySteps=None, everyEpisodes=10)
    training = begin(order, Alone(), CPU)
    rounds(training, 12)
    validator = training.validation
    assert validator.finished >= 20
    assert 2 <= len(validator.steps) <= validator.finished // 10


def test_the_best_policy_is_exported_and_patience_ends_the_run(make_order, tmp_path, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_STORE", f"file://{tmp_path}")
    means = iter([10.0, 30.0, 20.0, 25.0, 99.0])
    decisions: list[str] = []

    def played(learner, *_) -> float:
        decisions.append(learner.network.digest())
        return next(means)

    monkeypatch.setattr(validation, "_played", played)
    exported: list[str] = []
    keep = validation.Validation.keep_best

    def record(self) -> None:
        keep(self)
        exported.append(self.judged.learner.network.digest())

    monkeypatch.setattr(validation.Validation, "keep_best", record)
    order = validating(make_order, patience=2)
    run(order, Place(), 1)
    proof = DirectoryStore(tmp_path, order.job).proof()
    validated = proof.while_training
    assert (validated.best_step, validated.exported, validated.ended_early) == (256, "best", True)
    assert [point.mean for point in validated.points] == [10.0, 30.0, 20.0, 25.0]
    assert proof.step == 512 < proof.total_steps
    assert exported == [decisions[1]], "as the network was at step 256"
    assert proof.parity.passed
