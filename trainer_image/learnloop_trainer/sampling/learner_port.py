"""The learner's side of the connections: it listens, greets samplers, takes fragments and sends policies back.

Whatever a sampler sends, the learner goes on: what does not keep to the protocol ends its own connection only.
"""

import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from learnloop_trainer.progress_reporter import say
from learnloop_trainer.sampling.fragment import RefusedFragment
from learnloop_trainer.sampling.frames import Channel, Closed, Message, ProtocolError, welcome
from learnloop_trainer.sampling.intake import Intake
from learnloop_trainer.sampling.seats import Seat

MOST_CONNECTIONS = 512
MOST_STRANGERS = 32  # that have not greeted yet
IDLE_SECONDS = 3600.0  # a fragment of a slow environment takes its time; dead peers are found by the keep-alive
FULL_SECONDS = 5.0  # how long an answer is held back while enough is under way
TOO_MANY_SECONDS = 0.1  # between two attempts to accept where the process may open no more files
BLOCKS = 1 << 40  # of numbers for environments


class LearnerPort:
    """A thread that accepts, and one for each sampler."""

    def __init__(
        self, intake: Intake, key: bytes, wanted: Mapping[str, str], environments: int, told: Mapping[str, str]
    ) -> None:
        """`wanted`: what a sampler must say of itself; `told`: what it is told. `environments`: that it plays."""
        self._intake, self._key, self._wanted, self._told = intake, key, dict(wanted), dict(told)
        self._environments = environments
        self._most = intake.shape.most_bytes(environments)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._strangers = 0
        self._server: socket.socket | None = None

    def listen(self, host: str, port: int) -> int:
        """Begin; returns the port, which the system chooses for 0. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, port), family=family, backlog=128)
        threading.Thread(target=self._accept, args=(self._server,), name="samplers", daemon=True).start()
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        """Nobody is heard any more."""
        self._intake.finish()
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                if self._intake.over or server.fileno() < 0:
                    return
                time.sleep(TOO_MANY_SECONDS)  # too many open files: some will be closed
                continue
            with self._lock:
                full = len(self._open) >= MOST_CONNECTIONS or self._strangers >= MOST_STRANGERS
                if not full:
                    self._open.add(connection)
                    self._strangers += 1
            if full:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="sampler", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        channel: Channel | None = None
        try:
            with suppress(OSError):
                _keep_alive(connection)
            try:
                channel, words = welcome(connection, self._key)
            finally:
                with self._lock:
                    self._strangers -= 1
            self._admit(channel, words)
        except Closed:
            pass  # a sampler may go at any time
        except (ProtocolError, RefusedFragment) as error:
            self._intake.refused()
            say(f"a sampler was refused: {str(error)[:300]}")
            if channel is not None:
                with suppress(Closed):
                    channel.send({}, {"refused": str(error)[:1024]})
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _admit(self, channel: Channel, words: Mapping[str, str]) -> None:
        for name, wanted in self._wanted.items():
            if words.get(name) != wanted:
                told = words.get(name, "nothing")[:100]
                raise RefusedFragment(f"the sampler's {name} is {told}, the learner's is {wanted[:100]}")
        first = secrets.randbelow(BLOCKS) * self._environments
        policy = self._intake.policy
        greeting = {"first": str(first), "version": str(policy.version), "step": str(policy.step)}
        channel.send(policy.arrays, self._told | greeting)
        seat = self._intake.joined(self._environments)
        try:
            # One that speaks after the end is told so: a connection that just broke is one to try again.
            while self._answer(channel, channel.receive(self._most, IDLE_SECONDS), seat):
                pass
        finally:
            self._intake.left(seat)

    def _answer(self, channel: Channel, message: Message, seat: Seat) -> bool:
        """Whether there is more to be said."""
        if self._intake.over:
            channel.send({}, {"over": "1"})
            return False
        version = _number(message.words, "version", self._intake.policy.version)
        known = _number(message.words, "known", self._intake.policy.version)
        if bool(message.arrays) != seat.playing:
            raise RefusedFragment(
                "a fragment came that nobody had begun" if message.arrays else "a fragment is still awaited"
            )
        if message.arrays:
            steps = self._intake.shape.checked(message.arrays, self._environments)
            if not self._intake.offer(seat, version, steps, FULL_SECONDS):
                channel.send({}, {"again": "1"})
                return True
        begun = self._intake.begin(seat, FULL_SECONDS)
        policy = self._intake.policy
        if self._intake.over:
            channel.send({}, {"over": "1"})
            return False
        if not begun:
            channel.send({}, {"wait": "1"})
            return True
        if policy.version == known:
            channel.send({}, {"version": str(policy.version)})
        else:
            channel.send(policy.arrays, {"version": str(policy.version), "step": str(policy.step)})
        return True


def _number(words: Mapping[str, str], name: str, most: int) -> int:
    text = words.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):
        raise RefusedFragment(f"{name} is {text[:40]!r}, a whole number up to {most} was expected")
    return int(text)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, number in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), number)
