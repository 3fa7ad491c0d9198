"""JSON, read as strictly as its JSON Schema says, whichever way it came: a number is no text, and "1" no number."""

import json
from functools import cached_property
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, to_json


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
            ValidationError: type `json_invalid` where it is no JSON (RFC 8259), else with the fields at fault.
        """
        try:
            found = self._adapter.validate_json(body, strict=True)
        except ValidationError as error:
            return self._again(body, error)
        self._is_json(body)
        return found

    def _is_json(self, body: bytes) -> None:
        """pydantic's parser takes NaN, infinities and 1e999 where a field may be anything: no other reader would."""
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if self._mends and "surrogate" in str(error):
                return
            why = PydanticCustomError("json_invalid", "Invalid JSON: {error}", {"error": str(error)})
            raise ValidationError.from_exception_data(self._model.__name__, [{"type": why, "input": body}]) from None

    def _again(self, body: bytes, refusal: ValidationError) -> Any:
        """What the strict parser refuses wrongly, at a price that only such bodies pay.

        Raises:
            ValidationError: it was right.
        """
        broken = refusal.errors(include_url=False)[0]["type"] == "json_invalid"
        if broken and not self._mends:
            raise refusal
        try:
            content = json.loads(body, parse_float=_number)
        except (ValueError, RecursionError):
            raise refusal from None
        if broken:
            return self._adapter.validate_python(content)
        # 1.0 is an integer, says JSON Schema.
        found = self._adapter.validate_json(to_json(content, inf_nan_mode="constants"), strict=True)
        self._is_json(body)
        return found


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value
