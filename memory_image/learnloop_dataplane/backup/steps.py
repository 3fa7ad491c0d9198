"""Copies the artifact store into a backup and back, and checks the database around a restore."""

import hashlib
import os
from pathlib import Path
from typing import Any

from learnloop_dataplane.audit.verification import verify
from learnloop_dataplane.backup.folder import BackupError, Folder, artifacts_of, digest, read_manifest, write_artifacts
from learnloop_dataplane.blobs.blob_store import Blobs
from learnloop_dataplane.erasure.requests import FOLDER, OPTED_OUT
from learnloop_dataplane.postgres.database import Database

HELD = ("trajectories", "agent_memories", "artifacts", "model_checkpoints", "erasures")
"""Tables that are empty in an installation without experience."""
_NAMED = """
SELECT namespace || '/artifacts/' || left(sha256, 2) || '/' || sha256 FROM artifacts WHERE namespace = $1
UNION ALL SELECT checkpoint_path FROM model_checkpoints WHERE namespace = $1
"""


async def copy_artifacts(blobs: Blobs, folder: Folder) -> int:
    """Adds the artifact store's content to the backup in progress; returns how many keys it has.

    Called before and after the dump, it copies all that the dump can name. A key never gets other content, so keys of
    the newest backup are not read again.

    Raises:
        Unavailable: the store does not answer.
    """
    copied = artifacts_of(folder.part)
    older = artifacts_of(folder.finished()[-1]) if folder.finished() else {}
    for key in await blobs.keys(""):
        if key in copied:
            continue
        if key in older and folder.blob(older[key]).exists():
            copied[key] = older[key]
        elif (sha256 := await _copied(key, blobs, folder)) is not None:
            copied[key] = sha256
    write_artifacts(folder.part, copied)
    return len(copied)


async def _copied(key: str, blobs: Blobs, folder: Folder) -> str | None:
    """The digest; None where the key was deleted a moment ago."""
    chunks = await blobs.open(key)
    if chunks is None:
        return None
    part, hasher = folder.root / "blob.part", hashlib.sha256()
    with part.open("wb") as file:
        async for chunk in chunks:
            hasher.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    target = folder.blob(hasher.hexdigest())
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part.rename(target)
    return hasher.hexdigest()


async def restore_artifacts(backup: Path, folder: Folder, blobs: Blobs) -> int:
    """Puts a backup's content into the artifact store; returns how many keys.

    Erasures of every backup on the volume are restored, and opt-outs of the newest: the data plane repeats them at its
    start, so an older backup restores no erased person.

    Raises:
        BackupError: a blob is missing or changed.
        Unavailable: the store does not answer.
    """
    wanted = {key: sha256 for key, sha256 in artifacts_of(backup).items() if not _is_erasure(key)}
    for other in folder.finished():
        newest = other == folder.finished()[-1]
        records = {key: sha256 for key, sha256 in artifacts_of(other).items() if _is_erasure(key)}
        wanted |= {key: sha256 for key, sha256 in records.items() if newest or not key.endswith(f"/{OPTED_OUT}")}
    for key, sha256 in wanted.items():
        source = folder.blob(sha256)
        if not source.is_file():
            raise BackupError(f"{source} is missing: copy the folder blobs again")
        if digest(source) != sha256:
            raise BackupError(f"{source} was changed: its SHA-256 differs; take it from another copy")
        await blobs.put(key, source)
    return len(wanted)


def _is_erasure(key: str) -> bool:
    return key.startswith(f"{FOLDER}/") and ".." not in key.split("/")


async def check(db: Database, backup: Path) -> None:
    """Checks, before anything is written, that the backup is complete and the installation empty.

    Raises:
        BackupError: it is not.
        Unavailable: the database does not answer.
    """
    read_manifest(backup)
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            for table in HELD:
                if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):
                    raise BackupError(
                        f"this installation is not empty: {namespace} has {table}; restore into a new database"
                    )


async def restore(db: Database, blobs: Blobs, backup: Path, folder: Folder) -> dict[str, Any]:
    """Restores the artifacts after pg_restore, and verifies that they and the audit chains are complete.

    Raises:
        BackupError: something differs from the backup; names it.
        Unavailable: a store does not answer; this step may be repeated.
    """
    read_manifest(backup)
    count, keys, chains = await restore_artifacts(backup, folder, blobs), artifacts_of(backup), {}
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            missing = [row[0] for row in await connection.fetch(_NAMED, namespace) if row[0] not in keys]
        if missing:
            raise BackupError(f"{backup.name} lacks {len(missing)} artifacts of the database, such as {missing[0]}")
        report = await verify(db, namespace)
        if report.problem is not None:
            raise BackupError(f"the audit chain of namespace {namespace} is incomplete: {report.problem.message}")
        chains[namespace] = report.records
    return {"backup": backup.name, "artifacts": count, "chains": chains}
