"""JSON bodies, read strictly: what the document calls an integer is one, and neither true nor "1"."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json


class JsonBody:
    """A dependency that reads the request's body as `model`; the OpenAPI document finds the model here.

    FastAPI itself validates what `json.loads` made of the body, where strictness would refuse timestamps and ids for
    being text. pydantic's own parser knows which types JSON has.

    Args:
        mends: take lone surrogates, which agents do send (half of an emoji); what is stored is redacted, which mends
            them.
    """

    def __init__(self, model: type[BaseModel], *, mends: bool = False) -> None:
        self.model = model
        self._mends = mends
        self._adapter: TypeAdapter[Any] = TypeAdapter(model)

    async def __call__(self, request: Request) -> Any:
        """Raises RequestValidationError, which becomes a 422 that names the field."""
        return self.read(await request.body())

    def read(self, body: bytes) -> Any:
        """The same of bytes."""
        try:
            return self._adapter.validate_json(body, strict=True)
        except ValidationError as error:
            refusal = error
        try:
            return self._again(body, refusal)
        except ValidationError as error:
            found: Sequence[Any] = error.errors(include_url=False)
            raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]) from None

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
        return self._adapter.validate_json(to_json(content, inf_nan_mode="constants"), strict=True)


def json_body(model: type[BaseModel]) -> Any:
    """For signatures: `body: Annotated[Start, json_body(Start)]`."""
    return Depends(JsonBody(model))


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def alternatives(*fields: str, at_most_one: bool) -> Any:
    """For `json_schema_extra`: says in the schema what a validator says in words, that one of these fields is given.

    Args:
        fields: each may be null by itself.
        at_most_one: the others must then be null or absent.
    """

    def extend(schema: dict[str, Any]) -> None:
        cases = []
        for chosen in fields:
            properties = dict(schema["properties"])
            for name in fields:
                if name == chosen:
                    properties[name] = _not_null(properties[name])
                elif at_most_one:
                    properties[name] = {"type": "null"}
            required = [*schema.get("required", []), chosen]
            cases.append({"type": "object", "properties": properties, "required": required})
        closed = schema.pop("additionalProperties", False)
        for case in cases:
            case["additionalProperties"] = closed
        for key in ("type", "properties", "required"):
            schema.pop(key, None)
        schema["anyOf"] = cases

    return extend


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    given = [case for case in schema.get("anyOf", []) if case.get("type") != "null"]
    return kept | given[0] if given else kept
