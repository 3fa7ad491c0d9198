"""JSON, read as strictly as its JSON Schema: a number is not a text, and "1" not a number."""

import json
from functools import cached_property
from typing import Any, LiteralString

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, to_json

MAX_PARTS = 250_000
"""Objects, lists and keys of one body: an empty object of three bytes becomes a kilobyte while it is read.
An episode of ten thousand steps has some 120,000."""
MAX_FAULTS = 1000
"""pydantic tells all faults or none, a kilobyte each."""
READ_AGAIN = 64 * 2**10
EXACT = 2**53  # from there on not every integer is a number of JSON's, and 1e308 has 309 digits
TOO_WIDE = "too_wide"
TOO_MANY = "too_many_faults"


def too_wide(body: bytes) -> bool:
    """Has the body more parts than anybody reads? Braces within texts count as well; counting takes 1 ms for 8 MiB."""
    return body.count(b"{") + body.count(b"[") + body.count(b'":') > MAX_PARTS


class StrictReader:
    """Reads bytes as `model`: what the model's JSON Schema refuses is refused.

    pydantic's own parser knows which types JSON has; what `json.loads` makes of a text it does not know any more.

    Args:
        mends: take lone surrogates, which agents do send (half of an emoji); what is stored is redacted, which mends
            them.
    """

    def __init__(self, model: type[BaseModel], *, mends: bool = False) -> None:
        self._model = model
        self._mends = mends

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._model)

    def read(self, body: bytes) -> Any:
        """The message.

        Raises:
            ValidationError: type `json_invalid` for invalid JSON (RFC 8259), TOO_WIDE or TOO_MANY, else with the
                fields at fault.
        """
        if too_wide(body):
            raise self._fault(TOO_WIDE, f"more than {MAX_PARTS} objects, lists and keys; send less at a time")
        if len(body) > READ_AGAIN:
            self._is_whole(body)
        try:
            message = self._adapter.validate_json(body, strict=True)
        except ValidationError as error:
            if (count := error.error_count()) > MAX_FAULTS:
                raise self._fault(TOO_MANY, f"{count} faults; compare it with its schema") from None
            return self._again(body, error)
        self._is_json(body)
        return message

    def _is_whole(self, body: bytes) -> None:
        """Checks required fields first: pydantic would copy the whole body for each one that is missing."""
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            return  # the parser names the place
        required = [name for name, field in self._model.model_fields.items() if field.is_required()]
        if isinstance(content, dict) and (missing := [name for name in required if name not in content]):
            faults: list[InitErrorDetails] = [{"type": "missing", "loc": (name,), "input": None} for name in missing]
            raise ValidationError.from_exception_data(self._model.__name__, faults)

    def _is_json(self, body: bytes) -> None:
        """pydantic's parser takes NaN, infinities and 1e999 where a field may be anything: no other reader would."""
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if self._mends and "surrogate" in str(error):
                return
            raise self._fault("json_invalid", f"Invalid JSON: {error}") from None

    def _fault(self, kind: LiteralString, message: str) -> ValidationError:
        """One fault of the body as a whole; it carries none of it."""
        why = PydanticCustomError(kind, "{message}", {"message": message})
        return ValidationError.from_exception_data(self._model.__name__, [{"type": why, "input": None}])

    def _again(self, body: bytes, refusal: ValidationError) -> Any:
        """Reads bodies that the strict parser refuses wrongly; slower.

        Raises:
            ValidationError: it was right.
        """
        broken = refusal.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid"
        if (broken and not self._mends) or len(body) > READ_AGAIN:
            raise refusal
        try:
            content = json.loads(body, parse_float=_number)
        except (ValueError, RecursionError):
            raise refusal from None
        if broken:
            return self._adapter.validate_python(content)
        # 1.0 is an integer, says JSON Schema.
        message = self._adapter.validate_json(to_json(content, inf_nan_mode="constants"), strict=True)
        self._is_json(body)
        return message


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if abs(value) < EXACT and value.is_integer() else value
