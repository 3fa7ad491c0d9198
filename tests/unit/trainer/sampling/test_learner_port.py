"""A learner takes steps from samplers of its own run, and goes on whatever else anybody sends."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from learnloop_trainer.sampling import frames
from learnloop_trainer.sampling.fragment import RefusedFragment, Shape, Steps
from learnloop_trainer.sampling.frames import HEAD, MAGIC, NONCE_BYTES, Closed
from learnloop_trainer.sampling.intake import Intake
from learnloop_trainer.sampling.learner_link import Link, Over, connect
from learnloop_trainer.sampling.learner_port import MOST_STRANGERS, LearnerPort

KEY = b"k" * 32
SAID = {"run": "one", "recipe": "same"}
SHAPE = Shape(steps=2, observations=1, actions=2, numbers=0, choices=0, corrected=True)


class Learner:
    def __init__(self) -> None:
        self.intake = Intake(SHAPE, rows=1, most_staleness=4)
        self.intake.publish({"policy.0.weight": np.ones((1, 2), np.float32)}, 10)
        self.port = LearnerPort(self.intake, KEY, SAID, 1, {"rewards": "{}"})
        self.number = self.port.listen("127.0.0.1", 0)

    def link(self, key: bytes = KEY, **said: str) -> Link:
        return connect("127.0.0.1", self.number, key, SAID | said)

    def works(self) -> None:
        """A sampler of the run is still served."""
        link = self.link()
        link.exchange(SHAPE.room(1), link.policy.version)
        self.learns()
        link.close()

    def learns(self) -> None:
        """One update."""
        assert self.intake.take(10.0) is not None
        self.intake.publish(self.intake.policy.arrays, self.intake.policy.step)


@pytest.fixture
def learner() -> Iterator[Learner]:
    made = Learner()
    yield made
    made.port.close()


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
    assert link.exchange(SHAPE.room(1), 1).version == 1
    assert learner.intake.take(10.0) is not None
    learner.intake.publish({"policy.0.weight": np.zeros((1, 2), np.float32)}, 12)
    assert link.exchange(SHAPE.room(1), 1).version == 2
    assert link.policy.arrays["policy.0.weight"].tolist() == [[0.0, 0.0]]


def test_steps_are_about_one_version_old_however_much_faster_samplers_are_than_the_learner(learner: Learner) -> None:
    def plays(link: Link) -> None:
        with suppress(Over, Closed):
            while True:
                link.exchange(SHAPE.room(1), link.policy.version)

    players = [threading.Thread(target=plays, args=(learner.link(),), daemon=True) for _ in range(4)]
    learner.intake.rows = 4
    for player in players:
        player.start()
    for _ in range(20):
        assert learner.intake.take(30.0) is not None
        time.sleep(0.02)
        learner.intake.publish(learner.intake.policy.arrays, learner.intake.policy.step)
    learner.port.close()
    for player in players:
        player.join()
    assert learner.intake.told().mean_staleness <= 1.0
    assert learner.intake.told().dropped_steps == 0


def test_a_sampler_that_asks_while_it_plays_or_plays_before_it_may_is_refused(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop_trainer.sampling.learner_port.FULL_SECONDS", 0.05)
    link = learner.link()
    link.channel.send({}, {"version": "1", "known": "1"})
    assert "still awaited" in link.channel.receive(1 << 20, 10.0).words["refused"]
    waiting = learner.link()
    waiting.exchange(SHAPE.room(1), 1)
    learner.intake.take(10.0)
    learner.intake.joined(1)
    waiting.channel.send(SHAPE.room(1).arrays(), {"version": "1", "known": "1"})
    assert "wait" in waiting.channel.receive(1 << 20, 10.0).words
    waiting.channel.send(SHAPE.room(1).arrays(), {"version": "1", "known": "1"})
    assert "nobody had begun" in waiting.channel.receive(1 << 20, 10.0).words["refused"]


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
    learner.port.close()
    with pytest.raises(Over):
        link.exchange(SHAPE.room(1), 1)


def test_who_does_not_know_the_key_gets_nothing(learner: Learner) -> None:
    with pytest.raises(Closed):
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
        learner.link().exchange(steps, 1)
    assert learner.intake.figures()["refused_fragments"] == 1
    good.exchange(SHAPE.room(1), 1)
    assert learner.intake.take(10.0) is not None


@pytest.mark.parametrize("words", [{"version": "2"}, {"version": "-1"}, {"version": "²"}, {"known": ""}, {}])
def test_versions_that_were_never_published_are_refused(learner: Learner, words: dict[str, str]) -> None:
    link = learner.link()
    told = {"version": "1", "known": "1"} | words if words else {}
    link.channel.send(SHAPE.room(1).arrays(), told)
    assert "refused" in link.channel.receive(1 << 20, 10.0).words
    learner.works()


def test_a_frame_cannot_be_sent_a_second_time(learner: Learner) -> None:
    with plain(learner) as connection:
        channel = frames.greet(connection, KEY, SAID)
        channel.receive(1 << 20, 10.0)
        sent: list[bytes] = []
        whole = connection.sendall
        body = frames.pack(SHAPE.room(1).arrays(), {"version": "1", "known": "1"})
        seal = frames.code(channel._key, b"sampler", struct.pack(">Q", 0), body)
        sent.append(HEAD.pack(MAGIC, len(body), seal) + body)
        whole(sent[0])
        assert "refused" not in channel.receive(1 << 20, 10.0).words
        assert learner.intake.take(10.0) is not None
        whole(sent[0])
        assert "refused" in channel.receive(1 << 20, 10.0).words
    assert learner.intake.take(0.0) is None


def test_an_announced_flood_is_refused_before_it_is_read(learner: Learner) -> None:
    with plain(learner) as connection:
        channel = frames.greet(connection, KEY, SAID)
        channel.receive(1 << 20, 10.0)
        connection.sendall(HEAD.pack(MAGIC, 0xFFFFFFFF, b"x" * 32))
        assert "at most" in channel.receive(1 << 20, 10.0).words["refused"]
    learner.works()


@pytest.mark.parametrize("noise", [b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(200), HEAD.pack(MAGIC, 4000, b"x" * 32)])
def test_whatever_a_stranger_says_the_learner_goes_on(learner: Learner, noise: bytes) -> None:
    with plain(learner) as connection:
        assert len(connection.recv(NONCE_BYTES)) == NONCE_BYTES
        connection.sendall(noise)
    learner.works()


def test_strangers_that_say_nothing_do_not_take_all_the_places(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "GREETING_SECONDS", 0.3)
    silent = [socket.create_connection(("127.0.0.1", learner.number)) for _ in range(MOST_STRANGERS + 5)]
    until(lambda: served(learner))
    for connection in silent:
        connection.close()


def served(learner: Learner) -> bool:
    try:
        learner.link().close()
    except Closed:
        return False
    return True
