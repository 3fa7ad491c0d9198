"""Real PostgreSQL, one server for all tests of a process."""

from collections.abc import Iterator
from typing import Any

import pytest

from testing.servers.postgres_server import own_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """One PostgreSQL with pgvector."""
    with own_postgres() as server:
        yield server
