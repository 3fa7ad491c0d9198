"""Optuna's tables in PostgreSQL: a schema of their own, apart from the tenants' rows."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import create_engine, exc, text

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

    from learnloop_dataplane.training.parameter_search import Studies


SCHEMA = "optuna"
LOCK = 0x73747564
OPTIONS = f"-c search_path={SCHEMA} -c statement_timeout=10000 -c lock_timeout=8000"
CONNECTION: dict[str, Any] = {"connect_timeout": 5, "options": OPTIONS, "application_name": "learnloop-studies"}
ENGINE: dict[str, Any] = {
    "pool_size": 2,
    "max_overflow": 8,
    "pool_timeout": 5,
    "pool_pre_ping": True,
}
_BEGUN = "SELECT to_regnamespace($1) IS NOT NULL"


async def exists(db: Database) -> bool:
    """True once there was a study; does not import Optuna."""
    async with db.transaction() as connection:
        return bool(await connection.fetchval(_BEGUN, SCHEMA))


def open_storage(dsn: str) -> "RDBStorage":
    """Optuna's storage, its schema and tables made where they are missing. Safe to run from several processes.

    Raises sqlalchemy.exc.SQLAlchemyError when the database does not answer, or the login may not make the schema.
    """
    import optuna
    import psycopg

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = "postgresql+psycopg://"
    # libpq reads the address: SQLAlchemy knows no address of several servers.
    how = ENGINE | {"creator": lambda: psycopg.connect(dsn, **CONNECTION)}
    engine = create_engine(url, **how)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            # Asked for first: a login without the right to make schemas may use one that an administrator has made.
            if connection.execute(text("SELECT to_regnamespace(:name)"), {"name": SCHEMA}).scalar() is None:
                connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            return optuna.storages.RDBStorage(url, engine_kwargs=how)
    finally:
        engine.dispose()


log = logging.getLogger(__name__)
T = TypeVar("T")
SECONDS = 15.0  # longer than a statement and a wait for a lock may take in the database
THREADS = 4


class StudyThreads:
    """Studies for an event loop. Optuna is imported, and its tables are made, with the first study ever."""

    def __init__(self, db: Database, dsn: str) -> None:
        self._db = db
        self._dsn = dsn
        self._studies: Studies | None = None
        self._opening = Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="studies")

    async def ask(self, work: Callable[["Studies"], T]) -> T:
        """The result of `work`.

        Raises:
            ApiError: what `work` refuses.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SECONDS):
                return await loop.run_in_executor(self._threads, lambda: work(self._open()))
        except TimeoutError as error:
            raise Unavailable("PostgreSQL") from error
        except exc.SQLAlchemyError as error:
            log.warning("studies: %s", str(error).splitlines()[0][:300])
            raise Unavailable("PostgreSQL") from error

    async def delete(self, namespace: str, job: str) -> None:
        """Deletes a study. Every deleted TrainingJob asks for it, most without a study."""
        if await exists(self._db):
            await self.ask(lambda studies: studies.delete(namespace, job))

    def close(self) -> None:
        """Accepts no more work; running work ends by its own time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> "Studies":
        with self._opening:
            if self._studies is None:
                from learnloop_dataplane.training.parameter_search import Studies

                self._studies = Studies(open_storage(self._dsn))
            return self._studies
