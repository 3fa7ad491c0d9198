"""Who signs the chains, and whose signatures over them count: of the keys in the Secret, and of those before them."""

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.signing import SuccessiveSigner
from learnloop_dataplane.config import Config


def successive_signer(config: Config) -> SuccessiveSigner | None:
    """The keys of this process; None: it has none."""
    return SuccessiveSigner(KeyLines.parse(config.audit_key.get_secret_value())) if config.audit_key else None


def trusted_keys(config: Config, signer: SuccessiveSigner | None = None) -> list[bytes]:
    """Public keys. A rotated key signs nothing more, and what it signed still holds."""
    signer = signer or successive_signer(config)
    # Without a key of its own the process trusts the others alone, if there are any.
    return [*(signer.public_keys if signer else []), *map(bytes.fromhex, config.audit_trusted_keys.split())]
