"""Ports that stay a test's own."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 that is this test's until the block ends: dead until a server of the test listens on it.

    A bound socket that never listens keeps it. No other process gets the port in the meantime, however often the
    test's server is killed and started again, because Linux gives a port that is bound to a process that asks for any
    port, and lets only those share it that name it and set SO_REUSEADDR, as every server here does (socket(7), ip(7)).
    Connections are refused immediately while no server listens.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
