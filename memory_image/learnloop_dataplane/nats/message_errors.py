"""One sentence for who published what cannot be taken: which field, what stands there, what to do about it."""

from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from learnloop_common.redaction.redactor import is_secret_name
from learnloop_dataplane.nats.subjects import RefusedMessage
from learnloop_dataplane.strict_json import TOO_MANY, TOO_WIDE

MAX_VALUE = 60
# Written by people or about them: of such texts a letter's headers say only how long they are.
_FREE_TEXT = frozenset({"task", "metadata", "observation", "action", "note", "reason"})
_FIXES = {
    "missing": "add it",
    "extra_forbidden": "take it out: the schema knows no such field",
    "json_invalid": "send one JSON object (RFC 8259) under a new Nats-Msg-Id",
}
_CORRECT = "correct it"
_ABSENT: Any = object()


def invalid(namespace: str, subject: str, error: ValidationError, data: bytes) -> RefusedMessage:
    """The refusal of a body.

    Args:
        subject: the event's, without namespace and name; its schema is served under this name.
        error: what the reader of `data` said.
    """
    found: Any = error.errors(include_url=False, include_input=False, include_context=False)
    kind, told = found[0]["type"], _said(found[0])
    if kind in (TOO_WIDE, TOO_MANY):  # reading it once more would cost what the reader saved
        return RefusedMessage(namespace, "schema", f"body: {told}; publish it under a new Nats-Msg-Id")
    again = f"{_FIXES.get(kind, _CORRECT)} and publish it under a new Nats-Msg-Id"
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as broken:
        told = told if kind == "json_invalid" else f"Invalid JSON: {broken}"
        return RefusedMessage(namespace, "json", f"body: {told}; {_FIXES['json_invalid']}")
    places = [_reached(body, item["loc"]) for item in found]
    first = places[0][0]
    # A field of several types has one complaint for each of them; the one that came furthest is about the type meant.
    path, value = max((place for place in places if place[0][: len(first)] == first), key=lambda place: len(place[0]))
    said = list(dict.fromkeys(_said(item) for item, place in zip(found, places, strict=True) if place[0] == path))
    where = ".".join(str(part)[:MAX_VALUE] for part in path) or "body"
    known = kind != "extra_forbidden"
    shown = "" if value is _ABSENT else f" is {described(value, path, known=known)}"
    reason = f"{where}{shown}: {' / '.join(said[:4])}; {again}; schema: /api/v1/schemas/{subject}"
    return RefusedMessage(namespace, "schema", reason)


def _said(item: Any) -> str:
    return str(item["msg"]).removeprefix("Value error, ")


def _reached(body: Any, where: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """The part of a complaint's place that is in the body or missing there, and what stands there.

    pydantic adds to a place which of several types it was trying; those names are no fields.
    """
    path: list[str | int] = []
    here = body
    for number, part in enumerate(where):
        if isinstance(here, dict) and part in here:
            here = here[str(part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif isinstance(here, dict) and number == len(where) - 1:
            return [*path, part], _ABSENT
        else:
            continue
        path.append(part)
    return path, here


def described(value: Any, path: Sequence[str | int], *, known: bool = True) -> str:
    """What stands in a field, in a few words without secrets.

    Args:
        known: the schema has this field; of any other a text says how long it is only.
    """
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if any(is_secret_name(str(part)) for part in path):
        return "a secret"
    if isinstance(value, str):
        private = not known or not path or not _FREE_TEXT.isdisjoint(map(str, path))
        return f"a text of {len(value)} characters" if private or len(value) > MAX_VALUE else repr(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and (not known or "metadata" in path):
        return "a number"  # a person's number is a person's name
    return orjson.dumps(value).decode()[:MAX_VALUE]
