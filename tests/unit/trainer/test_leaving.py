"""SIGTERM to one of several ranks: nobody leaves before the checkpoint is durable, and what is said is true."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from learnloop_trainer.checkpoints import Saver
from learnloop_trainer.errors import PeerLost, Terminated, TrainerError
from learnloop_trainer.groups import Alone
from learnloop_trainer.order import Order, Place
from learnloop_trainer.reporter import Reporter
from learnloop_trainer.session import Session, Stopper
from learnloop_trainer.store.directory import DirectoryStore

Make = Callable[..., Order]


class Two(Alone):
    """One of two ranks; the other contributes `theirs` to each sum. Remembers what this one contributed."""

    def __init__(self, rank: int, theirs: float) -> None:
        self.place, self._theirs, self.said = Place(rank, 2), theirs, list[float]()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        self.said.extend(numbers)
        return [number + self._theirs for number in numbers]


class Slow(DirectoryStore):
    """A store that waits for its gate."""

    gate: threading.Event

    def put_checkpoint(self, body: bytes, step: int) -> str:
        self.gate.wait(200)
        return super().put_checkpoint(body, step)


def session(order: Order, group: Two, saver: Saver, store: DirectoryStore, told: bool) -> Session:
    stopper = Stopper()
    stopper.requested = told
    return Session(order, group, store, Reporter(order, group.place, store), saver, stopper)


@pytest.mark.parametrize(("durable", "says"), [(1.0, "checkpoint saved"), (0.0, "no time to save a checkpoint")])
def test_a_rank_that_leaves_says_of_the_checkpoint_what_rank_0_told_it(
    make_order: Make, tmp_path: Path, durable: float, says: str
) -> None:
    store, group = DirectoryStore(tmp_path, "small-1"), Two(1, durable)
    with pytest.raises(Terminated, match=says):
        session(make_order(), group, Saver(store), store, told=True)._leave()
    assert group.said == [0.0], "only rank 0 knows"


def test_rank_0_lets_the_others_go_only_when_the_checkpoint_is_durable(make_order: Make, tmp_path: Path) -> None:
    store, group = Slow(tmp_path, "small-1"), Two(0, 0.0)
    store.gate = threading.Event()
    saver, ends = Saver(store), list[TrainerError]()
    saver.offer(b"state", 7)
    leaving = session(make_order(), group, saver, store, told=False)

    def leave() -> None:
        try:
            leaving._leave()
        except TrainerError as error:
            ends.append(error)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(0.2)
    assert group.said == [], "the checkpoint is still under way"
    store.gate.set()
    thread.join(120)
    assert group.said == [1.0]
    assert isinstance(ends[0], PeerLost)
    saved = store.checkpoint()
    assert saved is not None
    assert (saved.body, saved.step) == (b"state", 7)
