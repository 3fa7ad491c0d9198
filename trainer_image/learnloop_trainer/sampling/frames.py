"""Frames between a learner and its samplers: bounded, numbered, and each with a code that only the run's key makes.

    frame = magic (4 bytes), length of the body (4), HMAC-SHA256 (32), body: a safetensors container

There is no pickle: a body is numbers and a few words. The code covers the direction and the frame's number, so that no
frame can be repeated, left out or turned round. Both sides add random bytes to the key, so that no frame of another
connection fits. The key proves that the other side belongs to the run. Nothing is encrypted: what goes through is seen
by whoever sees the network of the pods, as gradients between ranks are.
"""

import hmac
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.store.array_container import Arrays, pack, unpack

MAGIC = b"LLS1"
HEAD = struct.Struct(">4sI32s")
NONCE_BYTES = 32
MOST_GREETING = 4096
GREETING_SECONDS = 5.0
BODY_SECONDS = 60.0  # from a frame's head to its end
MOST_POLICY = 1 << 30


class ProtocolError(Exception):
    """The other side does not keep to the protocol, or is not of this run. The text is one sentence."""


class Closed(Exception):
    """The other side is gone."""


class Message(NamedTuple):
    """What a frame carries."""

    arrays: Arrays
    words: Mapping[str, str]


def code(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 of parts, the length of each included."""
    return hmac.digest(key, b"".join(struct.pack(">Q", len(part)) + part for part in parts), "sha256")


class Channel:
    """One side of a connection whose other side knows the key."""

    def __init__(self, connection: socket.socket, key: bytes, mine: bytes, theirs: bytes) -> None:
        """`mine` and `theirs` name the directions."""
        self._socket, self._key, self._mine, self._theirs = connection, key, mine, theirs
        self._sent = self._received = 0

    def send(self, arrays: Mapping[str, NDArray[np.generic]], words: Mapping[str, str]) -> None:
        """Raises Closed."""
        body = pack(arrays, words)
        seal = code(self._key, self._mine, struct.pack(">Q", self._sent), body)
        self._sent += 1
        write(self._socket, HEAD.pack(MAGIC, len(body), seal) + body, BODY_SECONDS)

    def receive(self, most: int, patience: float) -> Message:
        """The next frame, of `most` bytes at most, which begins within `patience` seconds.

        Raises:
            Closed: there is none.
            ProtocolError: it is too long, or not of who knows the key. The connection is of no more use.
        """
        seal, body = read_frame(self._socket, most, patience, BODY_SECONDS)
        if not hmac.compare_digest(seal, code(self._key, self._theirs, struct.pack(">Q", self._received), body)):
            raise ProtocolError("a frame has another code than the run's key makes of it")
        self._received += 1
        try:
            return Message(*unpack(body))
        except ValueError as error:
            raise ProtocolError(str(error)) from None


def read_frame(connection: socket.socket, most: int, patience: float, seconds: float) -> tuple[bytes, bytes]:
    """The code and the body of a frame, its head within `patience` seconds, its body within `seconds` after that.

    Raises as `Channel.receive` does.
    """
    magic, length, seal = HEAD.unpack(read(connection, HEAD.size, patience))
    if magic != MAGIC:
        raise ProtocolError("something that is no sampler of this version speaks here")
    if length > most:
        raise ProtocolError(f"a frame of {length} bytes is announced, at most {most} were expected")
    return seal, read(connection, length, seconds)


def read(connection: socket.socket, count: int, seconds: float) -> bytes:
    """Exactly `count` bytes, all of them within `seconds`; raises Closed."""
    end, body = time.monotonic() + seconds, bytearray(count)
    view, got = memoryview(body), 0
    while got < count:
        left = end - time.monotonic()
        if left <= 0:
            raise Closed(f"only {got} of {count} bytes came within {seconds:.0f} s")
        connection.settimeout(left)
        try:
            more = connection.recv_into(view[got:])
        except OSError as error:
            raise Closed(str(error) or type(error).__name__) from None
        if not more:
            raise Closed("the connection was closed")
        got += more
    return bytes(body)


def write(connection: socket.socket, body: bytes, seconds: float) -> None:
    """All bytes; raises Closed where nobody takes them within `seconds`."""
    connection.settimeout(seconds)
    try:
        connection.sendall(body)
    except OSError as error:
        raise Closed(str(error) or type(error).__name__) from None


def greet(connection: socket.socket, key: bytes, words: Mapping[str, str]) -> Channel:
    """The sampler's side: prove to the learner that this is a sampler of the run.

    The learner has proven as much when its first frame can be read.
    """
    nonce = read(connection, NONCE_BYTES, GREETING_SECONDS)
    mine = secrets.token_bytes(NONCE_BYTES)
    body = pack({"nonce": np.frombuffer(mine, dtype=np.uint8)}, words)
    write(connection, HEAD.pack(MAGIC, len(body), code(key, b"hello", nonce, body)) + body, GREETING_SECONDS)
    return Channel(connection, code(key, b"session", nonce, mine), b"sampler", b"learner")


def welcome(connection: socket.socket, key: bytes) -> tuple[Channel, Mapping[str, str]]:
    """The learner's side: the channel, and what the sampler says of itself.

    Raises:
        ProtocolError: it does not know the key.
        Closed: it went away, or said nothing in time.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    write(connection, nonce, GREETING_SECONDS)
    seal, body = read_frame(connection, MOST_GREETING, GREETING_SECONDS, GREETING_SECONDS)
    if not hmac.compare_digest(seal, code(key, b"hello", nonce, body)):
        raise ProtocolError("who greets does not know the run's key")
    try:
        arrays, words = unpack(body)
        theirs = arrays["nonce"].tobytes()
    except (ValueError, KeyError):
        raise ProtocolError("a greeting cannot be read") from None
    if len(theirs) != NONCE_BYTES:
        raise ProtocolError(f"a greeting has {len(theirs)} random bytes, {NONCE_BYTES} are needed")
    return Channel(connection, code(key, b"session", nonce, theirs), b"learner", b"sampler"), words
