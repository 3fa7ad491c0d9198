"""Connect a learner with its samplers: ZeroMQ, encrypted and authenticated by CURVE.

Both sides derive CURVE's keys from the run's secret, so a process without it gets no byte. The learner binds one ROUTER
socket; each sampler connects a DEALER. A message is one safetensors container: arrays and a few words, never pickle.
ZeroMQ's heartbeats find a peer whose machine or process stands still.
"""

import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from learnloop_trainer.progress_reporter import say
from learnloop_trainer.sampling.intake import Intake, RefusedFragment, SamplerPolicy, Seat, Steps
from learnloop_trainer.store.run_store import Arrays, pack, unpack

CONNECT_SECONDS = 10
ANSWER_SECONDS = 300  # without a message, probes included
PROBE_SECONDS = 1
HEARTBEAT_MS, SILENCE_MS, HANDSHAKE_MS = 5_000, 30_000, 5_000
MOST_POLICY = 1 << 30
WAITING_MESSAGES = 4  # of one sampler, unread by the learner
BLOCKS = 1 << 40  # of numbers for environments
FAILED = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
LOST = FAILED | zmq.Event.CLOSED | zmq.Event.DISCONNECTED


class ConnectionLost(Exception):
    """The learner cannot be reached, went away, or does not know this sampler."""


class NoMoreSteps(Exception):
    """The learner has finished."""


def key_pair(secret: bytes, role: bytes) -> tuple[bytes, bytes]:
    private = z85.encode(hashlib.blake2b(secret, digest_size=32, person=role).digest())
    return zmq.curve_public(private), private


def _secured(context: zmq.Context[Any], kind: int, secret: bytes, role: bytes, limit: int) -> zmq.Socket[bytes]:
    endpoint: zmq.Socket[bytes] = context.socket(kind)
    endpoint.curve_publickey, endpoint.curve_secretkey = key_pair(secret, role)
    endpoint.setsockopt(zmq.MAXMSGSIZE, limit)
    endpoint.setsockopt(zmq.LINGER, 0)
    endpoint.setsockopt(zmq.IPV6, 1)
    endpoint.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    endpoint.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    endpoint.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    return endpoint


class _OnlySamplers:
    """Admit the run's samplers."""

    def __init__(self, secret: bytes) -> None:
        self._public, _ = key_pair(secret, b"sampler")

    def callback(self, domain: str, key: bytes) -> bool:
        del domain
        return key == self._public


class LearnerPort:
    """The learner's end. One thread serves all samplers, and waits for none of them."""

    def __init__(
        self, intake: Intake, secret: bytes, identity: Mapping[str, str], environments: int, rewards: str
    ) -> None:
        """`identity`: the words in which a sampler must agree; `environments`: of each sampler."""
        self._intake, self._identity, self._environments = intake, dict(identity), environments
        self._rewards = rewards
        self._seats: dict[bytes, Seat] = {}
        self._waiting: dict[bytes, Seat] = {}  # for leave to begin a fragment
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        most = intake.shape.most_bytes(environments)
        self._router = _secured(self._context, zmq.ROUTER, secret, b"learner", most)
        self._router.curve_server = True
        self._router.setsockopt(zmq.ZAP_DOMAIN, b"samplers")
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.RCVHWM, WAITING_MESSAGES)
        self._failures = self._router.get_monitor_socket(FAILED)
        self._authenticator.start()
        self._authenticator.configure_curve_callback("samplers", _OnlySamplers(secret))
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        intake.on_room = self._ring
        self._closing = self._warned = False
        self._thread = threading.Thread(target=self._serve, name="samplers", daemon=True)

    def listen(self, host: str, port: int) -> int:
        """Begin; returns the port, which the system chooses for 0. Raises OSError."""
        try:
            self._router.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            raise OSError(error.errno, str(error)) from None
        self._thread.start()
        return int(self._router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def close(self) -> None:
        """End all connections. After `intake.finish` alone, samplers still learn that no more steps are needed."""
        self._closing = True
        self._ring()
        if self._thread.ident is not None:
            self._thread.join()
        self._authenticator.stop()
        self._context.destroy(linger=0)
        self._wake.close()
        self._woken.close()

    def _ring(self) -> None:
        with suppress(OSError):  # full: the thread will wake anyway
            self._wake.send(b"!")

    def _serve(self) -> None:
        poller = zmq.Poller()
        for source in (self._router, self._failures, self._woken):
            poller.register(source, zmq.POLLIN)
        probed = time.monotonic()
        while not self._closing:
            ready = dict(poller.poll(PROBE_SECONDS * 1000))
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if self._failures in ready:
                recv_monitor_message(self._failures, zmq.NOBLOCK)
                self._intake.refuse()
                if not self._warned:
                    say("a process without the run's key, or with another protocol, tried to connect")
                self._warned = True
            if self._router in ready:
                peer, *frames = self._router.recv_multipart(zmq.NOBLOCK)
                try:
                    self._receive(peer, frames)
                except (RefusedFragment, ValueError) as error:
                    self._refuse(peer, str(error))
            for peer in list(self._waiting):
                self._begin(peer)
            if time.monotonic() - probed >= PROBE_SECONDS:
                probed = time.monotonic()
                for peer in list(self._seats):
                    self._send(peer, None)

    def _receive(self, peer: bytes, frames: list[bytes]) -> None:
        if len(frames) != 1:
            raise RefusedFragment(f"a message has {len(frames)} frames; send one")
        arrays, words = unpack(frames[0])
        seat = self._seats.get(peer)
        if self._intake.over:
            self._send(peer, {"over": "1"})
        elif "hello" in words:
            self._greet(peer, words)
        elif seat is None:
            self._send(peer, {"unknown": "1"})  # of a learner before this one
        else:
            version = _number(words, "version", self._intake.policy.version)
            if not seat.playing:
                raise RefusedFragment("a fragment came before the learner asked for it")
            self._intake.offer(seat, version, self._intake.shape.checked(arrays, self._environments))
            self._waiting[peer] = seat

    def _greet(self, peer: bytes, words: Mapping[str, str]) -> None:
        if peer in self._seats:
            raise RefusedFragment("a sampler greeted twice")
        for name, wanted in self._identity.items():
            if words.get(name) != wanted:
                value = words.get(name, "absent")[:100]
                raise RefusedFragment(f"the sampler's {name} is {value}, the learner's is {wanted[:100]}")
        first = secrets.randbelow(BLOCKS) * self._environments
        self._seats[peer] = self._intake.join(self._environments)
        self._send_policy(peer, {"first": str(first), "rewards": self._rewards})

    def _begin(self, peer: bytes) -> None:
        if self._intake.over:
            del self._waiting[peer]
            self._send(peer, {"over": "1"})
        elif self._intake.begin(self._waiting[peer]):
            del self._waiting[peer]
            self._send_policy(peer, {})

    def _send_policy(self, peer: bytes, words: Mapping[str, str]) -> None:
        policy = self._intake.policy
        self._send(peer, {"version": str(policy.version), "step": str(policy.step), **words}, policy.arrays)

    def _send(self, peer: bytes, words: Mapping[str, str] | None, arrays: Arrays | None = None) -> None:
        """None: an empty message, which fails where the peer is gone."""
        body = b"" if words is None else pack(arrays or {}, words)
        try:
            self._router.send_multipart([peer, body], zmq.NOBLOCK)
        except zmq.Again:
            if words is not None:
                self._drop(peer)  # it reads nothing
        except zmq.ZMQError:
            self._drop(peer)

    def _refuse(self, peer: bytes, why: str) -> None:
        self._intake.refuse()
        say(f"a sampler was refused: {why[:300]}")
        self._drop(peer)
        self._send(peer, {"refused": why[:1024]})

    def _drop(self, peer: bytes) -> None:
        self._waiting.pop(peer, None)
        seat = self._seats.pop(peer, None)
        if seat is not None:
            self._intake.leave(seat)


class Link:
    """A sampler's end. Methods raise ConnectionLost, RefusedFragment and NoMoreSteps.

    Attributes:
        policy: the newest.
        first: number of this sampler's first environment.
        rewards: the spec of the RewardPolicy as JSON; "" without one.
    """

    def __init__(self, host: str, port: int, secret: bytes, identity: Mapping[str, str]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._dealer = _secured(self._context, zmq.DEALER, secret, b"sampler", MOST_POLICY)
            self._dealer.curve_serverkey, _ = key_pair(secret, b"learner")
            self._dealer.setsockopt(zmq.RECONNECT_IVL, -1)  # the next learner does not know this sampler
            self._events = self._dealer.get_monitor_socket(LOST | zmq.Event.HANDSHAKE_SUCCEEDED)
            self._poller = zmq.Poller()
            self._poller.register(self._dealer, zmq.POLLIN)
            self._poller.register(self._events, zmq.POLLIN)
            where = f"[{host}]" if ":" in host else host
            self._dealer.connect(f"tcp://{where}:{port}")
            if not self._poller.poll(CONNECT_SECONDS * 1000):
                raise ConnectionLost("no answer")
            self._heed_events()
            arrays, words = self._ask({}, {"hello": "1", **identity})
            self.policy = SamplerPolicy(_whole(words, "version"), _whole(words, "step"), arrays)
            self.first, self.rewards = _whole(words, "first"), words.get("rewards", "")
        except zmq.ZMQError as error:
            self.close()
            raise ConnectionLost(str(error)) from None
        except BaseException:
            self.close()
            raise

    def exchange(self, steps: Steps) -> SamplerPolicy:
        """Send a fragment of the newest policy; returns the policy of the next one once it may begin."""
        arrays, words = self._ask(steps.arrays(), {"version": str(self.policy.version)})
        self.policy = SamplerPolicy(_whole(words, "version"), _whole(words, "step"), arrays)
        return self.policy

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _ask(self, arrays: Arrays, words: Mapping[str, str]) -> tuple[Arrays, dict[str, str]]:
        self._dealer.send(pack(arrays, words))
        while ready := dict(self._poller.poll(ANSWER_SECONDS * 1000)):
            if self._dealer in ready:
                body = self._dealer.recv()
                if body:
                    return self._heed(body)
            elif self._events in ready:
                self._heed_events()
        raise ConnectionLost(f"no sign of life for {ANSWER_SECONDS} s")

    def _heed(self, body: bytes) -> tuple[Arrays, dict[str, str]]:
        try:
            arrays, words = unpack(body)
        except ValueError as error:
            raise ConnectionLost(str(error)) from None
        if "refused" in words:
            raise RefusedFragment(words["refused"])
        if "over" in words:
            raise NoMoreSteps
        if "unknown" in words:
            raise ConnectionLost("the learner does not know this sampler")
        return arrays, words

    def _heed_events(self) -> None:
        event = zmq.Event(recv_monitor_message(self._events)["event"])
        if event & FAILED:
            raise ConnectionLost("the learner has another key, or speaks another protocol")
        if event & LOST:
            raise ConnectionLost("the connection was closed")


def _number(words: Mapping[str, str], name: str, most: int) -> int:
    text = words.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most):
        raise RefusedFragment(f"{name} is {text[:40]!r}; send a whole number from 0 to {most}")
    return int(text)


def _whole(words: Mapping[str, str], name: str) -> int:
    try:
        return int(words[name])
    except (KeyError, ValueError):
        raise ConnectionLost(f"the learner's answer has no {name}") from None
