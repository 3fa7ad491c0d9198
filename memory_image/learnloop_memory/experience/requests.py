"""`agent.rl.training.request.v1.<namespace>.<agent>`: someone asks for training; the operator reads it in the stats."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import BaseModel, ConfigDict, ValidationError

from learnloop_api import names
from learnloop_api.wire.base import Identifier
from learnloop_memory.errors import Unavailable
from learnloop_memory.experience import dead_letters
from learnloop_memory.experience.consumer import keep
from learnloop_memory.experience.subjects import Refused, split_subject
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
DURABLE = "learnloop-requests"
# A redelivered older request must not replace a newer one: the stream's own time decides.
_UPSERT = """
INSERT INTO agents (namespace, name, training_request, training_requested_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, name) DO UPDATE
SET training_request = excluded.training_request, training_requested_at = excluded.training_requested_at
WHERE agents.training_requested_at IS NULL OR agents.training_requested_at <= excluded.training_requested_at
"""


class TrainingRequest(BaseModel):
    """The body; other fields are the sender's own business."""

    model_config = ConfigDict(extra="ignore")
    request_id: Identifier


class RequestConsumer:
    """Writes the newest request of each agent into its row."""

    def __init__(self, db: Database, ack_wait: float) -> None:
        self._db = db
        self._patience = min(0.5, ack_wait / 4)

    async def handle(self, messages: Sequence[Msg]) -> None:
        """Returns when every message is settled."""
        for message in messages:
            while True:
                try:
                    await self._settle(message)
                    break
                except Unavailable:
                    await keep(messages)
                    await asyncio.sleep(self._patience)

    async def _settle(self, message: Msg) -> None:
        try:
            namespace, agent = split_subject(message.subject, names.SUBJECT_TRAINING_REQUEST)
            try:
                request = TrainingRequest.model_validate_json(message.data)
            except ValidationError as error:
                raise Refused(namespace, f"request_id: {error.errors(include_url=False)[0]['msg']}") from None
        except Refused as refusal:
            await dead_letters.put(self._db, refusal, message)
            with suppress(NatsError):
                await message.term()
            return
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_UPSERT, namespace, agent, request.request_id, message.metadata.timestamp)
        with suppress(NatsError):
            await message.ack()
