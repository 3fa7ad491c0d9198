"""What schemathesis has to be told of this API: how lines are sent, and a rule that JSON Schema has no words for."""

from datetime import datetime
from typing import Any

import schemathesis

STORING = ("POST /api/v1/memory/store", "POST /api/v1/memory/store/batch")


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def lines(_: Any, value: Any) -> bytes:
    """Text as it is; what is no text, as the text of it."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(_: Any, case: Any, __: Any) -> None:
    """Of a body that is meant to be good, each memory ends after it begins: what the document says in words alone."""
    good = case.meta is not None and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE
    if good and case.operation.label in STORING and isinstance(case.body, dict):
        for memory in case.body.get("memories", [case.body]):
            in_order(memory)


def in_order(memory: dict[str, Any]) -> None:
    """Exchanges the two instants where they are the wrong way round; one instant twice is no time at all."""
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
