"""The newest checkpoint of a chain, kept with the artifacts: who can only write to PostgreSQL cannot roll it back."""

import logging
from pathlib import Path
from tempfile import NamedTemporaryFile

import orjson
from pydantic_core import to_json

from learnloop_dataplane.audit.signing import Checkpoint
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.postgres.database import Database

log = logging.getLogger(__name__)
_HASH = "SELECT hash FROM audit_log WHERE namespace = $1 AND seq = $2"


def checkpoint_key(namespace: str) -> str:
    """Where a namespace's newest checkpoint lies among the artifacts."""
    return f"{namespace}/audit/checkpoint.json"


async def newest_checkpoint(blobs: BlobStore, namespace: str) -> Checkpoint | None:
    """The one that lies with the artifacts.

    Raises:
        Unavailable: they cannot be read.
        ValueError: it is not a checkpoint.
    """
    chunks = await blobs.open(checkpoint_key(namespace))
    if chunks is None:
        return None
    return Checkpoint.from_json(orjson.loads(b"".join([chunk async for chunk in chunks])))


async def keep(db: Database, blobs: BlobStore, checkpoint: Checkpoint) -> None:
    """Puts a checkpoint in the place of the one before it, where the chain goes on from there.

    Of a chain that was cut or written anew in PostgreSQL the older one stays: it is what shows this.

    Raises:
        Unavailable: artifacts or database do not answer.
    """
    if not await _goes_on(db, blobs, checkpoint):
        return
    with NamedTemporaryFile(dir=blobs.spool, delete=False) as file:
        file.write(to_json(checkpoint.to_json()))
    try:
        await blobs.put(checkpoint_key(checkpoint.namespace), Path(file.name))
    finally:
        Path(file.name).unlink(missing_ok=True)


async def _goes_on(db: Database, blobs: BlobStore, checkpoint: Checkpoint) -> bool:
    namespace = checkpoint.namespace
    try:
        before = await newest_checkpoint(blobs, namespace)
    except ValueError as error:
        log.error("audit chain of %s: the checkpoint with the artifacts stays, damaged as it is: %s", namespace, error)
        return False
    if before is None:
        return True
    async with db.tenant(namespace) as connection:
        found = await connection.fetchval(_HASH, namespace, before.seq)
    if found is None or bytes(found) != before.hash:
        log.error(
            "audit chain of %s: record %d is not the one that was signed; the checkpoint over it stays, see `verify`",
            namespace,
            before.seq,
        )
        return False
    return before.seq < checkpoint.seq  # another process may have been faster
