"""Messages that can never be stored: kept, shortened and redacted, with the reason."""

from uuid import NAMESPACE_OID, uuid5

from nats.aio.msg import Msg

from learnloop_memory.experience.redact import redact_text
from learnloop_memory.experience.subjects import Refused
from learnloop_memory.store.database import Database

MAX_PAYLOAD = 4096
_INSERT = """
INSERT INTO dead_letters (namespace, id, subject, reason, payload) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""


async def put(db: Database, refusal: Refused, message: Msg) -> None:
    """Writes one row; the same delivery twice gives one row.

    Raises:
        Unavailable: nothing was written.
    """
    meta = message.metadata
    key = uuid5(NAMESPACE_OID, f"{meta.stream}/{meta.sequence.stream}/{meta.timestamp.timestamp()}")
    payload = redact_text(message.data[:MAX_PAYLOAD].decode(errors="replace"))
    reason = redact_text(refusal.reason)
    async with db.tenant(refusal.namespace) as connection:
        await connection.execute(_INSERT, refusal.namespace, key, message.subject[:512], reason, payload)
