"""Copies artifacts and checkpoints to a folder of backups, and back; each is compared with its digest on the way."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from learnloop_common.encryption import MAGIC, is_sealed
from learnloop_dataplane.audit.signing import checkpoint_key
from learnloop_dataplane.backup.folder import (
    ARTIFACTS,
    CHECKPOINTS,
    BackupError,
    Blob,
    Folder,
    digest,
    read_blobs,
    write_lines,
)
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.registry.artifacts import artifact_key

HEAD_BYTES = len(MAGIC)
_ARTIFACTS = "SELECT sha256, size_bytes FROM artifacts WHERE namespace = $1"
_CHECKPOINTS = "SELECT checkpoint_path, sha256, size_bytes FROM model_checkpoints WHERE namespace = $1"


async def known(db: Database) -> list[Blob]:
    """All that the database names."""
    found: list[Blob] = []
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            for row in await connection.fetch(_ARTIFACTS, namespace):
                found.append(Blob(artifact_key(namespace, row["sha256"]), row["sha256"], row["size_bytes"]))
            for row in await connection.fetch(_CHECKPOINTS, namespace):
                found.append(Blob(row["checkpoint_path"], row["sha256"], row["size_bytes"]))
    return found


async def copy(db: Database, blobs: BlobStore, folder: Folder) -> int:
    """Copies what the database names now, beside what it named at an earlier call for the same backup.

    Two calls, before and after the dump, hold all that the dump can name. Returns how many blobs the backup has. A key
    never gets other bytes, so what the newest backup has is not read again.

    Raises:
        BackupError: a blob is not what its row says.
        Unavailable: database or store do not answer.
    """
    path = folder.part / ARTIFACTS
    kept = {blob.key: blob for blob in read_blobs(path)}
    older = {blob.key: blob for name in folder.names()[-1:] for blob in read_blobs(name / ARTIFACTS)}
    for blob in await known(db):
        before = older.get(blob.key)
        if blob.key in kept:
            continue
        if before is not None and folder.blob(before.sha256).exists():
            kept[blob.key] = before
        elif (stored := await _copied(blob, blobs, folder)) is not None:
            kept[blob.key] = stored
    return write_lines(path, (asdict(kept[key]) for key in sorted(kept)))


async def _copied(blob: Blob, blobs: BlobStore, folder: Folder) -> Blob | None:
    """The blob as the store has it; a sealed one has another digest than its row. None: deleted a moment ago."""
    chunks = await blobs.open(blob.key)
    if chunks is None:
        return None
    part = folder.part / "blob.part"
    hasher, size, head = hashlib.sha256(), 0, b""
    with part.open("wb") as file:
        async for chunk in chunks:
            head = head or chunk[:HEAD_BYTES]
            hasher.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if hasher.hexdigest() != blob.sha256 and not is_sealed(head):
        part.unlink()
        raise BackupError(f"the blob {blob.key} is not what was stored: its SHA-256 is {hasher.hexdigest()}")
    target = folder.blob(hasher.hexdigest())
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part.rename(target)
    return Blob(blob.key, hasher.hexdigest(), size)


async def copy_audit_checkpoints(db: Database, blobs: BlobStore, folder: Folder) -> None:
    """The signatures outside of the database, from before the dump: a later one would vouch for more than it has."""
    found = []
    for namespace in await db.namespaces():
        chunks = await blobs.open(checkpoint_key(namespace))
        if chunks is not None:
            content = b"".join([chunk async for chunk in chunks])
            found.append({"key": checkpoint_key(namespace), "content": json.loads(content)})
    write_lines(folder.part / CHECKPOINTS, found)


async def put_back(backup: Path, folder: Folder, blobs: BlobStore) -> int:
    """Every blob of a backup, in the store again. Returns how many.

    Raises:
        BackupError: one is missing or is not what it was.
        Unavailable: the store does not answer.
    """
    there = read_blobs(backup / ARTIFACTS)
    for blob in there:
        source = folder.blob(blob.sha256)
        if not source.is_file():
            raise BackupError(f"{source} is missing: copy the folder {source.parent.parent.name} again")
        if digest(source) != blob.sha256:
            raise BackupError(
                f"{source} is not what was written: its SHA-256 is another one; take it from another copy"
            )
        await _put(blobs, blob.key, source)
    for line in (backup / CHECKPOINTS).read_text().splitlines():
        item = json.loads(line)
        await _put(blobs, item["key"], json.dumps(item["content"]).encode())
    return len(there)


async def _put(blobs: BlobStore, key: str, content: bytes | Path) -> None:
    """The store takes the file, so it is given a copy."""
    handle, name = tempfile.mkstemp(dir=blobs.spool, prefix="restore-")
    os.close(handle)
    copy_of = Path(name)
    try:
        if isinstance(content, bytes):
            copy_of.write_bytes(content)
        else:
            shutil.copyfile(content, copy_of)
        await blobs.put(key, copy_of)
    finally:
        copy_of.unlink(missing_ok=True)
