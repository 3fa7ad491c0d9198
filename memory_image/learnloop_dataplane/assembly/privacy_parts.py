"""People's rights: erasure, opt-out, and the time after which everything goes."""

import logging

from learnloop_dataplane.assembly.memory_parts import MemoryParts
from learnloop_dataplane.assembly.parts import AuditParts, ExperienceParts, SharedParts
from learnloop_dataplane.erasure.requests import Erasing, LastingRecords
from learnloop_dataplane.erasure.retention import Retention

RETENTION_SECONDS = 3600.0
log = logging.getLogger(__name__)


class PrivacyParts:
    """Erasure, opt-outs and retention."""

    def __init__(
        self, shared: SharedParts, audit: AuditParts, experience: ExperienceParts, memory: MemoryParts
    ) -> None:
        self._shared = shared
        self._looked_back = False
        self.users = shared.users
        records = LastingRecords(shared.plain_blobs)
        kept = (shared.users, experience.opinions, memory.recall_log, memory.vectors)
        self.erasing = Erasing(shared.db, shared.bus, *kept, shared.warehouse, audit.sealer, audit.signer, records)
        warehouse = shared.warehouse is not None
        self.retention = Retention(shared.db, shared.config.retention_days, warehouse=warehouse)

    def start(self) -> None:
        """Begins deleting what is older than the time of retention, and what a restored database has back."""
        self._shared.background.repeat(self._erase_again, "erasures", pause=RETENTION_SECONDS)
        self._shared.background.repeat(self.retention.run, "retention", pause=RETENTION_SECONDS)

    async def _erase_again(self) -> None:
        """Once after each start: nobody restores a database that is in use."""
        if not self._looked_back:
            if found := await self.erasing.again():
                log.warning("the database had %d erasures and opt-outs less than are on record: made again", found)
            self._looked_back = True
