"""Dead letters: refused events, kept for 30 days in a stream with the reason in their headers."""

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic_core import to_json

from learnloop_api import names
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.consumer import MAX_DELIVER, keep
from learnloop_dataplane.nats.subjects import UNKNOWN, RefusedMessage, valid_namespace
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import METADATA_KEY, Users, refused
from learnloop_dataplane.privacy.redaction import redact, redact_text
from learnloop_dataplane.strict_json import too_wide

log = logging.getLogger(__name__)
CODE = "Learnloop-Code"
REASON = "Learnloop-Reason"
SUBJECT = "Learnloop-Subject"
ORIGIN = "Learnloop-Origin"
CUT = "Learnloop-Cut"
USER = "Learnloop-User"
ROOM_FOR_HEADERS = 8192
MAX_SUBJECT = 512
PEOPLE_AT_ONCE = 2  # letters that hold a connection to PostgreSQL until they are posted
# Ids stay as they are, as they do in the tables: they make storing idempotent, after a replay too.
IDS = frozenset({"trajectory_id", "episode_id", "agent", "request_id", "model_deployment"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class DeadLetters:
    """Publishes the refused messages of both consumers.

    Args:
        ack_wait: seconds after which NATS delivers a message again of which it hears nothing.
    """

    def __init__(self, db: Database, bus: Bus, users: Users, metrics: Metrics, ack_wait: float) -> None:
        self._db = db
        self._bus = bus
        self._users = users
        self._metrics = metrics
        self._patience = min(0.5, ack_wait / 4)
        self._people = asyncio.Semaphore(PEOPLE_AT_ONCE)

    def check(self, message: Msg) -> None:
        """Refuses the last delivery unread.

        Raises:
            RefusedMessage: each delivery before this one ended with its reader; this one must not.
        """
        if message.metadata.num_delivered >= MAX_DELIVER:
            reason = f"delivered {message.metadata.num_delivered} times, and no reader lived to acknowledge it"
            raise RefusedMessage(_namespace(message.subject), "poison", reason)

    async def put(self, message: Msg, refusal: RefusedMessage) -> None:
        """Returns when the stream has the letter and the message is settled; until then the message stays in hand.

        The same delivery twice gives one letter: its id is the message's place in its stream. Messages of
        people who opted out, and of erased episodes, are dropped.
        """
        meta = message.metadata
        origin = f"{meta.stream}/{meta.sequence.stream}"
        wide = too_wide(message.data)
        payload = b"" if wide else readable(message.data)
        room = self._bus.max_payload - ROOM_FOR_HEADERS
        headers = {
            CODE: refusal.code,
            REASON: _line(redact_text(refusal.reason)),
            SUBJECT: _line(message.subject[:MAX_SUBJECT]),
            ORIGIN: origin,
        }
        if wide or len(payload) > room or headers[SUBJECT] != message.subject:
            headers[CUT] = str(len(message.data) if wide else len(payload))
        subject = f"{names.SUBJECT_DEAD_LETTER}.{refusal.namespace}.{_kind(message.subject)}"
        identity = f"{origin}/{meta.timestamp.timestamp()}"
        person = _person(message) if refusal.namespace != UNKNOWN and not wide else None
        while True:
            try:
                if person is None:
                    await self._bus.publish(subject, payload[:room], identity, headers)
                elif not await self._post(refusal.namespace, person, (subject, payload[:room], identity), headers):
                    await self._drop(message, refusal.namespace)
                    return
                break
            except (Unavailable, ApiError) as error:
                log.warning("the dead letter of %s waits: %s", origin, error)
                await keep([message])
                await asyncio.sleep(self._patience)
        self._metrics.dead_letter(refusal.namespace, refusal.code)
        if message.subject.startswith(names.SUBJECT_TRAJECTORY):
            self._metrics.not_collected(refusal.namespace, refusal.code)
        # A publisher's mistake is the publisher's to mend; what PostgreSQL refuses for no reason known here is not.
        level = logging.WARNING if refusal.code == "storage" else logging.INFO
        log.log(level, "refused %s (%s): %s", origin, refusal.code, headers[REASON])
        with suppress(NatsError):
            await message.term()
        if CUT not in headers:
            # The letter has all of it but the secrets, which must not lie in the other stream for a month.
            with suppress(NatsError, Unavailable):
                await self._bus.js.delete_msg(meta.stream, meta.sequence.stream)

    async def _post(
        self, namespace: str, person: "_Person", letter: tuple[str, bytes, str], headers: dict[str, str]
    ) -> bool:
        """False: nothing of this person, or of this episode, may be kept. No erasure begins between the question and
        the letter: one that comes later finds it in the stream."""
        async with self._people, self._db.tenant(namespace) as connection:
            person.user = (await self._users.hashes(connection, namespace, [person.user]))[person.user]
            if await refused(connection, namespace, [person]):
                return False
            await self._bus.publish(*letter, headers | {USER: person.user})
        return True

    async def _drop(self, message: Msg, namespace: str) -> None:
        self._metrics.opted_out(namespace)
        with suppress(NatsError):
            await message.term()
        with suppress(NatsError, Unavailable):
            await self._bus.js.delete_msg(message.metadata.stream, message.metadata.sequence.stream)


@dataclass
class _Person:
    """The person and the episode of a message, as far as they can be read; `user` becomes the pseudonym."""

    trajectory_id: str
    agent: str
    user: str
    ended_at: datetime


def readable(data: bytes) -> bytes:
    """The body without secrets: as JSON where it is JSON, so that it can be replayed, else as text."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return redact_text(data.decode(errors="replace")).encode()
    if not isinstance(body, dict):
        return to_json(redact(body))
    safe = redact(body) | {key: body[key] for key in IDS & body.keys() if isinstance(body[key], str)}
    if isinstance(safe.get("metadata"), dict):
        # By pseudonym it stands in the headers, where an erasure finds it.
        safe["metadata"].pop(METADATA_KEY, None)
    return to_json(safe)


def _person(message: Msg) -> _Person | None:
    try:
        body = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        return None
    metadata = body.get("metadata") if isinstance(body, dict) else None
    user = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    if user in (None, "") or not isinstance(user, str | int):
        return None
    identity = str(body.get("trajectory_id")).replace("\x00", "")
    agent = message.subject.rpartition(".")[2]
    return _Person(identity, agent, str(user), _ended(body, message.metadata.timestamp))


def _ended(body: dict[str, Any], published: datetime) -> datetime:
    """When the episode was over: by its own word where that is a time, else it was when it was published."""
    try:
        at = datetime.fromisoformat(str(body.get("ended_at")))
        return published if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return published


def _kind(subject: str) -> str:
    return "trajectory" if subject.startswith(names.SUBJECT_TRAJECTORY) else "training-request"


def _namespace(subject: str) -> str:
    for prefix in (names.SUBJECT_TRAJECTORY, names.SUBJECT_TRAINING_REQUEST):
        namespace = subject.removeprefix(f"{prefix}.").partition(".")[0]
        if subject.startswith(f"{prefix}.") and valid_namespace(namespace):
            return namespace
    return UNKNOWN


def _line(text: str) -> str:
    """A text as a header: one line of ASCII."""
    return _CONTROL.sub(" ", text).encode("ascii", "backslashreplace").decode().strip() or "-"
