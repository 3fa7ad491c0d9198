"""A run that was interrupted ends with exactly the weights of one that was not."""

import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from learnloop_trainer.distributed import Alone
from learnloop_trainer.errors import StoreUnavailable
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.store.run_store import DirectoryStore, pack, unpack
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.checkpoints import Saver, restore, save
from learnloop_trainer.training_run.policy_training import begin
from learnloop_trainer.training_run.training_loop import Run, Session, Stopper
from testing.training.interrupted_runs import advance, goes_on_exactly

CPU = torch.device("cpu")


@settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, 11), algorithm=st.sampled_from(["ppo", "dqn"]))
def test_an_interrupted_run_ends_with_the_same_weights_to_the_last_bit(make_order, cut, algorithm):
    goes_on_exactly(make_order(algorithm, steps=4000), cut, 12 - cut)


class Half(Alone):
    """One of two ranks, for reading a checkpoint only."""

    def __init__(self, rank: int) -> None:
        self.place = Place(rank, 2)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_with_another_number_of_ranks_each_takes_its_own_environments(make_order, algorithm):
    order = make_order(algorithm)
    whole = advance(begin(order, Alone(), CPU), 3)
    body = save(whole, order, Alone())
    halves = [begin(order, Half(rank), CPU) for rank in range(2)]
    notes = [restore(half, order, Half(rank), body) for rank, half in enumerate(halves)]
    assert all("it was saved by 1 ranks, 2 continue" in note for note in notes)
    assert np.array_equal(np.concatenate([half.observation for half in halves]), whole.observation)
    assert {half.learner.network.digest() for half in halves} == {whole.learner.network.digest()}


def test_a_checkpoint_of_another_specification_is_left_aside(make_order, tmp_path, capsys):
    store, other = DirectoryStore(tmp_path, "small-1"), make_order(seed=1)
    body = save(advance(begin(other, Alone(), CPU), 1), other, Alone())
    store.put_checkpoint(body, 64)
    order = make_order()
    run = Run(order, Alone(), CPU, store, Reporter(order, Place(), store), Saver(store), Stopper(), 0.0)
    assert Session(run, begin)._resumed().learner.step == 0
    assert "starting again: the checkpoint belongs to another specification" in capsys.readouterr().out


def test_another_policy_may_serve_when_the_next_attempt_begins(make_order: Callable[..., Order]) -> None:
    order = make_order()
    trained = advance(begin(order, Alone(), CPU), 3)
    body = save(trained, order, Alone())
    update = {"attempt": 1, "baseline_uri": "learnloop://ns/" + "b" * 64, "baseline_sha256": "b" * 64}
    later = Order.model_validate(order.model_dump() | update)
    restore(again := begin(later, Alone(), CPU), later, Alone(), body)
    assert again.learner.network.digest() == trained.learner.network.digest()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_container_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a safetensors container"):
        unpack(body)


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}',
        b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[-2,0]}}',
        b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}',
        b'{"a":{"dtype":"F16","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
        b'{"a":{"dtype":"F16","shape":[1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}',
        b'{"__metadata__":[1]}',
    ],
)
def test_a_hostile_header_is_refused_as_such(header: bytes) -> None:
    with pytest.raises(ValueError, match="a safetensors container"):
        unpack(struct.pack("<Q", len(header)) + header + b"\0\0")


def test_a_container_brings_arrays_and_metadata_back() -> None:
    arrays, metadata = unpack(pack({"a/b": np.arange(6).reshape(2, 3).T}, {"step": "7"}))
    assert arrays["a/b"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert metadata == {"step": "7"}


class Slow(DirectoryStore):
    """A store that takes its time, or fails."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "job")
        self.gate, self.steps, self.broken = threading.Event(), list[int](), False

    def put_checkpoint(self, body: bytes, step: int) -> str:
        self.gate.wait(200)
        self.steps.append(step)
        if self.broken:
            raise StoreUnavailable("the data plane is away")
        return super().put_checkpoint(body, step)


def test_saving_never_waits_and_the_newest_checkpoint_wins(tmp_path: Path) -> None:
    store = Slow(tmp_path)
    saver = Saver(store)
    saver.offer(b"first", 1)
    while saver._waiting is not None:
        time.sleep(0.001)
    saver.offer(b"second", 2)
    saver.offer(b"third", 3)
    assert store.steps == [], "no offer waited for the store"
    store.gate.set()
    saver.require(120)
    assert store.steps == [1, 3]
    assert saver.durable[1] == 3


def test_a_final_checkpoint_that_is_not_durable_is_an_error(tmp_path: Path) -> None:
    store = Slow(tmp_path)
    store.broken = True
    store.gate.set()
    saver = Saver(store)
    saver.offer(b"last", 9)
    with pytest.raises(StoreUnavailable, match="the data plane is away"):
        saver.require(120)
