from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testing.servers.policy_servers import STABLE, LiveServer, linear_policy, table


@pytest.fixture(scope="session")
def stable_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(policy=linear_policy(tmp_path_factory.mktemp("policy"))).start()
    yield server
    server.stop()


@pytest.fixture
def server(stable_server: LiveServer) -> LiveServer:
    """A server whose own revision is stable and alone."""
    stable_server.arm.draining = False
    stable_server.route(table((STABLE, "stable", 100, stable_server.url)))
    return stable_server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    """Starts more servers, stops them all."""
    running: list[LiveServer] = []

    def begin(**options) -> LiveServer:
        running.append(LiveServer(**options).start())
        return running[-1]

    yield begin
    for server in running:
        server.stop()
