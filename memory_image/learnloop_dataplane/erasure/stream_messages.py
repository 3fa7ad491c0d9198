"""Erases messages: the rewards of one person's or one agent's episodes that a stream has.

Episodes lie in a work queue until they are stored. The reader of the queue refuses those that were erased.
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from learnloop_api import names
from learnloop_dataplane.erasure.rows import Scope
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.nats.connection import REWARDS, Bus
from learnloop_dataplane.privacy.people import digest_of

log = logging.getLogger(__name__)
BATCH = 256
IDLE_SECONDS = 60.0
FETCH_SECONDS = 1.0


class Matcher:
    """Says whether a reward belongs to what was erased.

    Args:
        digests: of every episode ever erased for this subject.
        erased_at: what was computed later came after the erasure and stays.
    """

    def __init__(self, namespace: str, scope: Scope, digests: Collection[str], erased_at: datetime) -> None:
        self._namespace, self._scope = namespace, scope
        self._digests, self._erased_at = frozenset(digests), erased_at

    def __call__(self, message: Msg) -> bool:
        """By the episode's id, or by the agent."""
        body = orjson.loads(message.data)
        if digest_of(self._namespace, body["trajectory_id"]) in self._digests:
            return True
        return self._scope.agent is not None and datetime.fromisoformat(body["computed_at"]) <= self._erased_at


async def erase_messages(bus: Bus, namespace: str, scope: Scope, matches: Matcher) -> dict[str, int]:
    """Takes every matching message out of the stream; returns how many by stream.

    Reads the namespace's own messages, some ten thousand a second; an agent's subject is read alone.

    Raises:
        Unavailable: NATS does not answer; what was not erased yet is found by the next attempt.
    """
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=IDLE_SECONDS
    )
    subject, erased = f"{names.SUBJECT_REWARD}.{namespace}.{scope.agent or '>'}", 0
    try:
        reader = await bus.js.pull_subscribe(subject, stream=REWARDS, config=config)
        try:
            while left := (await reader.consumer_info()).num_pending or 0:
                try:
                    messages = await reader.fetch(min(BATCH, left), timeout=FETCH_SECONDS)
                except TimeoutError:  # another erasure took away what was left
                    continue
                for message in filter(matches, messages):
                    erased += await _delete(bus, message.metadata.sequence.stream)
        finally:
            await reader.unsubscribe()
    except (NatsError, TimeoutError, OSError) as error:
        log.warning("NATS: %s could not be searched: %r", REWARDS, error)
        raise Unavailable("NATS") from error
    return {REWARDS: erased}


async def _delete(bus: Bus, sequence: int) -> int:
    try:
        return int(await bus.js.delete_msg(REWARDS, sequence))
    except APIError:
        # Perhaps another erasure was quicker; the server says so by an error that says other things as well.
        with suppress(NotFoundError):
            await bus.js.get_msg(REWARDS, sequence)
            raise
        return 0
