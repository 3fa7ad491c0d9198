"""Real PostgreSQL, one server for all tests of a process."""

from collections.abc import Iterator

import pytest

from testing.servers.postgres_server import own_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator:
    """One PostgreSQL with pgvector."""
    with own_postgres() as server:
        yield server
