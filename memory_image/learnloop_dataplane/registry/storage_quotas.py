"""How much of the shared stores each namespace has taken, and what is refused above its quota."""

import time
from collections.abc import Callable
from typing import Any

from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.quota_limits import Quotas

_BYTES = """
SELECT coalesce((SELECT sum(size_bytes) FROM artifacts WHERE namespace = $1), 0)
     + coalesce((SELECT sum(size_bytes) FROM model_checkpoints WHERE namespace = $1), 0)
"""
_MEMORIES = "SELECT count(*) FROM agent_memories WHERE namespace = $1"
COUNT_SECONDS = 5.0
"""How long a count of memories is known; what this process stores meanwhile it counts itself."""
KNOWN = 10_000


class StorageQuotas:
    """Asked before anything is kept. Two uploads at the same moment may pass the last bytes together."""

    def __init__(
        self, db: Database, quotas: Quotas, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._db, self._quotas, self._metrics, self._clock = db, quotas, metrics, clock
        self._counted: dict[str, tuple[int, float]] = {}

    async def room_for_bytes(self, namespace: str, size: int) -> None:
        """An artifact or checkpoint of so many bytes.

        Raises:
            ApiError: 413, it does not fit.
        """
        limit = self._quotas.of(namespace).artifact_bytes
        if limit is None:
            return
        used = await self._bytes(namespace)
        if used + size > limit:
            self._metrics.over_quota(namespace, "artifact_bytes")
            raise ApiError(
                413,
                f"artifacts and checkpoints of namespace {namespace} have {used} of {limit} bytes "
                f"(dataPlane.quotas.artifactBytes of the chart), and this has {size}; delete runs, or ask for more",
                field="body",
                value=size,
            )

    async def room_for_memories(self, namespace: str, number: int) -> None:
        """So many memories, which are counted as stored.

        Raises:
            ApiError: 429, they do not fit.
        """
        limit = self._quotas.of(namespace).memories
        if limit is None:
            return
        used = await self._memories(namespace)
        if used + number > limit:
            self._metrics.over_quota(namespace, "memories")
            raise ApiError(
                429,
                f"namespace {namespace} has {used} of {limit} memories (dataPlane.quotas.memories of the chart), and "
                f"these are {number} more; forget some, give its agents budgets, or ask for more",
                value=number,
                retry_after=60,
            )
        self._counted[namespace] = (used + number, self._counted[namespace][1])

    async def shown(self, namespace: str) -> dict[str, Any]:
        """What is used and what may be; `limit` is null where there is none."""
        limits = self._quotas.of(namespace)
        return {
            "artifact_bytes": {"used": await self._bytes(namespace), "limit": limits.artifact_bytes},
            "memories": {"used": await self._memories(namespace), "limit": limits.memories},
            "episodes_per_second": {"limit": limits.episodes_per_second},
        }

    async def _bytes(self, namespace: str) -> int:
        async with self._db.tenant(namespace) as connection:
            used = int(await connection.fetchval(_BYTES, namespace))
        self._metrics.quota(namespace, "artifact_bytes", used, self._quotas.of(namespace).artifact_bytes)
        return used

    async def _memories(self, namespace: str) -> int:
        known = self._counted.get(namespace)
        if known is not None and self._clock() - known[1] < COUNT_SECONDS:
            return known[0]
        async with self._db.tenant(namespace) as connection:
            used = int(await connection.fetchval(_MEMORIES, namespace))
        while len(self._counted) >= KNOWN:
            del self._counted[next(iter(self._counted))]
        self._counted[namespace] = (used, self._clock())
        self._metrics.quota(namespace, "memories", used, self._quotas.of(namespace).memories)
        return used
