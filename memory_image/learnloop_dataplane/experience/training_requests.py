"""`agent.rl.training.request.v1.<namespace>.<agent>`: someone asks for training; the operator reads it in the stats."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from learnloop_api import names
from learnloop_api.wire.training_request import TrainingRequest
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.experience.dead_letters import DeadLetters
from learnloop_dataplane.nats.delivery_heartbeat import keep
from learnloop_dataplane.nats.message_errors import invalid
from learnloop_dataplane.nats.subjects import RefusedMessage, split_subject
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.strict_json import StrictReader

DURABLE = "learnloop-requests"
_READER = StrictReader(TrainingRequest)
KEPT_IDS = 64
"""Ids of an agent's requests that are known again: those of the newest so many."""
# A redelivered older request must not replace a newer one: the stream's own time decides. Nor must one that its sender
# repeats after another one: the operator knows the newest id alone, and would train again.
_UPSERT = f"""
INSERT INTO agents AS agent
    (namespace, name, training_request, training_requested_at, training_wish, training_request_ids)
VALUES ($1, $2, $3, $4, $5, ARRAY[$3])
ON CONFLICT (namespace, name) DO UPDATE
SET training_request = excluded.training_request, training_requested_at = excluded.training_requested_at,
    training_wish = excluded.training_wish,
    training_request_ids = (excluded.training_request_ids || agent.training_request_ids)[1:{KEPT_IDS}]
WHERE (agent.training_requested_at IS NULL OR agent.training_requested_at <= excluded.training_requested_at)
    AND agent.training_request IS DISTINCT FROM excluded.training_request
    AND NOT excluded.training_request_ids <@ agent.training_request_ids
"""


class RequestConsumer:
    """Writes the newest request of each agent into its row."""

    def __init__(self, db: Database, dead_letters: DeadLetters, ack_wait: float) -> None:
        self._db = db
        self._dead_letters = dead_letters
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
            self._dead_letters.check(message)
            namespace, agent = split_subject(message.subject, names.SUBJECT_TRAINING_REQUEST)
            try:
                request: TrainingRequest = _READER.read(message.data)
            except ValidationError as error:
                raise invalid(namespace, names.SUBJECT_TRAINING_REQUEST, error, message.data) from None
        except RefusedMessage as refusal:
            await self._dead_letters.put(message, refusal)
            return
        async with self._db.tenant(namespace) as connection:
            at, wish = message.metadata.timestamp, request.model_dump_json(exclude_defaults=True)
            await connection.execute(_UPSERT, namespace, agent, request.request_id, at, wish)
        with suppress(NatsError):
            await message.ack()
