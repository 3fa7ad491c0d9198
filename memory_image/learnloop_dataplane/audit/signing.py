"""Signed checkpoints of audit chains: the keys, the signatures, and the copy in the artifact store."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import orjson
from pydantic_core import to_json

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.chain import canonical
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.config import Config
from learnloop_dataplane.config_values import seed_from
from learnloop_dataplane.postgres.database import Database


class Signer:
    """A private key.

    Args:
        seed: 32 random bytes, the private key of RFC 8032.

    Raises:
        ValueError: not 32 bytes.
    """

    def __init__(self, seed: bytes) -> None:
        # cryptography is 7 MiB that a chain without a key does without.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._key.public_key().public_bytes_raw()

    def now(self) -> "Signer":
        """The one key that signs at this moment."""
        return self

    def sign(self, document: dict[str, Any]) -> bytes:
        """64 bytes over the document's canonical JSON."""
        return self._key.sign(canonical(document))


class SuccessiveSigner(Signer):
    """Several private keys, of which one signs at each moment; what the others signed or will sign is theirs, too.

    Args:
        keys: seeds in Base64, the newest first.

    Raises:
        ValueError: one is not 32 bytes.
    """

    def __init__(self, keys: KeyLines) -> None:
        self._lines = keys
        self._signers = {value: Signer(seed_from(value)) for value in keys.values}

    def now(self) -> Signer:
        """The one key that signs at this moment."""
        return self._signers[self._lines.current()]

    @property
    def public_key(self) -> bytes:  # type: ignore[override]
        """Of the key that signs at this moment; ask `now` where signature and key must belong together."""
        return self.now().public_key

    @property
    def public_keys(self) -> list[bytes]:
        """Of all of them."""
        return [signer.public_key for signer in self._signers.values()]

    def sign(self, document: dict[str, Any]) -> bytes:
        """By the key that signs at this moment."""
        return self.now().sign(document)


def verifies(public_key: bytes, document: dict[str, Any], signature: bytes) -> bool:
    """Was this document signed with the key that belongs to this public key?"""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, canonical(document))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signature over the hash of record `seq`, and with it over every record up to there."""

    namespace: str
    seq: int
    at: datetime
    hash: bytes
    public_key: bytes
    signature: bytes

    @staticmethod
    def signed(signer: Signer, namespace: str, seq: int, at: datetime, hash: bytes) -> "Checkpoint":
        """Signs a place of the chain."""
        signer = signer.now()
        signature = signer.sign(_document(namespace, seq, at, hash))
        return Checkpoint(namespace, seq, at, hash, signer.public_key, signature)

    def holds(self) -> bool:
        """Is the signature by the key it names?"""
        document = _document(self.namespace, self.seq, self.at, self.hash)
        return verifies(self.public_key, document, self.signature)

    def to_json(self) -> dict[str, Any]:
        """With bytes as hexadecimal."""
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(value: Any) -> "Checkpoint":
        """The reverse.

        Raises:
            ValueError: it is something else.
        """
        try:
            keep = bytes.fromhex
            return Checkpoint(
                str(value["namespace"]),
                int(value["seq"]),
                datetime.fromisoformat(value["at"]),
                keep(value["hash"]),
                keep(value["public_key"]),
                keep(value["signature"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a checkpoint: {error!r}") from None


def _document(namespace: str, seq: int, at: datetime, hash: bytes) -> dict[str, Any]:
    return {"namespace": namespace, "seq": seq, "at": at, "hash": hash.hex()}


def successive_signer(config: Config) -> SuccessiveSigner | None:
    """The keys of this process; None: it has none."""
    return SuccessiveSigner(keys) if (keys := config.lines("audit_key")) else None


def trusted_keys(config: Config, signer: SuccessiveSigner | None = None) -> list[bytes]:
    """Public keys. A rotated key signs nothing more, and what it signed still holds."""
    signer = signer or successive_signer(config)
    # Without a key of its own the process trusts the others alone, if there are any.
    return [*(signer.public_keys if signer else []), *map(bytes.fromhex, config.audit_trusted_keys.split())]


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
