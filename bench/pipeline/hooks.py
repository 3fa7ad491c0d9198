"""Additions to schemathesis for this API: sending lines, and rules that JSON Schema cannot express."""

from datetime import UTC, datetime
from typing import Any

import schemathesis

STORING = ("POST /api/v1/memory/store", "POST /api/v1/memory/store/batch")


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """Text as it is; any other value as its JSON."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def before_call(_: Any, case: Any, __: Any) -> None:
    """Of a body that is meant to be good: times are of this era in UTC too, and a memory ends after it begins."""
    if case.meta is None or case.meta.generation.mode != schemathesis.GenerationMode.POSITIVE:
        return
    if not isinstance(case.body, dict | list):
        return
    case.body = of_this_era(case.body)
    if case.operation.label in STORING:
        for memory in case.body.get("memories", [case.body]):
            in_order(memory)


def of_this_era(value: Any) -> Any:
    """The same, but instants that in UTC are before the year 1 or after 9999 are said in UTC themselves."""
    if isinstance(value, dict):
        return {key: of_this_era(item) for key, item in value.items()}
    if isinstance(value, list):
        return [of_this_era(item) for item in value]
    if isinstance(value, str) and value[:4] in ("0001", "9999"):
        try:
            instant = _instant(value)
        except ValueError:  # a text that begins like that
            return value
        try:
            instant.astimezone(UTC)
        except OverflowError:
            return instant.replace(tzinfo=UTC).isoformat()
    return value


def in_order(memory: dict[str, Any]) -> None:
    """Exchanges the two instants where they are the wrong way round; one instant twice is an empty span."""
    begins, ends = memory.get("valid_from"), memory.get("valid_to")
    if not isinstance(begins, str) or not isinstance(ends, str):
        return
    first, last = _instant(begins), _instant(ends)
    if first == last:
        del memory["valid_to"]
    elif first > last:
        memory |= {"valid_from": ends, "valid_to": begins}


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
