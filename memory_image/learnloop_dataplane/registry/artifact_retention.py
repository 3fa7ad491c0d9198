"""How long artifacts and checkpoints are kept: so many days after they were last in use.

Nothing goes on time alone. What is in use is told by the operator, who knows every ModelDeployment, and only at that
moment is the rest looked through: an operator that is away for a year deletes nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from learnloop_dataplane.audit.chain_record import Detail
from learnloop_dataplane.audit.journal import note
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.registry.artifacts import artifact_key

log = logging.getLogger(__name__)
BATCH = 200  # of each kind in one pass: the next one goes on

# The lists of episodes that runs learned from stay as long as the runs do.
_USED = """
UPDATE artifacts SET used_at = now() WHERE namespace = $1 AND (sha256 = ANY($2) OR sha256 IN (
    SELECT manifest #>> '{experience,ids_sha256}' FROM training_runs WHERE namespace = $1 AND job = ANY($3)))
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
    """What one pass deleted."""

    artifacts: int
    checkpoints: int


class Keeping:
    """Runs for one namespace at a time, when the operator says what is in use there."""

    def __init__(self, db: Database, blobs: BlobStore, days: int) -> None:
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
        # The blob goes while the row is locked, so that an upload of the same content waits and then begins anew. A
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
            rows: list[Any] = await connection.fetch(_DELETE_CHECKPOINTS, namespace, job, self._days)
            if rows:
                detail: Detail = {"count": len(rows), "days": self._days}
                await note(connection, namespace, "checkpoints.deleted", f"training-job/{job}", detail)
        for row in rows:
            try:
                await self._blobs.delete(row["checkpoint_path"])
            except Unavailable:
                log.warning("checkpoint blob %s could not be removed", row["checkpoint_path"])
        return len(rows)
