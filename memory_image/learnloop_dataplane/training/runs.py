"""Training runs: the newest heartbeat, the newest two checkpoints, and one manifest that never changes."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from learnloop_api import names
from learnloop_api.wire.training import CheckpointInfo, Heartbeat, Manifest, TrainingRun
from learnloop_api.wire.training_request import TrainingStatus, of_heartbeat
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.blobs.blob_store import Blobs, Spooled
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.registry.artifacts import Content

log = logging.getLogger(__name__)
KEEP_CHECKPOINTS = 2
LAST_PHASES = ("done", "failed")

# Monotone: an older incarnation of the gang never overwrites a newer one, nor an older moment of the same one.
_BEAT = """
INSERT INTO training_runs AS run (namespace, job, attempt, beat_at, heartbeat, received_at)
VALUES ($1, $2, $3, $4, $5, clock_timestamp())
ON CONFLICT (namespace, job) DO UPDATE SET attempt = excluded.attempt, beat_at = excluded.beat_at,
    heartbeat = excluded.heartbeat, received_at = excluded.received_at
WHERE run.attempt IS NULL OR (excluded.attempt, excluded.beat_at) >= (run.attempt, run.beat_at)
RETURNING 1
"""
_HEARD = "SELECT beat_at FROM training_runs WHERE namespace = $1 AND job = $2"
_OPEN = "INSERT INTO training_runs (namespace, job) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_LOCK = "SELECT attempt, manifest FROM training_runs WHERE namespace = $1 AND job = $2 FOR UPDATE"
_MANIFEST = "UPDATE training_runs SET manifest = $3 WHERE namespace = $1 AND job = $2"
_READ = """
SELECT heartbeat, manifest, extract(epoch FROM clock_timestamp() - received_at)::float8 AS age
FROM training_runs WHERE namespace = $1 AND job = $2
"""
_CHECKPOINT = """
INSERT INTO model_checkpoints (namespace, id, job, training_iteration, sha256, size_bytes, checkpoint_path, agent_id,
    performance_metrics)
SELECT $1, $2, job, $4, $5, $6, $7, $8, jsonb_strip_nulls(jsonb_build_object('step', heartbeat -> 'step',
    'steps_per_second', heartbeat -> 'steps_per_second', 'recent_return', heartbeat -> 'recent_return'))
FROM training_runs WHERE namespace = $1 AND job = $3
"""
_NEWEST = """
SELECT training_iteration, sha256, size_bytes, checkpoint_path, created_at FROM model_checkpoints
WHERE namespace = $1 AND job = $2 ORDER BY seq DESC LIMIT 1 OFFSET $3
"""
_TRIM = """
DELETE FROM model_checkpoints WHERE namespace = $1 AND job = $2 AND seq NOT IN
    (SELECT seq FROM model_checkpoints WHERE namespace = $1 AND job = $2 ORDER BY seq DESC LIMIT $3)
RETURNING checkpoint_path
"""
_DELETE_CHECKPOINTS = "DELETE FROM model_checkpoints WHERE namespace = $1 AND job = $2 RETURNING checkpoint_path"
_DELETE = "DELETE FROM training_runs WHERE namespace = $1 AND job = $2"


class Runs:
    """All runs of one data plane.

    Args:
        outbox: takes the last heartbeat of an attempt, which must not get lost.
        arrived: called with a namespace in whose outbox an event waits.
        publish: sends a subject and a message immediately or never: the next heartbeat repeats it.
    """

    def __init__(
        self,
        db: Database,
        blobs: Blobs,
        metrics: Metrics,
        outbox: EventOutbox,
        arrived: Callable[[str], None],
        publish: Callable[[str, bytes], None] | None,
    ) -> None:
        self._arrived = arrived
        self._publish = publish
        self._db = db
        self._outbox = outbox
        self._blobs = blobs
        self._metrics = metrics

    async def beat(self, namespace: str, beat: Heartbeat) -> bool:
        """Keeps a heartbeat; False when a newer one is already there. The last one of an attempt becomes an event."""
        async with self._db.tenant(namespace) as connection:
            newer = await connection.fetchval(_BEAT, namespace, beat.job, beat.attempt, beat.at, beat.model_dump_json())
            if newer and beat.phase in LAST_PHASES:
                subject = status_subject(namespace, beat.job)
                identity = f"{namespace}/status/{beat.job}/{beat.attempt}/{beat.phase}"
                event = of_heartbeat(beat).model_dump_json().encode()
                if await self._outbox.put(connection, namespace, subject, identity, event):
                    end = {"phase": beat.phase, "attempt": beat.attempt, "step": beat.step, "message": beat.message}
                    await note(connection, namespace, "training.ended", f"training-job/{beat.job}", end)
        if newer:
            self._metrics.runs.beat(namespace, beat)
        if newer and beat.phase in LAST_PHASES:
            self._arrived(namespace)
        elif newer and self._publish is not None:
            self._publish(status_subject(namespace, beat.job), of_heartbeat(beat).model_dump_json().encode())
        return bool(newer)

    async def tell(self, namespace: str, status: TrainingStatus) -> bool:
        """Keeps the operator's word that a run is queued, and its verdict. False for a repetition; after a heartbeat,
        queued is new again."""
        identity = f"{namespace}/status/{status.job}/{status.job_uid}/{status.phase}"
        async with self._db.tenant(namespace) as connection:
            if status.status == "queued" and (beat := await connection.fetchval(_HEARD, namespace, status.job)):
                identity += f"/{beat.isoformat()}"
            subject = status_subject(namespace, status.job)
            new = await self._outbox.put(connection, namespace, subject, identity, status.model_dump_json().encode())
            if new and status.status in ("completed", "failed"):
                verdict = {"phase": status.phase, "message": status.message}
                verdict |= {"artifact_sha256": status.artifact.sha256} if status.artifact else {}
                await note(connection, namespace, "training.judged", f"training-job/{status.job}", verdict)
        if new:
            self._arrived(namespace)
        return new

    async def put_checkpoint(
        self,
        namespace: str,
        job: str,
        step: int,
        upload: Spooled,
        agent: str | None = None,
        attempt: int | None = None,
    ) -> CheckpointInfo:
        """Makes an upload the newest checkpoint of a run, with what its last heartbeat said. The older blobs go only
        after the commit.

        Args:
            agent: the agent that the run trains; None for a run by hand.
            attempt: of the gang that sends it, from 0; None: unknown.

        Raises:
            ApiError: 409, a newer attempt has begun.
        """
        identity = uuid7()
        key = _key(namespace, job, identity)
        await self._blobs.put(key, upload.path)
        try:
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_OPEN, namespace, job)
                row = await connection.fetchrow(_LOCK, namespace, job)
                _no_newer(job, attempt, row["attempt"])
                blob = (upload.sha256, upload.size, key)
                await connection.execute(_CHECKPOINT, namespace, identity, job, step, *blob, agent)
                newest = await connection.fetchrow(_NEWEST, namespace, job, 0)
                old = await connection.fetch(_TRIM, namespace, job, KEEP_CHECKPOINTS)
        except Unavailable:
            # The commit may have happened although its answer was lost: an orphan is better than a hole.
            log.warning("checkpoint blob %s is perhaps not referred to", key)
            raise
        except ApiError:
            await self._remove([{"checkpoint_path": key}])
            raise
        await self._remove(old)
        return _info(newest)

    async def get_checkpoint(self, namespace: str, job: str, back: int = 0) -> tuple[CheckpointInfo, Content]:
        """The newest checkpoint, or the one `back` before it.

        Raises:
            ApiError: 404, there is none.
        """
        # A newer checkpoint may replace this one between reading the row and opening the blob; then look again.
        for _ in range(3):
            async with self._db.tenant(namespace) as connection:
                row = await connection.fetchrow(_NEWEST, namespace, job, back)
            chunks = await self._blobs.open(row["checkpoint_path"]) if row else None
            if row is None:
                break
            if chunks is not None:
                return _info(row), Content(row["sha256"], row["size_bytes"], chunks)
        raise ApiError(404, "this run has no checkpoint yet; start from the beginning", field="job", value=job)

    async def put_manifest(self, namespace: str, manifest: Manifest) -> None:
        """Writes the manifest once for each attempt: that of a later attempt takes the place of one whose gang failed
        after it had written it. The same manifest again is fine.

        Raises:
            ApiError: 409, another one is there.
        """
        wanted = manifest.model_dump_json()
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_OPEN, namespace, manifest.job)
            row = await connection.fetchrow(_LOCK, namespace, manifest.job)
            earlier = Manifest.model_validate_json(row["manifest"]) if row["manifest"] else None
            fresh = earlier is None or earlier.attempts < manifest.attempts
            if fresh:
                await connection.execute(_MANIFEST, namespace, manifest.job, wanted)
                await _note(connection, namespace, manifest)
            elif earlier != manifest:
                raise ApiError(
                    409,
                    "this attempt of the run already has another manifest, which never changes; use a new TrainingJob",
                    field="job",
                    value=manifest.job,
                )

    async def get(self, namespace: str, job: str) -> TrainingRun:
        """A run's heartbeat, checkpoint and manifest.

        Raises:
            ApiError: 404, nothing was ever reported.
        """
        async with self._db.tenant(namespace) as connection:
            row = await connection.fetchrow(_READ, namespace, job)
            checkpoint = await connection.fetchrow(_NEWEST, namespace, job, 0)
        if row is None:
            raise ApiError(404, "this run has not reported anything yet", field="job", value=job)
        return TrainingRun(
            job=job,
            heartbeat=orjson.loads(row["heartbeat"]) if row["heartbeat"] else None,
            heartbeat_age_seconds=None if row["age"] is None else max(0.0, row["age"]),
            checkpoint=_info(checkpoint) if checkpoint else None,
            manifest=orjson.loads(row["manifest"]) if row["manifest"] else None,
        )

    async def delete(self, namespace: str, job: str) -> bool:
        """Deletes a run and its checkpoints; its artifact stays. False when there was nothing."""
        async with self._db.tenant(namespace) as connection:
            await connection.fetchrow(_LOCK, namespace, job)
            old = await connection.fetch(_DELETE_CHECKPOINTS, namespace, job)
            deleted = await connection.execute(_DELETE, namespace, job)
            if deleted != "DELETE 0":
                await note(connection, namespace, "training.deleted", f"training-job/{job}")
        await self._remove(old)
        return bool(deleted != "DELETE 0")

    async def _remove(self, rows: list[Any]) -> None:
        for row in rows:
            try:
                await self._blobs.delete(row["checkpoint_path"])
            except Unavailable:
                log.warning("checkpoint blob %s could not be removed", row["checkpoint_path"])


def _no_newer(job: str, attempt: int | None, heard: int | None) -> None:
    """An upload may take longer than the gang that began it: the next one has gone on from another checkpoint."""
    if attempt is not None and heard is not None and attempt < heard:
        message = f"attempt {heard} of run {job} has begun, counted from 0; the checkpoint is of {attempt}"
        raise ApiError(409, message, field="x-learnloop-attempt", value=str(attempt))


async def _note(connection: Any, namespace: str, manifest: Manifest) -> None:
    """Notes a run's proof and, with a shield, the number of its interventions."""
    subject = f"training-job/{manifest.job}"
    proof = {"step": manifest.step, "artifact_sha256": manifest.artifact_sha256, "agent": manifest.agent}
    await note(connection, namespace, "training.manifest", subject, proof)
    if manifest.interventions is not None:
        shield = {"actions": manifest.actions, "interventions": manifest.interventions, "record": manifest.audit_uri}
        await note(connection, namespace, "safety.interventions", subject, shield)


def status_subject(namespace: str, job: str) -> str:
    """The subject of one run's heartbeats."""
    return f"{names.SUBJECT_TRAINING_STATUS}.{namespace}.{job}"


def _info(row: Any) -> CheckpointInfo:
    at: datetime = row["created_at"]
    return CheckpointInfo(step=row["training_iteration"], sha256=row["sha256"], size_bytes=row["size_bytes"], at=at)


def _key(namespace: str, job: str, identity: UUID) -> str:
    return f"{namespace}/checkpoints/{job}/{identity}"
