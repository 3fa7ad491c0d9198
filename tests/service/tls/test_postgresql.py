"""PostgreSQL by TLS, run by the chart's `follow`: a rollover under load refuses no client.

It takes a PostgreSQL that was built with OpenSSL, as Debian's is; the tests' own package was not.
"""

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from testing.certificates import Folder, authority, folder
from testing.servers.ports import held_port
from testing.servers.tls_parts import postgres_by_tls, programs_with_tls

PROGRAMS = programs_with_tls()
pytestmark = pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL with OpenSSL in /usr/lib/postgresql")
SETTLE_SECONDS = 1.5
ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture
def served() -> Iterator[tuple[str, Folder]]:
    root = Path(tempfile.mkdtemp(prefix="learnloop-tls-"))
    root.chmod(0o755)
    files = folder(root / "tls", authority("old"))
    assert PROGRAMS
    with held_port() as port, postgres_by_tls(PROGRAMS, root / "pg", files, port) as url:
        yield url, files
    shutil.rmtree(root, ignore_errors=True)


async def test_a_rollover_of_its_certificate_under_load_refuses_nobody(served: tuple[str, Folder]) -> None:
    url, files = served
    old, new = authority("old"), authority("new")
    files.trust(old).show(old)
    dsn = f"{url}?sslmode=verify-full&sslrootcert={files.bundle}"
    await asyncio.sleep(SETTLE_SECONDS)
    over, connected = asyncio.Event(), 0
    held = await asyncpg.connect(dsn)

    async def keep_connecting() -> None:
        nonlocal connected
        while not over.is_set():
            connection = await asyncpg.connect(dsn, timeout=30)
            assert await connection.fetchval(ENCRYPTED)
            await connection.close()
            connected += 1

    task = asyncio.create_task(keep_connecting())

    async def settle() -> None:
        before = connected
        await asyncio.sleep(SETTLE_SECONDS)
        while connected < before + 3:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.05)

    await settle()
    files.trust(new, old)
    await settle()
    files.show(new)
    await settle()
    files.trust(new)
    await settle()
    over.set()
    await task
    assert await held.fetchval(ENCRYPTED), "the connection from before the rollover lives on"
    await held.close()
    # Optuna's driver reads the same URL.
    with psycopg.connect(dsn) as connection:
        assert connection.execute(ENCRYPTED).fetchone() == (True,)


async def test_it_takes_nobody_without_tls_and_believes_no_other_authority(served: tuple[str, Folder]) -> None:
    url, files = served
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
        await asyncpg.connect(f"{url}?sslmode=disable")
    stranger = folder(files.path.parent / "stranger", authority("stranger"))
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncpg.connect(f"{url}?sslmode=verify-full&sslrootcert={stranger.bundle}")
    old = ssl.create_default_context(cafile=files.bundle)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE+AES:!AESGCM:!AESCCM")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncpg.connect(url, ssl=old)
    old.set_ciphers("ECDHE+AESGCM")
    await (await asyncpg.connect(url, ssl=old)).close()
