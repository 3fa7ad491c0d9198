"""SIGTERM to one of several ranks: none leaves before the checkpoint is durable, and the message is true."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest
import torch

from learnloop_common.acting import onnx_policy
from learnloop_environments.errors import TrainerError
from learnloop_environments.watchdog import Watchdog
from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import PeerLost, Terminated
from learnloop_trainer.export import other_formats
from learnloop_trainer.export.exported_policy import OnnxPolicy
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import Saver
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin
from learnloop_trainer.training_run.training_loop import Run, Session, Stopper

Make = Callable[..., Order]


class Two(Alone):
    """One of two ranks; the other contributes `theirs` to each sum. Remembers what this one contributed."""

    def __init__(self, rank: int, value: float) -> None:
        self.place, self._peer_value, self.sums = Place(rank, 2), value, list[float]()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        self.sums.extend(numbers)
        return [number + self._peer_value for number in numbers]


class Slow(DirectoryStore):
    """A store that waits for its gate."""

    gate: threading.Event

    def put_checkpoint(self, body: bytes, step: int) -> str:
        self.gate.wait(200)
        return super().put_checkpoint(body, step)


def session(order: Order, group: Two, saver: Saver, store: DirectoryStore, notified: bool) -> Session[PolicyTraining]:
    stopper = Stopper()
    stopper.requested = notified
    reporter = Reporter(order, group.place, store)
    return Session(Run(order, group, torch.device("cpu"), store, reporter, saver, stopper, 0.0), begin)


@pytest.mark.parametrize(("durable", "says"), [(1.0, "checkpoint saved"), (0.0, "no time to save a checkpoint")])
def test_a_rank_that_leaves_says_of_the_checkpoint_what_rank_0_told_it(make_order, tmp_path, durable, says):
    store, group = DirectoryStore(tmp_path, "small-1"), Two(1, durable)
    with pytest.raises(Terminated, match=says):
        session(make_order(), group, Saver(store), store, notified=True)._leave()
    assert group.sums == [0.0], "only rank 0 knows"


def test_rank_0_lets_the_others_go_only_when_the_checkpoint_is_durable(make_order: Make, tmp_path: Path) -> None:
    store, group = Slow(tmp_path, "small-1"), Two(0, 0.0)
    store.gate = threading.Event()
    saver, ends = Saver(store), list[TrainerError]()
    saver.offer(b"state", 7)
    leaving = session(make_order(), group, saver, store, notified=False)

    def leave() -> None:
        try:
            leaving._leave()
        except TrainerError as error:
            ends.append(error)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(0.2)
    assert group.sums == [], "the checkpoint is still under way"
    store.gate.set()
    thread.join(120)
    assert group.sums == [1.0]
    assert isinstance(ends[0], PeerLost)
    saved = store.checkpoint()
    assert (saved.body, saved.step) == (b"state", 7)


@pytest.fixture
def listening() -> Iterator[None]:
    """SIGTERM is Terminated immediately, as it is before and after training."""
    before = signal.getsignal(signal.SIGTERM)
    Stopper().install()
    yield
    signal.signal(signal.SIGTERM, before)


def _terminated(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("the signal came too late")


def _running_the_exported_policy(_: pytest.MonkeyPatch) -> None:
    policy = OnnxPolicy.__new__(OnnxPolicy)
    policy.served = onnx_policy.OnnxPolicy.__new__(onnx_policy.OnnxPolicy)
    policy.served._session, policy.served._outputs, policy.served.memory = (
        SimpleNamespace(run=_terminated),
        ["action"],
        0,
    )
    policy.run(np.zeros((1, 4), np.float32))


def _converting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_formats, "read", _terminated)
    other_formats.torchscript(b"")


def _stepping_the_environment(_: pytest.MonkeyPatch) -> None:
    Watchdog("any").run("step", _terminated)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("work", [_running_the_exported_policy, _converting_it, _stepping_the_environment])
def test_who_is_told_to_leave_amid_foreign_code_blames_nobody(monkeypatch, work):
    with pytest.raises(Terminated, match="leaving"):
        work(monkeypatch)
