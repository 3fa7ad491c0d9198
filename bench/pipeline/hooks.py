"""What schemathesis has to be told of this API: how a body of lines is sent."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def lines(_: Any, value: Any) -> bytes:
    """Text as it is; what is no text, as the text of it."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
