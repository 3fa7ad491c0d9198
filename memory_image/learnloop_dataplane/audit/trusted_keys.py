"""Whose signatures over the chains count: of the key in use, and of those before it."""

from learnloop_dataplane.audit.signing import Signer
from learnloop_dataplane.config import Config
from learnloop_dataplane.ed25519_keys import seed_from


def trusted_keys(config: Config, signer: Signer | None = None) -> list[bytes]:
    """Public keys. A rotated key signs nothing more, and what it signed still holds."""
    if signer is None and config.audit_key is not None:
        signer = Signer(seed_from(config.audit_key.get_secret_value()))
    # Without a key of its own the process trusts the others alone, if there are any.
    return [*([signer.public_key] if signer else []), *map(bytes.fromhex, config.audit_trusted_keys.split())]
