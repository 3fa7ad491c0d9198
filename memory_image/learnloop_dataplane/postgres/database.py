"""The connection pool and the one way to touch tenant rows: a transaction that named its namespace.

Rows that are created, read, updated and deleted one by one go through `Database.session`, as objects of their tables'
classes. What handles many rows at a time or lies on a hot path (intake, rewards, recall, consolidation, outboxes,
audit, claims, aggregates) is plain SQL on `Database.tenant`: a session's statement takes half a millisecond more CPU.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import asyncpg
from asyncpg.pgproto.pgproto import UUID  # an uuid.UUID, made and sent 20 times faster
from pgvector.asyncpg import register_vector
from pydantic_core import from_json, to_json
from sqlalchemy import NullPool, exc, inspect
from sqlalchemy.dialects import postgresql, registry
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlmodel import SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

from learnloop_dataplane.concurrency.background_loop import Connecting, cancel, short
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.row_level_security import SERVICE_ROLE, SETTING

HEAD = "0001"  # the newest migration; a test compares it with the files
STEPS_OF = "s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id"
"""`s` is training_transitions, `t` trajectories."""
STEPS_OF_EACH = f"CROSS JOIN LATERAL (SELECT s.* FROM training_transitions s WHERE {STEPS_OF} OFFSET 0) s"
"""The same after `FROM t`, looked up row by row: a page's steps are never joined with all there are."""


AHEAD = 4096  # random bytes asked of the kernel at a time: a call for each id costs more than the rest of it
_ahead = bytearray()
_latest = 0  # milliseconds << 12 | counter, of the last id


def uuid7() -> UUID:
    """A version 7 UUID (RFC 9562, section 5.7): 48 bits of Unix milliseconds, a counter, then random bits.

    The counter (section 6.2, method 1) keeps what one process makes in the order in which it made it: the memories of a
    batch have one instant, and their order is that of the conversation. PostgreSQL 18 has `uuidv7()` built in, 17 has
    not, so it is made here.
    """
    global _latest
    if len(_ahead) < 8:
        _ahead[:] = os.urandom(AHEAD)
    random = int.from_bytes(_ahead[-8:])
    del _ahead[-8:]
    _latest = max(time.time_ns() // 1_000_000 << 12, _latest + 1)
    head = (_latest >> 12) << 16 | 0x7000 | _latest & 0xFFF
    return UUID((head << 64 | random & ~(0xC000 << 48) | 0x8000 << 48).to_bytes(16))


os.register_at_fork(after_in_child=_ahead.clear)  # two processes must not make the same ids


log = logging.getLogger(__name__)

# What a database that is restarting, gone or overloaded looks like; all of it passes.
TRANSIENT = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # to go on with a connection that broke in the middle of an answer
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidPasswordError,  # it is being rotated: this process is about to be replaced
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)
COMMAND_SECONDS = 15.0
"""For one statement that does not say otherwise."""
ACQUIRE_SECONDS = 5.0
Row = TypeVar("Row", bound=SQLModel)
_lent: ContextVar[Any] = ContextVar("lent")


class LentDialect(postgresql.asyncpg.PGDialect_asyncpg):
    """SQLAlchemy's own, for a connection that the pool has set up, and that goes back to it as it was."""

    supports_statement_cache = True
    supports_native_json_deserialization = False  # plain SQL on the same connection reads jsonb as text

    def on_connect(self) -> None:
        """Sets no codecs."""

    def do_close(self, dbapi_connection: Any) -> None:
        """Leaves it open."""

    do_terminate = do_close


async def _borrow() -> Any:
    return _lent.get()


registry.register("postgresql.lent", __name__, LentDialect.__name__)


class Session(AsyncSession):
    """A sqlmodel session in a transaction of `Database.tenant`.

    Attributes:
        raw: its connection, for plain SQL.
    """

    def __init__(self, lent: AsyncConnection, connection: Any) -> None:
        super().__init__(lent, expire_on_commit=False)
        self.raw = connection

    async def insert(self, row: SQLModel) -> bool:
        """Inserts a row now; False when its key is there already."""
        values = row.model_dump(exclude_unset=True)
        result = await self.exec(postgresql.insert(type(row)).values(values).on_conflict_do_nothing())
        return result.rowcount > 0

    async def locked(self, row: Row) -> Row:
        """The stored row of this key, inserted if it is missing; nothing else changes it in this transaction."""
        key = tuple(inspect(type(row)).primary_key_from_instance(row))
        while True:
            await self.insert(row)
            stored = await self.get(type(row), key, with_for_update=True)
            if stored is not None:  # else another transaction has deleted it in between
                return stored


class Database(Connecting):
    """PostgreSQL, migrated and pooled. `start` returns immediately and keeps trying until the database answers."""

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 10,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`first` is done before the first connection, again until it can be."""
        super().__init__("PostgreSQL")
        self._dsn = dsn
        self._first = first
        self._size = pool_size
        self._pool: asyncpg.Pool | None = None
        self._registered: set[str] = set()
        self._engine = create_async_engine(
            "postgresql+lent://",
            poolclass=NullPool,
            async_creator=_borrow,
            isolation_level="AUTOCOMMIT",  # `transaction` begins and ends
            json_serializer=lambda value: to_json(value, inf_nan_mode="null").decode(),
            json_deserializer=from_json,
        )

    async def close(self) -> None:
        await cancel([self.starting])
        if self._pool:
            try:
                await asyncio.wait_for(self._pool.close(), 5)
            except TimeoutError:
                self._pool.terminate()

    @asynccontextmanager
    async def tenant(self, namespace: str) -> AsyncIterator[Any]:
        """A transaction that sees and writes the rows of one namespace only.

        Raises:
            Unavailable: no connection within 5 s, or it broke on the way: nothing was committed. What asks the database
                raises it as well; docstrings do not repeat it.
        """
        async with self.transaction() as connection:
            await connection.execute(f"SELECT set_config('{SETTING}', $1, true)", namespace)
            if namespace not in self._registered:
                await connection.execute(
                    "INSERT INTO tenants (namespace) VALUES ($1) ON CONFLICT DO NOTHING", namespace
                )
            yield connection
        self._registered.add(namespace)

    @asynccontextmanager
    async def session(self, namespace: str) -> AsyncIterator[Session]:
        """The same with a sqlmodel session, whose changes are written at its end."""
        async with self.tenant(namespace) as connection:
            try:
                async with aclosing(await self._lend(connection)) as lent, Session(lent, connection) as session:
                    yield session
                    await session.commit()
            except exc.DBAPIError as error:
                raise error.driver_exception from error

    async def _lend(self, connection: Any) -> AsyncConnection:
        """SQLAlchemy's view of this connection; bound here, so that two open sessions never use each other's."""
        token = _lent.set(connection)
        try:
            return await self._engine.connect()
        finally:
            _lent.reset(token)

    async def fetch_as(self, namespace: str, statement: str, *arguments: Any) -> list[Any]:
        """One statement that names its namespace itself: one round trip instead of the five of a transaction.

        Args:
            namespace: becomes $1.
            statement: begins its FROM with `set_config('app.namespace', $1, true) AS s(namespace)` and has everything
                else depend on `s`; a part that ran before would see no row at all.

        Raises:
            Unavailable: as for `tenant`.
        """
        if namespace not in self._registered:
            async with self.tenant(namespace) as connection:
                rows: list[Any] = await connection.fetch(statement, namespace, *arguments)
                return rows
        async with self._connection() as connection:
            rows = await connection.fetch(statement, namespace, *arguments)
            return rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction without a namespace: it sees no tenant row at all."""
        async with self._connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool is None:
            raise Unavailable("PostgreSQL")
        try:
            async with self._pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                yield connection
        except TRANSIENT as error:
            raise await self._away(error) from error

    async def _away(self, error: BaseException) -> Unavailable:
        """A server that takes no writes has become a standby: its connections work, and so would never be replaced."""
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError) and self._pool:
            await self._pool.expire_connections()
        log.warning("PostgreSQL: %s", short(error))
        return Unavailable("PostgreSQL")

    async def namespaces(self) -> list[str]:
        """Every namespace that ever wrote something, in order."""
        async with self.transaction() as connection:
            rows = await connection.fetch("SELECT namespace FROM tenants ORDER BY namespace")
        return [row["namespace"] for row in rows]

    async def ping(self) -> None:
        """Raises Unavailable unless PostgreSQL answers within 2 s."""
        try:
            async with asyncio.timeout(2), self.transaction() as connection:
                await connection.execute("SELECT 1")
        except TimeoutError as error:
            raise Unavailable("PostgreSQL") from error

    async def connect(self) -> None:
        if self._first:
            await self._first()
        await _upgrade(self._dsn)
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=2,
            max_size=self._size,
            timeout=5,
            command_timeout=COMMAND_SECONDS,
            init=_prepare,
            # Every setting is made with SET LOCAL, so a returned connection has nothing to reset.
            reset=_keep,
            # Planning a hot statement takes as long as running it twice, and every plan here goes by keys.
            server_settings={
                "application_name": "learnloop-memory",
                "jit": "off",
                "plan_cache_mode": "force_generic_plan",
            },
        )


async def _upgrade(dsn: str) -> None:
    """Migrates unless the database is at the newest revision already: a restart then needs no Alembic at all."""
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        migrated = await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
        revision = str(await connection.fetchval("SELECT version_num FROM alembic_version")) if migrated else ""
        if revision == HEAD:
            await _require_columns(connection)
            return
        if revision > HEAD:
            raise RuntimeError(
                f"the database has schema {revision}, and this version knows {HEAD}: install the newer version again, "
                "or restore the backup from before the upgrade"
            )
    finally:
        await connection.close()
    from learnloop_dataplane.postgres.logins import migrate

    await migrate(dsn)


async def _require_columns(connection: asyncpg.Connection) -> None:
    """Raises RuntimeError for a database that an unreleased version made: nothing was released, so HEAD has changed."""
    rows = await connection.fetch(
        "SELECT c.relname || '.' || a.attname AS name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped"
    )
    wanted = {f"{table.name}.{one.name}" for table in SQLModel.metadata.tables.values() for one in table.columns}
    if missing := sorted(wanted - {row["name"] for row in rows}):
        raise RuntimeError(
            f"the database lacks {', '.join(missing[:5])}: a version before the first release made it; begin with an "
            "empty database, or add what is missing by ALTER TABLE, as the models in postgres/ say"
        )


async def _prepare(connection: asyncpg.Connection) -> None:
    """Steps down to the service role and refuses to work as a login that row-level security does not bind."""
    exists = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", SERVICE_ROLE)
    if exists and await connection.fetchval("SELECT pg_has_role(current_user, $1, 'SET')", SERVICE_ROLE):
        await connection.execute(f"SET ROLE {SERVICE_ROLE}")
    bypass = await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
    if bypass:
        raise RuntimeError(
            f"the login of LEARNLOOP_DSN bypasses row-level security and may not become {SERVICE_ROLE}; "
            f"grant it that role or use an ordinary login"
        )
    await register_vector(connection)


async def _keep(connection: asyncpg.Connection) -> None:
    return None


LOOK_SECONDS = 1.0
ANALYZE_SECONDS = 60.0
# Again each time a table has doubled; a few pages are read quickly whatever the plan.
_GROWN = """
SELECT quote_ident(relname) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_has_role(session_user, relowner, 'USAGE')
    AND pg_relation_size(oid) > (2 * relpages + 8) * current_setting('block_size')::bigint ORDER BY 1
"""


class Statistics:
    """Analyzes what has doubled, of the tables that belong to the login of the DSN.

    Args:
        dsn: the role the service works under may not analyze.
    """

    def __init__(self, db: Database, dsn: str) -> None:
        self._db = db
        self._dsn = dsn

    async def refresh(self) -> list[str]:
        """Analyzes the tables that are twice as large as when they were analyzed last; returns their names.

        Raises:
            Unavailable: PostgreSQL does not answer; the next look finds them again.
        """
        async with self._db.transaction() as connection:
            grown = [row[0] for row in await connection.fetch(_GROWN)]
        if not grown:
            return grown
        try:
            owner = await asyncpg.connect(self._dsn, timeout=5, command_timeout=ANALYZE_SECONDS)
            try:
                # Another replica may be at it already.
                await owner.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(grown)}")
            finally:
                await owner.close()
        except (*TRANSIENT, asyncpg.PostgresError) as error:
            log.info("statistics of %s are not refreshed: %s", ", ".join(grown), error)
            raise Unavailable("PostgreSQL") from error
        log.info("statistics refreshed: %s", ", ".join(grown))
        return grown
