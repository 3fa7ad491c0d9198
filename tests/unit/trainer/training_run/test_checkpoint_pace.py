"""How often a state is saved: as asked, and never so often that saving takes more than 1.5 % of the time."""

import time

import pytest
import torch

from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_run.checkpoints import Saver

CPU = torch.device("cpu")


def test_the_tries_that_an_absent_store_cost_do_not_make_saving_rare(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "thread_time", iter([0.0, 0.01, 1.0, 1.5]).__next__)
    saver = Saver(DirectoryStore(tmp_path, "small-1"))
    for step, cost in ((1, 0.01), (2, 0.02)):
        saver.offer(b"state", step)
        saver.require(120)
        assert saver.cost == pytest.approx(cost)
