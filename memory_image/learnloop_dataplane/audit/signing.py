"""Ed25519 (RFC 8032): signed checkpoints of the chain, and signed receipts."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.chain_record import canonical
from learnloop_dataplane.ed25519_keys import seed_from


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
