"""How often a state is saved: as asked, and never so often that saving takes more than 1.5 % of the time."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from learnloop_trainer.distributed import Alone
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.saver_and_stopper import Run, Saver, Stopper
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import Session
from learnloop_trainer.training_run.policy_training import begin

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("cost", "strain", "waited", "due"),
    [
        (0.0, 1.0, 0.5, False),
        (0.0, 1.0, 1.1, True),
        (0.03, 1.0, 1.9, False),  # 30 ms are 1.5 % of 2 s
        (0.03, 1.0, 2.1, True),
        (0.03, 4.0, 7.9, False),  # on a busy machine they last four times as long
        (0.03, 4.0, 8.1, True),
    ],
)
def test_a_large_state_is_saved_less_often(
    make_order: Callable[..., Order], tmp_path: Path, cost: float, strain: float, waited: float, due: bool
) -> None:
    order, store, group = make_order(checkpoint={"everySeconds": 1}), DirectoryStore(tmp_path, "small-1"), Alone()
    saver = Saver(store)
    run = Run(order, group, CPU, store, Reporter(order, Place(), store), saver, Stopper(), 0.0)
    session = Session(run, begin)
    saver.cost, session._strain = cost, strain
    session._saved_at = time.monotonic() - waited
    assert session._due() is due


def test_the_tries_that_an_absent_store_cost_do_not_make_saving_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "thread_time", iter([0.0, 0.01, 1.0, 1.5]).__next__)
    saver = Saver(DirectoryStore(tmp_path, "small-1"))
    for step, cost in ((1, 0.01), (2, 0.02)):
        saver.offer(b"state", step)
        saver.require(120)
        assert saver.cost == pytest.approx(cost)
