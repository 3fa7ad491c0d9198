"""Single statements on connections that are kept between them.

To take a connection from the pool and to give it back costs as much processor time as a short statement and its answer:
two timers, two tasks and two turns of the event loop.
"""

from typing import Any

import asyncpg

ACQUIRE_SECONDS = 5.0


class Statements:
    """A few of a pool's connections, for statements that are a transaction each.

    Args:
        most: how many are kept; what is above is given back, and the rest of the pool is everybody's.
    """

    def __init__(self, pool: asyncpg.Pool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._idle: list[Any] = []

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """The rows that it returns.

        Raises:
            Exception: whatever asyncpg says, TimeoutError where no connection is free within 5 s.
        """
        connection = await self._take()
        try:
            rows: list[Any] = await connection.fetch(statement, *arguments)
        except BaseException:  # broken, refused or given up in the middle: the pool finds out, and mends it
            await self._pool.release(connection)
            raise
        if len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            await self._pool.release(connection)
        return rows

    async def close(self) -> None:
        """Gives back what is kept."""
        while self._idle:
            await self._pool.release(self._idle.pop())

    async def _take(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if _open(connection):
                return connection
            await self._pool.release(connection)
        return await self._pool.acquire(timeout=ACQUIRE_SECONDS)


def _open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back already, because it broke
        return False
