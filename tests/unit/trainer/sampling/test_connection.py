"""A learner takes steps from samplers of its own run, and goes on whatever else reaches its port."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import zmq

from learnloop_trainer.sampling.connection import ConnectionLost, LearnerPort, Link, NoMoreSteps, key_pair
from learnloop_trainer.sampling.intake import Intake, RefusedFragment, Shape, Steps
from learnloop_trainer.store.run_store import Arrays, pack, unpack

KEY = b"k" * 32
IDENTITY = {"run": "one", "recipe": "same"}
SHAPE = Shape(steps=2, observations=1, actions=2, numbers=0, choices=0, corrected=True)


class Learner:
    def __init__(self) -> None:
        self.intake = Intake(SHAPE, rows=1, most_staleness=4)
        self.intake.publish({"policy.0.weight": np.ones((1, 2), np.float32)}, 10)
        self.port = LearnerPort(self.intake, KEY, IDENTITY, 1, "{}")
        self.number = self.port.listen("127.0.0.1", 0)

    def link(self, key: bytes = KEY, **identity: str) -> Link:
        return Link("127.0.0.1", self.number, key, IDENTITY | identity)

    def works(self) -> None:
        """A sampler of the run is still served."""
        link = self.link()
        exchanged = threading.Thread(target=link.exchange, args=(SHAPE.room(1),))
        exchanged.start()
        self.learns()
        exchanged.join()
        link.close()

    def learns(self) -> None:
        """One update."""
        assert self.intake.take(10.0) is not None
        self.intake.publish(self.intake.policy.arrays, self.intake.policy.step)


class Liar:
    """A process with the run's key that sends what it likes."""

    def __init__(self, learner: Learner, role: bytes = b"sampler") -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.curve_publickey, self.dealer.curve_secretkey = key_pair(KEY, role)
        self.dealer.curve_serverkey, _ = key_pair(KEY, b"learner")
        self.dealer.connect(f"tcp://127.0.0.1:{learner.number}")

    def hello(self) -> dict[str, str]:
        self.send({}, {"hello": "1", **IDENTITY})
        return self.answer()

    def send(self, arrays: Arrays, words: dict[str, str]) -> None:
        self.dealer.send(pack(arrays, words))

    def answer(self, seconds: float = 30.0) -> dict[str, str]:
        """Words of the next message that is no probe; none where none comes."""
        while self.dealer.poll(seconds * 1000):
            if body := self.dealer.recv():
                return unpack(body)[1]
        return {}


@pytest.fixture
def learner() -> Iterator[Learner]:
    made = Learner()
    yield made
    made.port.close()


@pytest.fixture
def liar(learner: Learner) -> Iterator[Liar]:
    made = Liar(learner)
    yield made
    made.context.destroy(linger=0)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def plain(learner: Learner) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", learner.number), timeout=30) as connection:
        yield connection


def test_a_sampler_gets_the_policy_sends_steps_and_gets_the_next_policy(learner: Learner) -> None:
    link = learner.link()
    assert (link.policy.version, link.policy.step, link.rewards) == (1, 10, "{}")
    assert link.policy.arrays["policy.0.weight"].tolist() == [[1.0, 1.0]]
    assert link.exchange(SHAPE.room(1)).version == 1
    assert learner.intake.take(10.0) is not None
    learner.intake.publish({"policy.0.weight": np.zeros((1, 2), np.float32)}, 12)
    assert link.exchange(SHAPE.room(1)).version == 2
    assert link.policy.arrays["policy.0.weight"].tolist() == [[0.0, 0.0]]


def test_steps_are_about_one_version_old_however_much_faster_samplers_are_than_the_learner(learner: Learner) -> None:
    def plays(link: Link) -> None:
        with suppress(NoMoreSteps, ConnectionLost):
            while True:
                link.exchange(SHAPE.room(1))

    players = [threading.Thread(target=plays, args=(learner.link(),), daemon=True) for _ in range(4)]
    learner.intake.rows = 4
    for player in players:
        player.start()
    for _ in range(20):
        assert learner.intake.take(30.0) is not None
        time.sleep(0.02)
        learner.intake.publish(learner.intake.policy.arrays, learner.intake.policy.step)
    learner.intake.finish()
    for player in players:
        player.join()
    assert learner.intake.summary().mean_staleness <= 1.0
    assert learner.intake.summary().dropped_steps == 0


def test_a_sampler_that_plays_before_it_may_is_refused(learner: Learner, liar: Liar) -> None:
    assert liar.hello()["version"] == "1"
    liar.send(SHAPE.room(1).arrays(), {"version": "1"})
    assert liar.answer()["version"] == "1"
    learner.intake.take(10.0)
    learner.intake.join(1)
    liar.send(SHAPE.room(1).arrays(), {"version": "1"})
    assert liar.answer(0.2) == {}, "one is learned from, one is played"
    liar.send(SHAPE.room(1).arrays(), {"version": "1"})
    assert "before the learner asked for it" in liar.answer()["refused"]
    assert learner.intake.figures()["samplers"] == 1


def test_a_sampler_that_greeted_another_learner_has_to_greet_this_one(learner: Learner, liar: Liar) -> None:
    liar.send(SHAPE.room(1).arrays(), {"version": "1"})
    assert liar.answer() == {"unknown": "1"}
    assert learner.intake.take(0.0) is None


def test_two_samplers_play_other_environments(learner: Learner) -> None:
    links = [learner.link(), learner.link()]
    assert links[0].first != links[1].first
    until(lambda: learner.intake.figures()["samplers"] == 2)


def test_a_sampler_that_goes_is_no_longer_counted(learner: Learner) -> None:
    link = learner.link()
    until(lambda: learner.intake.figures()["samplers"] == 1)
    link.close()
    until(lambda: learner.intake.figures()["samplers"] == 0)


def test_samplers_are_told_when_nobody_learns_any_more(learner: Learner) -> None:
    link = learner.link()
    learner.intake.finish()
    with pytest.raises(NoMoreSteps):
        link.exchange(SHAPE.room(1))


def test_who_does_not_know_the_key_gets_nothing(learner: Learner) -> None:
    with pytest.raises(ConnectionLost):
        learner.link(key=b"x" * 32)
    until(lambda: learner.intake.figures()["refused_fragments"] == 1)
    learner.works()


@pytest.mark.parametrize("said", [{"run": "another"}, {"recipe": "other"}])
def test_a_sampler_of_another_run_or_recipe_is_refused_by_name(learner: Learner, said: dict[str, str]) -> None:
    with pytest.raises(RefusedFragment, match=f"the sampler's {next(iter(said))} is "):
        learner.link(**said)
    learner.works()


def wrong(**arrays: np.ndarray) -> Steps:
    room = SHAPE.room(1).arrays() | arrays
    return Steps(**room)


@pytest.mark.parametrize(
    "steps",
    [
        SHAPE.room(2),
        wrong(reward=np.full((2, 1), np.nan, np.float32)),
        wrong(action=np.full((2, 1), 2)),
        wrong(reward=np.zeros((2, 1), np.float64)),
    ],
)
def test_steps_that_cannot_be_end_their_own_connection_only(learner: Learner, steps: Steps) -> None:
    good = learner.link()
    with pytest.raises(RefusedFragment):
        learner.link().exchange(steps)
    assert learner.intake.figures()["refused_fragments"] == 1
    good.exchange(SHAPE.room(1))
    assert learner.intake.take(10.0) is not None


@pytest.mark.parametrize("version", ["2", "-1", "²", "", None])
def test_versions_that_were_never_published_are_refused(learner: Learner, liar: Liar, version: str | None) -> None:
    liar.hello()
    liar.send(SHAPE.room(1).arrays(), {} if version is None else {"version": version})
    assert "refused" in liar.answer()
    learner.works()


@pytest.mark.parametrize("frames", [[b"noise"], [b"\xff" * 16], [b""], [b"a", b"b"], [pack({}, {}), b""]])
def test_messages_of_another_form_are_refused(learner: Learner, liar: Liar, frames: list[bytes]) -> None:
    liar.hello()
    liar.dealer.send_multipart(frames)
    assert "refused" in liar.answer()
    until(lambda: learner.intake.figures()["samplers"] == 0)
    learner.works()


def test_the_work_of_a_sampler_that_lies_goes_to_another(learner: Learner, liar: Liar) -> None:
    liar.hello()
    learner.intake.rows = 1
    waiting = learner.link()
    liar.send({}, {"version": "1"})
    assert "refused" in liar.answer()
    assert waiting.exchange(SHAPE.room(1)).version == 1


def test_a_message_that_is_too_long_ends_its_connection(learner: Learner, liar: Liar) -> None:
    liar.hello()
    liar.dealer.send(bytes(SHAPE.most_bytes(1) + 64))
    until(lambda: learner.intake.figures()["samplers"] == 0)
    learner.works()


def test_only_the_key_of_samplers_is_admitted(learner: Learner) -> None:
    other = Liar(learner, role=b"somebody")
    other.send({}, {"hello": "1", **IDENTITY})
    assert other.answer(0.5) == {}
    until(lambda: learner.intake.figures()["refused_fragments"] >= 1)
    assert learner.intake.figures()["samplers"] == 0
    other.context.destroy(linger=0)
    learner.works()


@pytest.mark.parametrize("noise", [b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(200), b"\xff" * 4096])
def test_whatever_a_stranger_says_the_learner_goes_on(learner: Learner, noise: bytes) -> None:
    with plain(learner) as connection:
        connection.sendall(noise)
        learner.works()


def test_strangers_that_say_nothing_do_not_take_all_the_places(learner: Learner) -> None:
    silent = [socket.create_connection(("127.0.0.1", learner.number)) for _ in range(64)]
    learner.works()
    for connection in silent:
        connection.close()
