"""Shared base of all wire messages."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError


class WireModel(BaseModel):
    """A message: unknown fields are refused, NaN and infinities too, and it never changes once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ser_json_bytes="base64", defer_build=True
    )


_READ = TypeAdapter(datetime)
# Every reader of date-times knows this shape (RFC 3339, section 5.6); pydantic reads many more, plain seconds too.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("timestamp has no time zone: send RFC 3339 with an offset, e.g. 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("timestamp is before the year 1 or after 9999 in UTC: send a time of this era") from None


def _text(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("invalid timestamp, a number: send RFC 3339 with an offset, e.g. 2026-01-31T12:00:00Z")
    if isinstance(value, str):
        if not _RFC_3339.fullmatch(value):
            text = "not RFC 3339 with an offset: send e.g. 2026-01-31T12:00:00Z"
            raise PydanticCustomError("datetime_parsing", "{why}", {"why": text})
        # Read here: a validator's result is not JSON any more, and strict validation rejects text for a timestamp.
        try:
            return _READ.validate_python(value)
        except ValidationError as error:
            raise PydanticCustomError("datetime_parsing", "{why}", {"why": error.errors()[0]["msg"]}) from None
    return value


MOST = 2**53 - 1
"""The largest whole number that every JSON reader has exactly (RFC 8259, section 6)."""
LARGEST = 3.4e38
"""The largest number of an episode: it fits float32, in which policies compute, and its square fits float64."""


def _storable(value: str) -> str:
    return value.replace("\x00", "\ufffd")


Sentence = Annotated[str, AfterValidator(_storable)]
"""Free text from outside. NUL, which PostgreSQL cannot store, becomes a replacement character."""
Timestamp = Annotated[datetime, BeforeValidator(_text), AfterValidator(_aware)]
Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
LogProb = Annotated[float, Field(ge=-LARGEST, le=10_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="lower-case hex SHA-256 digest")]
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Identifier = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
