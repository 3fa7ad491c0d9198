"""A data plane that remembers what it was sent."""

from collections.abc import Iterator

import pytest

from testing.servers.recording_server import DataPlane


@pytest.fixture
def data_plane() -> Iterator[DataPlane]:
    server = DataPlane()
    yield server
    server.shutdown()
    server.server_close()
