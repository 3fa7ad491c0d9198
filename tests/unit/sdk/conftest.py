import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig
from policy_world import CANARY, STABLE, LiveServer, table
from ports import held_port

from learnloop_sdk import Learnloop


class Arms:
    """A stable and a canary policy server that share one routing table."""

    def __init__(self) -> None:
        self.stable = LiveServer(revision=STABLE).start()
        self.canary = LiveServer(revision=CANARY).start()

    def weigh(self, canary: int | None) -> None:
        """Give the canary `canary` percent; None withdraws it."""
        arms: list[Any] = [(STABLE, "stable", 100 - (canary or 0), self.stable.url)]
        if canary is not None:
            arms.append((CANARY, "canary", canary, self.canary.url))
        for server in (self.stable, self.canary):
            server.route(table(*arms))


@pytest.fixture(scope="session")
def both_arms() -> Iterator[Arms]:
    arms = Arms()
    yield arms
    arms.stable.stop()
    arms.canary.stop()


@pytest.fixture
def arms(both_arms: Arms) -> Arms:
    both_arms.weigh(0)
    return both_arms


@pytest.fixture
def free_port() -> Iterator[int]:
    """Dead until a server of this test listens on it, as often as it likes."""
    with held_port() as port:
        yield port


class DataPlane(ThreadingHTTPServer):
    """The two routes the SDK posts to, with the answers a test sets."""

    allow_reuse_address = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.posts: list[tuple[str, bytes, dict[str, str]]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def bodies(self, path: str = "/api/v1/trajectories") -> list[bytes]:
        return [body for where, body, _ in self.posts if where == path]


class Handler(BaseHTTPRequestHandler):
    server: DataPlane

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.posts.append((self.path, body, {key.lower(): value for key, value in self.headers.items()}))
        status, answer = self.server.answers.get(self.path, (202, b"{}"))
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def data_plane() -> Iterator[DataPlane]:
    server = DataPlane()
    yield server
    server.shutdown()
    server.server_close()


class Nats:
    """A real nats-server with JetStream on disk, which can be killed and started again."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self.url = f"nats://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = Path(sys.executable).parent / "nats-server"
        self._process = subprocess.Popen(
            [str(binary), "-js", "-a", "127.0.0.1", "-p", str(self._port), "-sd", str(self._directory)],
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5):
                return
            time.sleep(0.02)
        raise AssertionError("nats-server did not start")

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def stream(self) -> None:
        """The stream of trajectories, as the data plane makes it."""
        client = await nats.connect(self.url, connect_timeout=20)
        config = StreamConfig(name="TRAJECTORIES", subjects=["agent.rl.trajectory.v1.>"], duplicate_window=120)
        await client.jetstream(timeout=60).add_stream(config)
        await client.close()

    async def messages(self) -> list[tuple[str, str, bytes]]:
        """(subject, Nats-Msg-Id, payload) of everything stored."""
        client = await nats.connect(self.url, connect_timeout=20)
        stream = client.jetstream(timeout=60)
        count = (await stream.stream_info("TRAJECTORIES")).state.messages
        found = [await stream.get_msg("TRAJECTORIES", seq) for seq in range(1, count + 1)]
        await client.close()
        return [(str(m.subject), (m.headers or {})["Nats-Msg-Id"], m.data or b"") for m in found]


@pytest.fixture
async def broker(tmp_path: Path, free_port: int) -> AsyncIterator[Nats]:
    server = Nats(tmp_path / "jetstream", free_port)
    await asyncio.to_thread(server.start)
    await server.stream()
    yield server
    server.kill()


@pytest.fixture
async def learn(arms: Arms) -> AsyncIterator[Callable[..., Learnloop]]:
    """Makes Learnloops of agent cart on the stable server's address; closes them."""
    made: list[Learnloop] = []

    def make(**options: Any) -> Learnloop:
        made.append(Learnloop("cart", **{"endpoint": arms.stable.url, "timeout": 60.0, "retry_seconds": 0.3} | options))
        return made[-1]

    yield make
    for loop in made:
        await loop.close(0)
