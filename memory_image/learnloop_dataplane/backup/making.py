"""Makes a backup: artifacts and checkpoints, compared with their digests, erasures, messages and keys."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from learnloop_common.encryption import MAGIC, is_sealed
from learnloop_common.sealed_box import seal
from learnloop_dataplane.audit.signing import Signer, checkpoint_key
from learnloop_dataplane.backup.folder import (
    ARTIFACTS,
    CHECKPOINTS,
    DUMP,
    ERASURES,
    KEYS,
    MESSAGES,
    BackupError,
    BackupManifest,
    Blob,
    Folder,
    copy_messages,
    digest,
    read_blobs,
    write_lines,
)
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.erasure.requests import FOLDER, OPTED_OUT
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import HEAD
from learnloop_dataplane.registry.artifacts import artifact_key

HEAD_BYTES = len(MAGIC)
_ARTIFACTS = "SELECT sha256, size_bytes FROM artifacts WHERE namespace = $1"
_CHECKPOINTS = "SELECT checkpoint_path, sha256, size_bytes FROM model_checkpoints WHERE namespace = $1"


async def known_blobs(db: Database) -> list[Blob]:
    """All that the database names."""
    found: list[Blob] = []
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            for row in await connection.fetch(_ARTIFACTS, namespace):
                found.append(Blob(artifact_key(namespace, row["sha256"]), row["sha256"], row["size_bytes"]))
            for row in await connection.fetch(_CHECKPOINTS, namespace):
                found.append(Blob(row["checkpoint_path"], row["sha256"], row["size_bytes"]))
    return found


async def copy_artifacts(db: Database, blobs: BlobStore, folder: Folder) -> int:
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
    for blob in await known_blobs(db):
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


async def restore_artifacts(backup: Path, folder: Folder, blobs: BlobStore) -> int:
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


BEGUN = "begun.json"
_HEAD = "SELECT seq, hash FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 1"


async def copy_erasures(blobs: BlobStore, folder: Folder) -> None:
    """Writes the keys of all records of erasures and opt-outs; a key is the whole record. Raises Unavailable."""
    write_lines(folder.part / ERASURES, sorted(await blobs.keys(f"{FOLDER}/")))


async def restore_erasures(folder: Folder, blobs: BlobStore) -> int:
    """Restores erasures of every backup, and the opt-outs of the newest. Returns how many.

    So an older backup brings no erased person back.

    The data plane makes them again at its start. Raises Unavailable.
    """
    read = [_keys(name / ERASURES) for name in folder.names()]
    wanted = {key for keys in read for key in keys if not key.endswith(f"/{OPTED_OUT}")} | set(read[-1])
    for key in sorted(wanted):
        handle, name = tempfile.mkstemp(dir=blobs.spool, prefix="restore-")
        with os.fdopen(handle, "wb") as file:
            file.write(b"erased\n")
        try:
            await blobs.put(key, Path(name))
        finally:
            Path(name).unlink(missing_ok=True)
    return len(wanted)


def _keys(path: Path) -> list[str]:
    if not path.exists():
        return []
    found = [str(json.loads(line)) for line in path.read_text().splitlines()]
    return [key for key in found if key.startswith(f"{FOLDER}/") and ".." not in key.split("/")]


async def begin(db: Database, bus: Bus | None, blobs: BlobStore, folder: Folder, created_at: str) -> None:
    """Everything that has to be older than the dump.

    Raises:
        BackupError, Unavailable: it cannot be made now.
    """
    part = folder.begin()
    begun = BackupManifest(created_at, HEAD)
    begun.streams = await copy_messages(bus, part) if bus else {}
    if bus is None:
        write_lines(part / MESSAGES, [])
    await copy_audit_checkpoints(db, blobs, folder)
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            row = await connection.fetchrow(_HEAD, namespace)
        if row is not None:
            begun.chains[namespace] = {"records": row["seq"], "head": bytes(row["hash"]).hex()}
    await copy_artifacts(db, blobs, folder)
    (part / BEGUN).write_bytes(begun.to_bytes())


async def finish(
    db: Database, blobs: BlobStore, folder: Folder, *, signer: Signer | None, recipient: str, keys: Mapping[str, str]
) -> Path:
    """What is newer than the dump, the sealed keys, and the manifest. Returns the finished backup.

    Args:
        recipient: whom the keys are sealed for; "": the backup has none.
        keys: what is sealed, by name.

    Raises:
        BackupError: there is no dump.
        ValueError: the recipient is none.
        Unavailable: database or store do not answer.
    """
    try:
        manifest = BackupManifest(**json.loads((folder.part / BEGUN).read_bytes()))
    except (OSError, ValueError, TypeError):
        raise BackupError(f"{folder.part} was not begun: make the backup from its first step") from None
    if not (folder.part / DUMP).is_file():
        raise BackupError(f"{folder.part / DUMP} is missing: pg_dump writes it between the two steps")
    await copy_artifacts(db, blobs, folder)
    await copy_erasures(blobs, folder)
    if recipient:
        (folder.part / KEYS).write_bytes(seal(json.dumps(dict(keys)).encode(), recipient))
    (folder.part / BEGUN).unlink()
    return folder.finish(manifest, signer)
