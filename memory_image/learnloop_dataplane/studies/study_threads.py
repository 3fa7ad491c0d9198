"""Where requests about studies come in: blocking work goes to threads of its own, with a time limit."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.studies.optuna_storage import exists, open_storage

if TYPE_CHECKING:
    from learnloop_dataplane.studies.trials import Studies

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
        """What `work` returns.

        Raises:
            Unavailable: PostgreSQL does not answer, or not in time.
            ApiError: what `work` refuses.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SECONDS):
                return await loop.run_in_executor(self._threads, lambda: work(self._open()))
        except TimeoutError as error:
            raise Unavailable("PostgreSQL") from error
        except Exception as error:
            from sqlalchemy.exc import SQLAlchemyError  # 0.15 s that only studies cost

            if not isinstance(error, SQLAlchemyError):
                raise
            log.warning("studies: %s", str(error).splitlines()[0][:300])
            raise Unavailable("PostgreSQL") from error

    async def delete(self, namespace: str, job: str) -> None:
        """Forgets a study. Every TrainingJob that goes asks for it, most of them without ever having had one.

        Raises:
            Unavailable: PostgreSQL does not answer, or not in time.
        """
        if await exists(self._db):
            await self.ask(lambda studies: studies.delete(namespace, job))

    def close(self) -> None:
        """Takes no more work; what runs ends by its own time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> "Studies":
        with self._opening:
            if self._studies is None:
                from learnloop_dataplane.studies.trials import Studies

                self._studies = Studies(open_storage(self._dsn))
            return self._studies
