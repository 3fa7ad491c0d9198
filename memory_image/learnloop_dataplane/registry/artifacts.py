"""Content-addressed artifacts: written once, read by their digest, only within their namespace."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache
from sqlmodel import func, update

from learnloop_dataplane import config, errors
from learnloop_dataplane.audit.chain import Detail, note
from learnloop_dataplane.blobs import Blobs, Spooled, spooled
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres import database, experience_tables

LOOK_SECONDS = 10.0


@dataclass(frozen=True)
class Content:
    """A blob about to be sent."""

    sha256: str
    size: int
    chunks: AsyncIterator[bytes]


class Artifacts:
    """The registry of one data plane.

    Args:
        max_bytes: what an upload may have at most.
    """

    def __init__(self, db: database.Database, blobs: Blobs, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._db = db
        self._blobs = blobs
        self.problem = ""
        """Why nothing can be uploaded now; empty while the store answers."""

    async def look(self) -> None:
        """Checks the store in the background: a slow one must not hold up a probe."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._blobs.ping()
        except errors.Unavailable as error:
            self.problem = error.message
        except TimeoutError:
            self.problem = f"the artifact store does not answer within {LOOK_SECONDS:.0f} s"
        else:
            self.problem = ""

    def receive(
        self, chunks: AsyncIterator[bytes], sha256: str, max_bytes: int | None = None
    ) -> AbstractAsyncContextManager[Spooled]:
        """An upload in a file, as long as the context lasts, once its digest and size are checked; see `spooled`."""
        return spooled(chunks, sha256=sha256, max_bytes=max_bytes or self._max_bytes)

    async def put(self, namespace: str, upload: Spooled, quotas: "StorageQuotas | None" = None) -> None:
        """Keeps a verified upload. The blob comes first: a row never points to nothing.

        Raises:
            ApiError: 413, others have used the quota meanwhile.
            Unavailable: not kept; sending it again is safe.
        """
        # Touched first: what is old and about to be deleted is either safe from here on, or already gone.
        await self.use(namespace, upload.sha256)
        key = artifact_key(namespace, upload.sha256)
        await self._blobs.put(key, upload.file)
        row = experience_tables.Artifact(namespace=namespace, sha256=upload.sha256, size_bytes=upload.size)
        async with self._db.session(namespace) as session:
            if not await session.insert(row):
                return
            if quotas is not None:
                try:
                    await quotas.room_for_bytes(namespace, upload.size, session.raw)
                except errors.ApiError:
                    await self._blobs.delete(key)  # while the inserted key keeps another upload of it waiting
                    raise
            if await self._blobs.open(key) is None:  # deleted so, while this upload's insertion waited
                await self._blobs.put(key, upload.file)

    async def use(self, namespace: str, sha256: str) -> None:
        """Marks the artifact as used: its retention begins again."""
        used = (
            update(experience_tables.Artifact).filter_by(namespace=namespace, sha256=sha256).values(used_at=func.now())
        )
        async with self._db.session(namespace) as session:
            await session.exec(used)

    async def get(self, namespace: str, sha256: str) -> Content:
        """The artifact's content.

        Raises:
            ApiError: 404, this namespace has no such artifact.
        """
        async with self._db.session(namespace) as session:
            row = await session.get(experience_tables.Artifact, (namespace, sha256))
        chunks = await self._blobs.open(artifact_key(namespace, sha256)) if row else None
        if row is None or chunks is None:
            raise errors.ApiError(
                404, "this namespace has no such artifact; check the URI or upload it", field="sha256", value=sha256
            )
        return Content(sha256, row.size_bytes, chunks)


async def bounded(artifacts: Artifacts, namespace: str, sha256: str, most: int) -> Content:
    """An artifact of at most `most` bytes, marked as used.

    Raises:
        ApiError: 404, there is none; 413, it is larger.
    """
    content = await artifacts.get(namespace, sha256)
    if content.size > most:
        message = f"it has {content.size} bytes, and {most} is the most that is read here; train a smaller one"
        raise errors.ApiError(413, message, field="sha256", value=sha256)
    await artifacts.use(namespace, sha256)
    return content


def artifact_key(namespace: str, sha256: str) -> str:
    return f"{namespace}/artifacts/{sha256[:2]}/{sha256}"


log = logging.getLogger(__name__)
BATCH = 200  # of each kind in one pass: the next one goes on

# The lists of episodes that runs learned from stay as long as the runs do.
_USED = """
UPDATE artifacts SET used_at = now() WHERE namespace = $1 AND (sha256 = ANY($2) OR sha256 IN (
    SELECT proof #>> '{experience,ids_sha256}' FROM training_runs WHERE namespace = $1 AND job = ANY($3)))
"""
_IS_OLD = "namespace = $1 AND greatest(created_at, used_at) < now() - make_interval(days => $2::int)"
_OLD = f"SELECT sha256 FROM artifacts WHERE {_IS_OLD} ORDER BY created_at LIMIT {BATCH}"
_DELETE = f"DELETE FROM artifacts WHERE {_IS_OLD} AND sha256 = $3 RETURNING 1"
_OLD_JOBS = f"""
SELECT job FROM model_checkpoints WHERE namespace = $1 AND job <> ALL($3)
GROUP BY job HAVING max(created_at) < now() - make_interval(days => $2::int) LIMIT {BATCH}
"""
_LOCK = "SELECT 1 FROM training_runs WHERE namespace = $1 AND job = $2 FOR UPDATE"
_DELETE_CHECKPOINTS = """
DELETE FROM model_checkpoints WHERE namespace = $1 AND job = $2
    AND created_at < now() - make_interval(days => $3::int) RETURNING checkpoint_path
"""


@dataclass(frozen=True, slots=True)
class DeletedArtifacts:
    """Counts of one pass."""

    artifacts: int
    checkpoints: int


class Keeping:
    """Deletes old artifacts of one namespace at a time, when the operator names those in use."""

    def __init__(self, db: database.Database, blobs: Blobs, days: int) -> None:
        self._db, self._blobs, self._days = db, blobs, days

    async def run(self, namespace: str, used: Sequence[str], jobs: Sequence[str]) -> DeletedArtifacts:
        """Keep these artifacts (by digest) and the checkpoints of these jobs; delete a batch of what is old.

        Raises:
            Unavailable: what is left is deleted next time.
        """
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_USED, namespace, list(used), list(jobs))
            old = [row["sha256"] for row in await connection.fetch(_OLD, namespace, self._days)]
            runs = [row["job"] for row in await connection.fetch(_OLD_JOBS, namespace, self._days, list(jobs))]
        artifacts = [sha256 for sha256 in old if await self._artifact(namespace, sha256)]
        checkpoints = [await self._checkpoints(namespace, job) for job in runs]
        if artifacts or checkpoints:
            log.info("%s: %d artifacts, checkpoints of %d runs were old", namespace, len(artifacts), len(checkpoints))
        return DeletedArtifacts(len(artifacts), sum(checkpoints))

    async def _artifact(self, namespace: str, sha256: str) -> bool:
        # The blob goes while the row is locked, so that an upload of the same content waits and then begins again. A
        # crash in between leaves a row without a blob: not found, and deleted by the next pass.
        async with self._db.tenant(namespace) as connection:
            gone = await connection.fetchval(_DELETE, namespace, self._days, sha256)
            if gone:
                await note(connection, namespace, "artifact.deleted", f"artifact/{sha256}", {"unused_days": self._days})
                await self._blobs.delete(artifact_key(namespace, sha256))
        return bool(gone)

    async def _checkpoints(self, namespace: str, job: str) -> int:
        async with self._db.tenant(namespace) as connection:
            await connection.fetchrow(_LOCK, namespace, job)
            rows = await connection.fetch(_DELETE_CHECKPOINTS, namespace, job, self._days)
            if rows:
                detail: Detail = {"count": len(rows), "days": self._days}
                await note(connection, namespace, "checkpoints.deleted", f"training-job/{job}", detail)
        for row in rows:
            try:
                await self._blobs.delete(row["checkpoint_path"])
            except errors.Unavailable:
                log.warning("checkpoint blob %s could not be removed", row["checkpoint_path"])
        return len(rows)


_BYTES = """
SELECT coalesce((SELECT sum(size_bytes) FROM artifacts WHERE namespace = $1), 0)
     + coalesce((SELECT sum(size_bytes) FROM model_checkpoints WHERE namespace = $1), 0)
"""
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('bytes/' || $1, 0))"
_MEMORIES = "SELECT count(*) FROM agent_memories WHERE namespace = $1"
COUNT_SECONDS = 5.0
"""So long a count of memories is used; this process adds what it stores meanwhile."""
MOST_NAMESPACES = 10_000


class StorageQuotas:
    """Checks before anything is kept, and bytes again where they are inserted."""

    def __init__(
        self,
        db: database.Database,
        quotas: config.Quotas,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._quotas, self._metrics = db, quotas, metrics
        self._counted: TTLCache[str, int] = TTLCache(MOST_NAMESPACES, COUNT_SECONDS, clock)

    async def room_for_bytes(self, namespace: str, size: int, inserted: Any = None) -> None:
        """Checks an artifact or checkpoint of so many bytes.

        Args:
            inserted: the connection of the transaction that has inserted it; it has the namespace's bytes to itself.

        Raises:
            ApiError: 413, it does not fit.
        """
        limit = self._quotas.of(namespace).artifact_bytes
        if limit is None:
            return
        if inserted is None:
            used = await self._bytes(namespace)
        else:
            await inserted.execute(_ALONE, namespace)
            used = int(await inserted.fetchval(_BYTES, namespace)) - size
        if used + size > limit:
            self._metrics.count("quota_refusals", namespace, "artifact_bytes")
            raise errors.ApiError(
                413,
                f"artifacts and checkpoints of namespace {namespace} have {used} of {limit} bytes "
                f"(dataPlane.quotas.artifactBytes of the chart), and this has {size}; delete runs, or ask for more",
                field="body",
                value=size,
            )

    async def room_for_memories(self, namespace: str, number: int) -> None:
        """Checks so many memories, and counts them as stored.

        Raises:
            ApiError: 429, they do not fit.
        """
        limit = self._quotas.of(namespace).memories
        if limit is None:
            return
        used = await self._memories(namespace)
        if used + number > limit:
            self._metrics.count("quota_refusals", namespace, "memories")
            raise errors.ApiError(
                429,
                f"namespace {namespace} has {used} of {limit} memories (dataPlane.quotas.memories of the chart), and "
                f"these are {number} more; forget some, give its agents budgets, or ask for more",
                value=number,
                retry_after=60,
            )
        self._counted[namespace] = used + number

    async def shown(self, namespace: str) -> dict[str, object]:
        """Used and allowed amounts; `limit` is null where there is none."""
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
        if (counted := self._counted.get(namespace)) is not None:
            return counted
        async with self._db.tenant(namespace) as connection:
            used = int(await connection.fetchval(_MEMORIES, namespace))
        self._counted[namespace] = used
        self._metrics.quota(namespace, "memories", used, self._quotas.of(namespace).memories)
        return used
