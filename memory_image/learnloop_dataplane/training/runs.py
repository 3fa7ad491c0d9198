"""Training runs: the newest heartbeat, the newest two checkpoints, and one proof that never changes."""

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, func, or_, select, tuple_

from learnloop_api import names
from learnloop_api.wire.training import CheckpointInfo, Heartbeat, Proof, TrainingRun, UpdateOrder
from learnloop_api.wire.training_request import TrainingStatus, of_heartbeat
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.blobs import Blobs, Spooled
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.postgres.experience_tables import ModelCheckpoint, TrainingRunRow
from learnloop_dataplane.registry.artifacts import Content, StorageQuotas

log = logging.getLogger(__name__)
KEEP_CHECKPOINTS = 2
LAST_PHASES = ("done", "failed")

_PROGRESS = ("step", "steps_per_second", "recent_return")
"""Figures of the newest heartbeat that a checkpoint carries."""


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
        new = {"attempt": beat.attempt, "beat_at": beat.at, "heartbeat": beat.model_dump(mode="json")}
        new["received_at"] = func.clock_timestamp()
        # Monotone: an older incarnation of the gang never overwrites a newer one, nor an older moment of the same one.
        attempt, moment = col(TrainingRunRow.attempt), col(TrainingRunRow.beat_at)
        newest = or_(attempt.is_(None), tuple_(attempt, moment) <= tuple_(beat.attempt, beat.at))
        put = insert(TrainingRunRow).values(namespace=namespace, job=beat.job, **new)
        put = put.on_conflict_do_update(index_elements=["namespace", "job"], set_=new, where=newest)
        async with self._db.session(namespace) as session:
            newer = (await session.exec(put)).rowcount > 0
            if newer and beat.phase in LAST_PHASES:
                subject = status_subject(namespace, beat.job)
                identity = f"{namespace}/status/{beat.job}/{beat.attempt}/{beat.phase}"
                event = of_heartbeat(beat).model_dump_json().encode()
                if await self._outbox.put(session.raw, namespace, subject, identity, event):
                    end = {"phase": beat.phase, "attempt": beat.attempt, "step": beat.step, "message": beat.message}
                    await note(session.raw, namespace, "training.ended", f"training-job/{beat.job}", end)
        if newer:
            self._metrics.runs.beat(namespace, beat)
        if newer and beat.phase in LAST_PHASES:
            self._arrived(namespace)
        elif newer and self._publish is not None:
            self._publish(status_subject(namespace, beat.job), of_heartbeat(beat).model_dump_json().encode())
        return newer

    async def tell(self, namespace: str, status: TrainingStatus) -> bool:
        """Keeps the operator's word that a run is queued, and its verdict. False for a repetition; after a heartbeat,
        queued is new again."""
        identity = f"{namespace}/status/{status.job}/{status.job_uid}/{status.phase}"
        async with self._db.session(namespace) as session:
            run = await session.get(TrainingRunRow, (namespace, status.job)) if status.status == "queued" else None
            if run and run.beat_at:
                identity += f"/{run.beat_at.isoformat()}"
            subject = status_subject(namespace, status.job)
            new = await self._outbox.put(session.raw, namespace, subject, identity, status.model_dump_json().encode())
            if new and status.status in ("completed", "failed"):
                verdict = {"phase": status.phase, "message": status.message}
                verdict |= {"artifact_sha256": status.artifact.sha256} if status.artifact else {}
                await note(session.raw, namespace, "training.judged", f"training-job/{status.job}", verdict)
        if new:
            self._arrived(namespace)
        return new

    async def put_checkpoint(
        self,
        namespace: str,
        job: str,
        step: int,
        upload: Spooled,
        quotas: StorageQuotas,
        agent: str | None = None,
        attempt: int | None = None,
    ) -> CheckpointInfo:
        """Makes an upload the newest checkpoint of a run, with what its last heartbeat said. The older blobs go only
        after the commit.

        Args:
            agent: the agent that the run trains; None for a run by hand.
            attempt: of the gang that sends it, from 0; None: unknown.

        Raises:
            ApiError: 409, a newer attempt has begun; 413, others have used the quota meanwhile.
        """
        identity = uuid7()
        key = _key(namespace, job, identity)
        await self._blobs.put(key, upload.file)
        try:
            async with self._db.session(namespace) as session:
                run = await session.locked(TrainingRunRow(namespace=namespace, job=job))
                _no_newer(job, attempt, run.attempt)
                beat = run.heartbeat or {}
                newest = ModelCheckpoint(
                    namespace=namespace,
                    id=identity,
                    job=job,
                    training_iteration=step,
                    sha256=upload.sha256,
                    size_bytes=upload.size,
                    checkpoint_path=key,
                    agent_id=agent,
                    performance_metrics={name: beat[name] for name in _PROGRESS if beat.get(name) is not None},
                )
                session.add(newest)
                old = (await session.exec(_checkpoints(namespace, job).offset(KEEP_CHECKPOINTS))).all()
                for checkpoint in old:
                    await session.delete(checkpoint)
                await session.flush()
                await quotas.room_for_bytes(namespace, upload.size, session.raw)
        except Unavailable:
            # The commit may have happened although its answer was lost: an orphan is better than a hole.
            log.warning("checkpoint blob %s is perhaps not referred to", key)
            raise
        except ApiError:
            await self._remove([key])
            raise
        await self._remove([checkpoint.checkpoint_path for checkpoint in old])
        return _info(newest)

    async def get_checkpoint(self, namespace: str, job: str, back: int = 0) -> tuple[CheckpointInfo, Content]:
        """The newest checkpoint, or the one `back` before it.

        Raises:
            ApiError: 404, there is none.
        """
        # A newer checkpoint may replace this one between reading the row and opening the blob; then look again.
        for _ in range(3):
            async with self._db.session(namespace) as session:
                row = (await session.exec(_checkpoints(namespace, job).offset(back).limit(1))).first()
            chunks = await self._blobs.open(row.checkpoint_path) if row else None
            if row is None:
                break
            if chunks is not None:
                return _info(row), Content(row.sha256, row.size_bytes, chunks)
        raise ApiError(404, "this run has no checkpoint yet; start from the beginning", field="job", value=job)

    async def put_proof(self, namespace: str, proof: Proof) -> None:
        """Writes the proof once for each update and attempt: that of a later attempt takes the place of one whose gang
        failed after it had written it. The same proof again is fine.

        Raises:
            ApiError: 409, another one is there.
        """
        async with self._db.session(namespace) as session:
            run = await session.locked(TrainingRunRow(namespace=namespace, job=proof.job))
            earlier = Proof.model_validate(run.proof) if run.proof else None
            if earlier is None or (earlier.update, earlier.attempts) < (proof.update, proof.attempts):
                run.proof = proof.model_dump(mode="json")
                await _note(session.raw, namespace, proof)
            elif earlier != proof:
                raise ApiError(
                    409,
                    "this attempt of the run already has another proof, which never changes; use a new TrainingJob",
                    field="job",
                    value=proof.job,
                )

    async def order_update(self, namespace: str, job: str, order: UpdateOrder) -> UpdateOrder:
        """Orders an update once: the first order of a number stands, and an older number changes nothing."""
        async with self._db.session(namespace) as session:
            run = await session.locked(TrainingRunRow(namespace=namespace, job=job))
            earlier = UpdateOrder.model_validate(run.update_order) if run.update_order else None
            if earlier is not None and earlier.number >= order.number:
                return earlier
            run.update_order = order.model_dump(mode="json")
            detail = {"update": order.number, "baseline_sha256": order.baseline_sha256}
            await note(session.raw, namespace, "training.update", f"training-job/{job}", detail)
        return order

    async def get(self, namespace: str, job: str) -> TrainingRun:
        """A run's heartbeat, checkpoint and proof.

        Raises:
            ApiError: 404, nothing was ever reported.
        """
        async with self._db.session(namespace) as session:
            run = await session.get(TrainingRunRow, (namespace, job))
            checkpoint = (await session.exec(_checkpoints(namespace, job).limit(1))).first()
            now = await session.raw.fetchval("SELECT clock_timestamp()")
        if run is None:
            raise ApiError(404, "this run has not reported anything yet", field="job", value=job)
        return TrainingRun(
            job=job,
            heartbeat=Heartbeat.model_validate(run.heartbeat) if run.heartbeat else None,
            heartbeat_age_seconds=max(0.0, (now - run.received_at).total_seconds()) if run.received_at else None,
            checkpoint=_info(checkpoint) if checkpoint else None,
            proof=Proof.model_validate(run.proof) if run.proof else None,
            update=UpdateOrder.model_validate(run.update_order) if run.update_order else None,
        )

    async def delete(self, namespace: str, job: str) -> bool:
        """Deletes a run and its checkpoints; its artifact stays. False when there was nothing."""
        async with self._db.session(namespace) as session:
            run = await session.get(TrainingRunRow, (namespace, job), with_for_update=True)
            if run is None:
                return False
            old = (await session.exec(_checkpoints(namespace, job))).all()
            await session.delete(run)  # and its checkpoints, which refer to it
            await note(session.raw, namespace, "training.deleted", f"training-job/{job}")
        await self._remove([checkpoint.checkpoint_path for checkpoint in old])
        return True

    async def _remove(self, keys: list[str]) -> None:
        for key in keys:
            try:
                await self._blobs.delete(key)
            except Unavailable:
                log.warning("checkpoint blob %s could not be removed", key)


def _checkpoints(namespace: str, job: str) -> Any:
    """A run's checkpoints, newest first."""
    return select(ModelCheckpoint).filter_by(namespace=namespace, job=job).order_by(col(ModelCheckpoint.seq).desc())


def _no_newer(job: str, attempt: int | None, newest: int | None) -> None:
    """An upload may take longer than the gang that began it: the next one has gone on from another checkpoint."""
    if attempt is not None and newest is not None and attempt < newest:
        message = f"attempt {newest} of run {job} has begun, counted from 0; the checkpoint is of {attempt}"
        raise ApiError(409, message, field="x-learnloop-attempt", value=str(attempt))


async def _note(connection: Any, namespace: str, proof: Proof) -> None:
    """Notes a run's proof and, with a shield, the number of its interventions."""
    subject = f"training-job/{proof.job}"
    detail = {"step": proof.step, "artifact_sha256": proof.artifact_sha256, "agent": proof.agent}
    detail |= {"update": proof.update} if proof.update else {}
    await note(connection, namespace, "training.proof", subject, detail)
    if proof.interventions is not None:
        shield = {"actions": proof.actions, "interventions": proof.interventions, "record": proof.audit_uri}
        await note(connection, namespace, "safety.interventions", subject, shield)


def status_subject(namespace: str, job: str) -> str:
    """The subject of one run's heartbeats."""
    return f"{names.SUBJECT_TRAINING_STATUS}.{namespace}.{job}"


def _info(row: ModelCheckpoint) -> CheckpointInfo:
    return CheckpointInfo(step=row.training_iteration, sha256=row.sha256, size_bytes=row.size_bytes, at=row.created_at)


def _key(namespace: str, job: str, identity: UUID) -> str:
    return f"{namespace}/checkpoints/{job}/{identity}"
