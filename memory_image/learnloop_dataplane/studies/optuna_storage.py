"""Optuna's tables in PostgreSQL: a schema of their own, beside the tenants' rows and never mixed with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from learnloop_dataplane.postgres.database import Database

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

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
    """Has there ever been a study? To ask this does not import Optuna.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with db.transaction() as connection:
        return bool(await connection.fetchval(_BEGUN, SCHEMA))


def open_storage(dsn: str) -> "RDBStorage":
    """Optuna's storage, its schema and tables made where they are missing. Safe to run from several processes at once.

    Raises sqlalchemy.exc.SQLAlchemyError when the database does not answer, or the login may not make the schema.
    """
    import optuna
    import psycopg
    from sqlalchemy import create_engine, text

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


@contextmanager
def exclusive(storage: "RDBStorage", name: str) -> Iterator[None]:
    """One writer to a study at a time, over all replicas; the lock ends with the connection, whatever happens."""
    from sqlalchemy import text

    with storage.engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 1))"), {"name": name})
        yield
