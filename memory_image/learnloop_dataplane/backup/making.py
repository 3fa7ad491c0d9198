"""Makes a backup, in two steps with the dump of the database between them.

What waits in the streams is copied first: a message that is stored meanwhile is in the dump too, and is stored once.
Artifacts are copied before and after: the dump names none that is missing.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from learnloop_common.sealed_box import seal
from learnloop_dataplane.audit.signing import Signer
from learnloop_dataplane.backup import artifacts, erasures, streams
from learnloop_dataplane.backup.folder import DUMP, KEYS, STREAMS, BackupError, BackupManifest, Folder, write_lines
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import HEAD

BEGUN = "begun.json"
_HEAD = "SELECT seq, hash FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 1"


async def begin(db: Database, bus: Bus | None, blobs: BlobStore, folder: Folder, created_at: str) -> None:
    """Everything that has to be older than the dump.

    Raises:
        BackupError, Unavailable: it cannot be made now.
    """
    part = folder.begin()
    begun = BackupManifest(created_at, HEAD)
    begun.streams = await streams.copy(bus, part) if bus else {}
    if bus is None:
        write_lines(part / STREAMS, [])
    await artifacts.copy_audit_checkpoints(db, blobs, folder)
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            row = await connection.fetchrow(_HEAD, namespace)
        if row is not None:
            begun.chains[namespace] = {"records": row["seq"], "head": bytes(row["hash"]).hex()}
    await artifacts.copy(db, blobs, folder)
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
    await artifacts.copy(db, blobs, folder)
    await erasures.copy(blobs, folder)
    if recipient:
        (folder.part / KEYS).write_bytes(seal(json.dumps(dict(keys)).encode(), recipient))
    (folder.part / BEGUN).unlink()
    return folder.finish(manifest, signer)
