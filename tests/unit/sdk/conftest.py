from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from learnloop_sdk import Learnloop
from testing.servers.policy_servers import CANARY, STABLE, LiveServer, table
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane


class Arms:
    """A stable and a canary policy server that share one routing table."""

    def __init__(self) -> None:
        self.stable = LiveServer(revision=STABLE).start()
        self.canary = LiveServer(revision=CANARY).start()

    def weigh(self, canary: int | None) -> None:
        """Give the canary `canary` percent; None withdraws it."""
        arms = [(STABLE, "stable", 100 - (canary or 0), self.stable.url)]
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


@pytest.fixture
def data_plane() -> Iterator[DataPlane]:
    server = DataPlane()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
async def learn(arms: Arms) -> AsyncIterator[Callable[..., Learnloop]]:
    """Makes Learnloops of agent cart on the stable server's address; closes them."""
    made: list[Learnloop] = []

    def make(**options) -> Learnloop:
        made.append(Learnloop("cart", **{"endpoint": arms.stable.url, "timeout": 60.0, "retry_seconds": 0.3} | options))
        return made[-1]

    yield make
    for loop in made:
        await loop.close(0)
