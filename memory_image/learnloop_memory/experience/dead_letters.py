"""What no consumer can take goes to RL_DEAD_LETTERS, redacted, with the reason in its headers, and can be replayed.

Subject `agent.rl.deadletter.v1.<namespace>.<kind>`, kind being trajectory or training-request. Headers:
Learnloop-Code (see `subjects.Code`), Learnloop-Reason (a sentence), Learnloop-Subject (where it was published),
Learnloop-Origin (stream and sequence), Learnloop-User (the pseudonym of the person in it, which the body no longer
names), and Learnloop-Cut when body or subject could not be kept whole.
"""

import asyncio
import logging
import re
from contextlib import suppress

import orjson
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic_core import to_json

from learnloop_api import names
from learnloop_memory.errors import ApiError, Unavailable
from learnloop_memory.experience.bus import Bus
from learnloop_memory.experience.patience import keep
from learnloop_memory.experience.pull import MAX_DELIVER
from learnloop_memory.experience.redact import redact, redact_text
from learnloop_memory.experience.subjects import UNKNOWN, Refused, valid_namespace
from learnloop_memory.experience.users import METADATA_KEY, Users
from learnloop_memory.metrics import Metrics

log = logging.getLogger(__name__)
CODE = "Learnloop-Code"
REASON = "Learnloop-Reason"
SUBJECT = "Learnloop-Subject"
ORIGIN = "Learnloop-Origin"
CUT = "Learnloop-Cut"
USER = "Learnloop-User"
ROOM_FOR_HEADERS = 8192
MAX_SUBJECT = 512
# Ids stay as they are, as they do in the tables: they make storing idempotent, after a replay too.
IDS = frozenset({"trajectory_id", "episode_id", "agent", "request_id", "model_deployment"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class DeadLetters:
    """Where both consumers put what they refuse.

    Args:
        ack_wait: seconds after which NATS delivers a message again of which it hears nothing.
    """

    def __init__(self, bus: Bus, users: Users, metrics: Metrics, ack_wait: float) -> None:
        self._bus = bus
        self._users = users
        self._metrics = metrics
        self._patience = min(0.5, ack_wait / 4)

    def check(self, message: Msg) -> None:
        """Refuses the last delivery unread.

        Raises:
            Refused: each delivery before this one ended with its reader; this one must not.
        """
        if message.metadata.num_delivered >= MAX_DELIVER:
            reason = f"delivered {message.metadata.num_delivered} times, and no reader lived to acknowledge it"
            raise Refused(_namespace(message.subject), "poison", reason)

    async def put(self, message: Msg, refusal: Refused) -> None:
        """Returns when the stream has the letter and the message is settled; until then the message stays in hand.

        The same delivery twice gives one letter: its id is the message's place in its stream.
        """
        meta = message.metadata
        origin = f"{meta.stream}/{meta.sequence.stream}"
        payload = readable(message.data)
        room = self._bus.max_payload - ROOM_FOR_HEADERS
        headers = {
            CODE: refusal.code,
            REASON: _line(redact_text(refusal.reason)),
            SUBJECT: _line(message.subject[:MAX_SUBJECT]),
            ORIGIN: origin,
        }
        if len(payload) > room or headers[SUBJECT] != message.subject:
            headers[CUT] = str(len(payload))
        subject = f"{names.SUBJECT_DEAD_LETTER}.{refusal.namespace}.{_kind(message.subject)}"
        identity = f"{origin}/{meta.timestamp.timestamp()}"
        user = _user(message.data) if refusal.namespace != UNKNOWN else None
        while True:
            try:
                if user is not None and USER not in headers:
                    headers[USER] = await self._users.hash_of(refusal.namespace, user)
                await self._bus.publish(subject, payload[:room], identity, headers)
                break
            except (Unavailable, ApiError) as error:
                log.warning("the dead letter of %s waits: %s", origin, error)
                await keep([message])
                await asyncio.sleep(self._patience)
        self._metrics.dead_letter(refusal.namespace, refusal.code)
        log.info("refused %s (%s): %s", origin, refusal.code, headers[REASON])
        with suppress(NatsError):
            await message.term()
        if CUT not in headers:
            # The letter has all of it but the secrets, which must not lie in the other stream for a month.
            with suppress(NatsError, Unavailable):
                await self._bus.js.delete_msg(meta.stream, meta.sequence.stream)


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


def _user(data: bytes) -> str | None:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    metadata = body.get("metadata") if isinstance(body, dict) else None
    user = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    return user if isinstance(user, str) and user else None


def _kind(subject: str) -> str:
    return "trajectory" if subject.startswith(names.SUBJECT_TRAJECTORY) else "training-request"


def _namespace(subject: str) -> str:
    for prefix in (names.SUBJECT_TRAJECTORY, names.SUBJECT_TRAINING_REQUEST):
        namespace = subject.removeprefix(f"{prefix}.").partition(".")[0]
        if subject.startswith(f"{prefix}.") and valid_namespace(namespace):
            return namespace
    return UNKNOWN


def _line(text: str) -> str:
    """What a header can carry: one line of ASCII."""
    return _CONTROL.sub(" ", text).encode("ascii", "backslashreplace").decode().strip() or "-"
