"""Restores a backup: checks it before anything is written, and proves afterwards that everything is as it was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learnloop_dataplane.audit.verification import verify
from learnloop_dataplane.backup.folder import (
    ARTIFACTS,
    BackupError,
    BackupManifest,
    Folder,
    publish_messages,
    read_blobs,
    read_manifest,
)
from learnloop_dataplane.backup.making import known_blobs, restore_artifacts, restore_erasures
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import HEAD

HELD = ("trajectories", "agent_memories", "artifacts", "model_checkpoints", "erasures")
"""Tables that an installation without experience has nothing in."""
_ERASED = (
    "SELECT count(*) FROM trajectories t JOIN erased_trajectories e ON e.namespace = t.namespace"
    " AND e.digest = encode(sha256(convert_to(t.namespace || '/' || t.trajectory_id, 'UTF8')), 'hex')"
    " WHERE t.namespace = $1"
)
_TOMBSTONES = "SELECT (SELECT count(*) FROM erasures) + (SELECT count(*) FROM erased_trajectories)"
_AT = "SELECT hash FROM audit_log WHERE namespace = $1 AND seq = $2"


async def check(db: Database, backup: Path, trusted: Sequence[bytes], *, unsigned: bool = False) -> BackupManifest:
    """Before anything is written: the backup is whole, and nothing here would be lost.

    Raises:
        BackupError: it is not, or something would.
        Unavailable: the database does not answer.
    """
    manifest, _ = read_manifest(backup, trusted, unsigned=unsigned)
    if manifest.schema > HEAD:
        raise BackupError(
            f"{backup.name} is of schema {manifest.schema}, and this version knows {HEAD}: install a newer one"
        )
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            for table in HELD:
                if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):
                    raise BackupError(
                        f"this installation is not empty: {namespace} has {table}; restore into a new database"
                    )
    return manifest


async def restore(
    db: Database,
    bus: Bus | None,
    blobs: BlobStore,
    backup: Path,
    folder: Folder,
    trusted: Sequence[bytes],
    *,
    unsigned: bool = False,
) -> dict[str, Any]:
    """After pg_restore: artifacts and waiting messages, and proof that all is as it was.

    Messages go last: whoever reads them finds the tombstones of those who were erased.

    Raises:
        BackupError: something is not as it was; names it.
        Unavailable, ApiError: a store does not answer; to begin this step again is safe.
    """
    manifest, signed = read_manifest(backup, trusted, unsigned=unsigned)
    put = await restore_artifacts(backup, folder, blobs)
    erased = await restore_erasures(folder, blobs)
    there = {blob.key for blob in read_blobs(backup / ARTIFACTS)}
    missing = [blob.key for blob in await known_blobs(db) if blob.key not in there]
    if missing:
        raise BackupError(f"{len(missing)} artifacts of the database are in no backup, the first is {missing[0]}")
    chains, tombstones = {}, 0
    for namespace in await db.namespaces():
        report = await verify(db, blobs, namespace, trusted=trusted)
        if report.problem is not None:
            raise BackupError(f"the audit chain of namespace {namespace} is not whole: {report.problem.message}")
        async with db.tenant(namespace) as connection:
            if await connection.fetchval(_ERASED, namespace):
                raise BackupError(f"namespace {namespace} has episodes that were erased: the dump is not what was made")
            tombstones += await connection.fetchval(_TOMBSTONES)
        chains[namespace] = report.records
    await _compare(db, manifest)
    waiting = await publish_messages(bus, backup) if bus else {}
    return {
        "backup": backup.name,
        "signed": signed,
        "artifacts": put,
        "chains": chains,
        "tombstones": tombstones,
        "erasures": erased,
        "messages": waiting,
    }


async def _compare(db: Database, manifest: BackupManifest) -> None:
    """A chain may have grown until the dump, and its record of that time is still the same."""
    for namespace, said in manifest.chains.items():
        async with db.tenant(namespace) as connection:
            found = await connection.fetchval(_AT, namespace, said["records"])
        if found is None or bytes(found).hex() != said["head"]:
            raise BackupError(
                f"record {said['records']} of the audit chain of {namespace} is not the one of the manifest: "
                f"the dump is of another time or place"
            )
