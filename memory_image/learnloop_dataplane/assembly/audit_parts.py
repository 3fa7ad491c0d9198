"""The audit chains: read, signed, checked."""

from typing import Any

from learnloop_dataplane.assembly.shared_parts import SharedParts
from learnloop_dataplane.audit import chain, sealer
from learnloop_dataplane.audit.sealer import Sealer
from learnloop_dataplane.audit.signing import Checkpoint, newest_checkpoint, successive_signer, trusted_keys
from learnloop_dataplane.audit.verification import VerificationReport, verify


class AuditParts:
    """The chains of all namespaces, and who signs them; `signer` None: nobody.

    Checkpoints of a chain tell nothing of its contents. They are never sealed: whoever verifies them needs no key.
    """

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        self._shared = shared
        self.signer = successive_signer(config)
        self.sealer = Sealer(
            shared.db,
            shared.plain_blobs,
            self.signer,
            every=config.audit_checkpoint_seconds,
            copy=sealer.write if config.audit_log else None,
        )

    def start(self) -> None:
        """Records go into their chains, wherever they were left, by this process or another one."""
        self._shared.in_turns("audit", self.sealer.run, every=self._shared.config.sweep_seconds)

    async def page(
        self, namespace: str, after: int, limit: int, *, action: str | None, subject: str | None
    ) -> list[dict[str, Any]]:
        """Up to `limit` records behind place `after`, hashes as hexadecimal."""
        return await chain.page(self._shared.db, namespace, after, limit, action=action, subject=subject)

    async def checkpoint(self, namespace: str) -> Checkpoint | None:
        """The newest signature over the chain; None where nothing is signed."""
        return await newest_checkpoint(self._shared.plain_blobs, namespace)

    async def verify(self, namespace: str) -> VerificationReport:
        """Checks the whole chain, against this process's own key, where it has one, and those before it."""
        trusted = trusted_keys(self._shared.config, self.signer)
        return await verify(self._shared.db, self._shared.plain_blobs, namespace, trusted=trusted)
