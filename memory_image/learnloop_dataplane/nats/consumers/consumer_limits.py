"""What a tenant may ask of a durable consumer, and what it gets where it says nothing.

Shapes are those of JetStream's API (https://docs.nats.io/reference/reference-protocols/nats_api_reference): times in
nanoseconds, except for `opt_start_time`.
"""

from datetime import datetime
from typing import Any

from learnloop_dataplane.nats.consumers.consumer_names import READABLE, ConsumerGroup

SECOND = 10**9
DAY = 86_400 * SECOND
EACH = 16
"""Consumers of one namespace in all streams."""
ALL = 1024
"""Consumers of all namespaces: each costs the server memory and a file."""
ACK_PENDING = 256
ACK_WAIT = (SECOND, 3600 * SECOND, 30 * SECOND)
"""Least, most, and where nothing is said: until a message that nobody acknowledges is given to somebody again."""
INACTIVE = (60 * SECOND, 30 * DAY, 14 * DAY)
"""How long a consumer stays from which nobody pulls. The streams keep nothing for longer than 30 days."""
BATCH = 256
EXPIRES = 30 * SECOND
FILTERS = 8
_DELIVER = ("all", "new", "last", "last_per_subject", "by_start_time")
_SAID = {"durable_name", "name", "description", "filter_subject", "filter_subjects", "deliver_policy", "opt_start_time"}
_NUMBERS = {"ack_wait", "inactive_threshold", "max_ack_pending", "max_deliver"}
_FIXED = {"ack_policy": "explicit", "replay_policy": "instant"}
_BOUNDED = {"max_waiting", "max_batch", "max_expires", "max_bytes"}
"""Clients send these without being asked; the bounds below hold."""


class TooMuch(Exception):
    """A consumer that a tenant may not have; says which field, and what may stand there."""


def consumer(group: ConsumerGroup, asked: dict[str, Any]) -> dict[str, Any]:
    """The configuration that JetStream gets.

    Args:
        asked: the tenant's, from anywhere.

    Raises:
        TooMuch: a field is refused.
    """
    for field, value in asked.items():
        if field in _FIXED:
            if value != _FIXED[field]:
                raise TooMuch(f"{field}: is always {_FIXED[field]}; leave it out")
        elif field not in _SAID | _NUMBERS | _BOUNDED and value and field != "metadata":
            raise TooMuch(f"{field}: is not offered to tenants; leave it out and pull")
    for field in ("durable_name", "name"):
        if asked.get(field, group.name) not in (group.name, ""):
            raise TooMuch(f"{field}: is not {group.name}, as the subject says; make them the same")
    pending = _number(asked, "max_ack_pending", 0)
    deliver = _number(asked, "max_deliver", -1)
    made: dict[str, Any] = {
        "durable_name": group.consumer,
        "name": group.consumer,
        "description": str(asked.get("description") or "")[:256],
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "ack_wait": _between(asked, "ack_wait", *ACK_WAIT),
        "inactive_threshold": _between(asked, "inactive_threshold", *INACTIVE),
        "max_ack_pending": min(pending, ACK_PENDING) if pending > 0 else ACK_PENDING,
        "max_deliver": deliver if deliver > 0 else -1,
        "max_waiting": 64,
        "max_batch": BATCH,
        "max_expires": EXPIRES,
        "filter_subjects": _filters(group, asked),
    }
    return made | _beginning(asked)


def pull(asked: Any) -> dict[str, Any]:
    """The request for the next messages that JetStream gets; what is too much is cut.

    Args:
        asked: the tenant's: a number, an object or nothing.

    Raises:
        TooMuch: it is none of these.
    """
    if isinstance(asked, int):
        asked = {"batch": asked}
    if not isinstance(asked, dict):
        raise TooMuch("a request for messages is a number or an object")
    expires = _number(asked, "expires", 0)
    request: dict[str, Any] = {"batch": min(max(_number(asked, "batch", 1), 1), BATCH)}
    if asked.get("no_wait"):
        request["no_wait"] = True
    if expires > 0 or not asked.get("no_wait"):
        request["expires"] = min(expires, EXPIRES) if expires > 0 else EXPIRES
    if (size := _number(asked, "max_bytes", 0)) > 0:
        request["max_bytes"] = size
    if (heartbeat := _number(asked, "idle_heartbeat", 0)) > 0 and "expires" in request:
        request["idle_heartbeat"] = min(heartbeat, request["expires"] // 2)
    return request


def _number(asked: dict[str, Any], field: str, default: int) -> int:
    value: object = asked.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 2**63:
        raise TooMuch(f"{field}: {value!r:.40} is no whole number from -1 on")
    return value


def _between(asked: dict[str, Any], field: str, least: int, most: int, default: int) -> int:
    value = _number(asked, field, 0)
    if value <= 0:
        return default
    if not least <= value <= most:
        raise TooMuch(f"{field}: {value / SECOND:g} s; between {least // SECOND} and {most // SECOND} s are allowed")
    return value


def _filters(group: ConsumerGroup, asked: dict[str, Any]) -> list[str]:
    prefixes = [f"{prefix}.{group.namespace}." for prefix in READABLE[group.stream]]
    several, one = asked.get("filter_subjects") or [], asked.get("filter_subject")
    if not isinstance(several, list) or len(several) > FILTERS:
        raise TooMuch(f"filter_subjects: is no list of at most {FILTERS}")
    filters = [*several, *([one] if one else [])] or [f"{prefix}>" for prefix in prefixes]
    for subject in filters:
        if not (isinstance(subject, str) and len(subject) <= 512 and subject.startswith(tuple(prefixes))):
            wanted = " or ".join(f"{prefix}>" for prefix in prefixes)
            raise TooMuch(f"filter_subject: {subject!r:.100} is not of this namespace; {wanted} is")
        if not all(subject.split(".")) or not subject.isascii() or not subject.isprintable() or " " in subject:
            raise TooMuch(f"filter_subject: {subject!r:.100} is no subject")
    return filters


def _beginning(asked: dict[str, Any]) -> dict[str, Any]:
    policy = asked.get("deliver_policy") or "all"
    if policy not in _DELIVER:
        raise TooMuch(f"deliver_policy: {policy!r:.40}; {', '.join(_DELIVER)} are offered")
    if policy != "by_start_time":
        return {"deliver_policy": policy}
    try:
        begin = datetime.fromisoformat(str(asked.get("opt_start_time")))
    except ValueError:
        begin = None
    if begin is None or begin.tzinfo is None:
        raise TooMuch("opt_start_time: is no time with a zone, e.g. 2026-01-31T12:00:00Z; deliver_policy asks for one")
    return {"deliver_policy": policy, "opt_start_time": begin.isoformat()}
