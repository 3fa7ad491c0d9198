"""Where requests about studies come in: blocking work goes to threads of its own, with a time limit."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.studies.optuna_storage import open_storage

if TYPE_CHECKING:
    from learnloop_dataplane.studies.trials import Studies

log = logging.getLogger(__name__)
T = TypeVar("T")
SECONDS = 15.0  # longer than a statement and a wait for a lock may take in the database
THREADS = 4


class Desk:
    """Studies for an event loop. Optuna is imported, and its tables are made, with the first study ever."""

    def __init__(self, dsn: str) -> None:
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

    def close(self) -> None:
        """Takes no more work; what runs ends by its own time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> "Studies":
        with self._opening:
            if self._studies is None:
                from learnloop_dataplane.studies.trials import Studies

                self._studies = Studies(open_storage(self._dsn))
            return self._studies
