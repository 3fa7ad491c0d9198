"""Keys that sign audit chains, and checkpoints: signatures over the end of a chain."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.chain import canonical
from learnloop_dataplane.config import Config
from learnloop_dataplane.config_values import seed_from


class Signer:
    """Ed25519 keys (RFC 8032), one of which signs at each moment.

    Args:
        keys: seeds in Base64.

    Raises:
        ValueError: a seed does not have 32 bytes.
    """

    def __init__(self, keys: KeyLines) -> None:
        self._lines = keys
        self._keys = {value: Ed25519PrivateKey.from_private_bytes(seed_from(value)) for value in keys.values}

    @property
    def public_keys(self) -> list[bytes]:
        """The public keys, the newest first."""
        return [key.public_key().public_bytes_raw() for key in self._keys.values()]

    def sign(self, document: dict[str, Any]) -> tuple[bytes, bytes]:
        """The public key of the signing key, and its signature over the document's canonical JSON."""
        key = self._keys[self._lines.current()]
        return key.public_key().public_bytes_raw(), key.sign(canonical(document))


def verifies(public_key: bytes, document: dict[str, Any], signature: bytes) -> bool:
    """True if the key that belongs to this public key signed the document."""
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
        return Checkpoint(namespace, seq, at, hash, *signer.sign(_document(namespace, seq, at, hash)))

    def holds(self) -> bool:
        """True if the signature is by the key that the checkpoint names."""
        document = _document(self.namespace, self.seq, self.at, self.hash)
        return verifies(self.public_key, document, self.signature)

    def to_json(self) -> dict[str, Any]:
        """Bytes as hexadecimal."""
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(value: Any) -> "Checkpoint":
        """Reads what `to_json` made; raises ValueError."""
        try:
            at, raw = datetime.fromisoformat(value["at"]), (value["hash"], value["public_key"], value["signature"])
            return Checkpoint(str(value["namespace"]), int(value["seq"]), at, *map(bytes.fromhex, raw))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a checkpoint: {error!r}") from None


def _document(namespace: str, seq: int, at: datetime, hash: bytes) -> dict[str, Any]:
    return {"namespace": namespace, "seq": seq, "at": at, "hash": hash.hex()}


def signer_of(config: Config) -> Signer | None:
    """The keys of this process; None without one."""
    return Signer(keys) if (keys := config.lines("audit_key")) else None


def trusted_keys(config: Config) -> list[bytes]:
    """Public keys of this process and of those before it: what a rotated key signed still holds."""
    signer = signer_of(config)
    return [*(signer.public_keys if signer else []), *map(bytes.fromhex, config.audit_trusted_keys.split())]
