"""Erases messages: what lies in the streams of one person's or one agent's episodes."""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from learnloop_api import names
from learnloop_dataplane.erasure.rows import Scope
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.streams import REWARDS, TRAJECTORIES
from learnloop_dataplane.privacy.people import METADATA_KEY, digest_of

log = logging.getLogger(__name__)
BATCH = 256
IDLE_SECONDS = 60.0
FETCH_SECONDS = 1.0


class Matcher:
    """Says whether a message belongs to what was erased.

    Args:
        digests: of every episode ever erased for this subject.
        erased_at: what ended later came after the erasure and stays.
        pseudonym: the hash of a person's id.
    """

    def __init__(
        self,
        namespace: str,
        scope: Scope,
        digests: Collection[str],
        erased_at: datetime,
        pseudonym: Callable[[str], str],
    ) -> None:
        self._namespace = namespace
        self._scope = scope
        self._digests = frozenset(digests)
        self._erased_at = erased_at
        self._pseudonym = pseudonym

    def __call__(self, message: Msg) -> bool:
        """By the episode's id, by the person in it, and where it is not JSON by the agent alone."""
        try:
            body = orjson.loads(message.data)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return self._scope.agent is not None
        if digest_of(self._namespace, str(body.get("trajectory_id"))) in self._digests:
            return True
        if self._scope.agent is not None:
            return body.get("agent") == self._scope.agent and not self._later(body)
        metadata = body.get("metadata")
        user = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
        return isinstance(user, str) and self._pseudonym(user) == self._scope.user and not self._later(body)

    def _later(self, body: dict[str, Any]) -> bool:
        """Whether an episode ended, or a reward was given, after the erasure; without a time it was before."""
        try:
            return datetime.fromisoformat(str(body.get("ended_at") or body.get("computed_at"))) > self._erased_at
        except (TypeError, ValueError):
            return False


async def erase_messages(bus: Bus, namespace: str, scope: Scope, matches: Matcher) -> dict[str, int]:
    """Takes every matching message out of the streams; returns how many by stream.

    Reads the namespace's own messages, some ten thousand a second; an agent's subject is read alone.

    Raises:
        Unavailable: NATS does not answer; what was not erased yet is found by the next attempt.
    """
    name = scope.agent or ">"
    counted = {}
    for stream, subject in (
        (TRAJECTORIES, f"{names.SUBJECT_TRAJECTORY}.{namespace}.{name}"),
        (REWARDS, f"{names.SUBJECT_REWARD}.{namespace}.{name}"),
    ):
        try:
            counted[stream] = await _erase_from(bus, stream, subject, matches)
        except (NatsError, TimeoutError, OSError) as error:
            log.warning("NATS: %s could not be searched: %r", stream, error)
            raise Unavailable("NATS") from error
    return counted


async def _erase_from(bus: Bus, stream: str, subject: str, matches: Matcher) -> int:
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=IDLE_SECONDS
    )
    reader = await bus.js.pull_subscribe(subject, stream=stream, config=config)
    erased = 0
    try:
        while left := (await reader.consumer_info()).num_pending or 0:
            try:
                messages = await reader.fetch(min(BATCH, left), timeout=FETCH_SECONDS)
            except TimeoutError:  # the consumer, or another erasure, took away what was left
                continue
            for message in filter(matches, messages):
                erased += await _delete(bus, stream, message.metadata.sequence.stream)
    finally:
        await reader.unsubscribe()
    return erased


async def _delete(bus: Bus, stream: str, sequence: int) -> int:
    try:
        return int(await bus.js.delete_msg(stream, sequence))
    except APIError:
        # Perhaps the consumer was quicker; the server says so by an error that says other things as well.
        with suppress(NotFoundError):
            await bus.js.get_msg(stream, sequence)
            raise
        return 0
