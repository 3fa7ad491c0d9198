"""A language model is judged along its training, and what is exported is the best of it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from learnloop_api.kinds.training.evaluation import WhileTraining
from learnloop_api.wire.training import Proof
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed import Alone
from learnloop_trainer.export.language_model_files import read
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.language_training import begin_language
from learnloop_trainer.training_run.validation import JudgedModel, Validation
from testing.language.recorded_turns import turns

from .test_language_runs import SMALL, base, finished, ordered

__all__ = ["base", "ordered"]

CPU = torch.device("cpu")


def silent(doing: str) -> None:
    """Hears of it."""


def judged(validation: dict, policy: str = "best", **more) -> dict:
    return {"evaluation": {"episodes": 6, "whileTraining": validation}, "export": {"policy": policy}, **more}


def imitated(ordered: Callable[..., Order], words, tmp_path: Path, policy: str) -> tuple[Proof, bytes]:
    """Imitation changes the weights, and here it earns nothing."""
    validation = judged({"everySteps": 8, "episodes": 4}, policy)
    return finished(ordered("sft", 16, {"recording": turns(words, tmp_path)}, spec=validation), tmp_path)


def test_weights_that_are_no_better_than_those_of_the_start_are_not_exported(ordered, words, tmp_path):
    proof, body = imitated(ordered, words, tmp_path, "best")
    made = proof.while_training
    assert [point.step for point in made.points] == [0, 8, 16]
    assert (made.best_step, made.exported, made.ended_early) == (0, "best", False), "it earns nothing all the time"
    arrays = read(body).arrays
    assert all(not array.any() for name, array in arrays.items() if ".lora_B" in name), "as it began"
    assert proof.language.curves["validation"] == 0.0


def test_the_last_weights_are_exported_where_nobody_asks_for_the_best(ordered, words, tmp_path):
    proof, body = imitated(ordered, words, tmp_path, "last")
    validated = proof.while_training
    assert validated.exported == "last"
    assert any(array.any() for name, array in read(body).arrays.items() if ".lora_B" in name)


def test_patience_ends_a_run_that_gets_no_better(ordered: Callable[..., Order], tmp_path: Path) -> None:
    validation = {"everySteps": 8, "episodes": 4, "patience": 2}
    proof, _ = finished(ordered(steps=800, spec=judged(validation)), tmp_path)
    validated = proof.while_training
    assert (proof.step, validated.ended_early) == (16, True)


def test_to_be_judged_changes_nothing_that_is_learned(ordered: Callable[..., Order], tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store", "lm-1")
    plain = begin_language(ordered(steps=32), Alone(), CPU, store)
    watched = begin_language(ordered(steps=32, spec=judged({"everySteps": 8})), Alone(), CPU, store)
    watched.validation.begin(0, silent)
    for _ in range(4):
        plain.learner.iterate()
        watched.learner.iterate()
        watched.validation.note(watched.learner.step, 8, silent)
    assert plain.learner.network.digest() == watched.learner.network.digest()


def test_a_run_that_was_stopped_knows_its_best_weights_again(ordered: Callable[..., Order], tmp_path: Path) -> None:
    order = ordered(steps=64, spec=judged({"everySteps": 8, "episodes": 4}))
    store, group = DirectoryStore(tmp_path / "store", "lm-1"), Alone()
    first = begin_language(order, group, CPU, store)
    first.validation.begin(0, silent)
    first.learner.iterate()
    first.validation.note(first.learner.step, 8, silent)
    body = save(first, order, group)
    again = begin_language(order, group, CPU, store)
    restore(again, order, group, body)
    again.validation.begin(again.learner.step, silent)
    assert again.validation.note(again.learner.step, 0, silent) is None, "that was judged already"
    before, after = first.validation.state(), again.validation.state()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    with pytest.raises(ValueError, match="belongs to another specification"):
        restore(begin_language(ordered(steps=64), group, CPU, store), ordered(steps=64), group, body)


def test_a_reward_model_cannot_be_judged_along_training(ordered: Callable[..., Order], tmp_path: Path) -> None:
    order = ordered("bradley-terry", block=SMALL["bradley-terry"], spec=judged({"everySteps": 8}))
    store = DirectoryStore(tmp_path / "store", "lm-1")
    with pytest.raises(ConfigError, match=r"spec.evaluation.whileTraining.*a reward model holds none"):
        begin_language(order, Alone(), CPU, store)


def test_the_best_weights_are_those_of_the_greatest_mean_and_the_first_of_equals(ordered, tmp_path):
    store = DirectoryStore(tmp_path / "store", "lm-1")
    training = begin_language(ordered(steps=64), Alone(), CPU, store)
    network, earned = training.learner.network, iter([0.2, 0.5, 0.5, 0.1])
    settings = WhileTraining(every_steps=8, episodes=1, patience=2)
    validation = Validation(settings, JudgedModel(network, lambda: next(earned)))
    validation.begin(0, silent)
    digests = [network.digest()]
    for step in (8, 16, 24):
        assert not validation.over
        with torch.no_grad():
            network.vector.add_(0.01)
        digests.append(network.digest())
        validation.note(step, 8, silent)
    assert validation.over, "two evaluations without a better one"
    validation.keep_best()
    assert network.digest() == digests[1]
    assert validation.report(True, 24, 64).best_step == 8
