"""Logs as one JSON object a line, with what they are about: object, revision, trace."""

import hashlib
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

Style = Literal["text", "json"]
FORMAT_VARIABLE = "LEARNLOOP_LOG_FORMAT"
LONGEST = 16_384
"""Characters of a message or of an error; what is longer is cut."""
_ABOUT: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@contextmanager
def about(**what: str) -> Iterator[None]:
    """Lines logged within say this too: object, revision, trace_id."""
    token = _ABOUT.set({**(_ABOUT.get() or {}), **what})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def tell(**what: str) -> None:
    """Lines from here on say this too, to the end of the `about` around it."""
    _ABOUT.set({**(_ABOUT.get() or {}), **what})


def trace_id(*parts: str) -> str:
    """32 hexadecimal digits that a thing always has, such as those of an object's UID."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


def trace_of(traceparent: str) -> str:
    """The trace id of a `traceparent` header (W3C Trace Context, section 3.2); "" where it is none."""
    result = _TRACEPARENT.fullmatch(traceparent)
    return result[1] if result else ""


class JsonLines(logging.Formatter):
    """at (RFC 3339, UTC), level, logger, message; object, revision, trace_id, error where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage()[:LONGEST], **(_ABOUT.get() or {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)[-LONGEST:]
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str, style: Style, text: str, stream: TextIO | None = None) -> None:
    """The root logger writes lines of this style. `text`: logging's format for people. By default to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else logging.Formatter(text))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def style_of(environ: Mapping[str, str]) -> Style:
    """Value of LEARNLOOP_LOG_FORMAT; text where it is not set.

    Raises:
        ValueError: it is neither text nor json.
    """
    match environ.get(FORMAT_VARIABLE) or "text":
        case "text":
            return "text"
        case "json":
            return "json"
        case other:
            raise ValueError(f"{FORMAT_VARIABLE}={other!r}: set it to text or json")
