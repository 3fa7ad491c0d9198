"""Runs that go on from the checkpoint of an interrupted one."""

from collections.abc import Callable
from typing import Any

import torch

from learnloop_trainer.distributed import Alone
from learnloop_trainer.store.run_store import unpack
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import restore, save
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin

CPU = torch.device("cpu")


def advance(training: PolicyTraining, times: int) -> PolicyTraining:
    """Iterate so often, as a session does."""
    for _ in range(times):
        training.observation, happened = training.learner.iterate(training.observation)
        for experience in happened:
            training.episodes.note(experience.reward, experience.ended)
    return training


def goes_on_exactly(
    order: Order, before: int, after: int, *store: Any, meanwhile: Callable[[], object] = lambda: None
) -> PolicyTraining:
    """Assert that a run, interrupted `before` its last iterations, ends with the checkpoint of an undisturbed one.

    Returns:
        The run that went on.
    """
    whole = advance(begin(order, Alone(), CPU, *store), before + after)
    half = advance(begin(order, Alone(), CPU, *store), before)
    body = save(half, order, Alone())
    assert body is not None
    meanwhile()
    resumed = begin(order, Alone(), CPU, *store)
    assert f"resuming at step {half.learner.step}" in restore(resumed, order, Alone(), body)
    advance(resumed, after)
    assert resumed.learner.network.digest() == whole.learner.network.digest()
    one, two = (unpack(save(end, order, Alone()) or b"") for end in (resumed, whole))
    assert {**one[1], "experience": ""} == {**two[1], "experience": ""}, "but for the time at which it was read"
    assert {name: array.tobytes() for name, array in one[0].items()} == {n: a.tobytes() for n, a in two[0].items()}
    return resumed
