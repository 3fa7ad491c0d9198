"""JSON bodies, read strictly: what the document calls an integer is one, and neither true nor "1"."""

from collections.abc import Sequence
from typing import Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from learnloop_dataplane.api.http.dependencies import Caller
from learnloop_dataplane.concurrency.large_work import body_bytes, in_thread_if_large
from learnloop_dataplane.strict_json import StrictReader


class JsonBody:
    """A dependency that reads the request's body as `model`; the OpenAPI document finds the model here.

    FastAPI itself validates what `json.loads` made of the body, where strictness would refuse timestamps and ids for
    being text.

    Args:
        mends: see StrictReader.
    """

    def __init__(self, model: type[BaseModel], *, mends: bool = False) -> None:
        self.model = model
        self._reader = StrictReader(model, mends=mends)

    async def __call__(self, request: Request, caller: Caller) -> Any:
        """Raises RequestValidationError, which becomes a 422 that names the field.

        The caller comes first: who proves nothing has no body read, let alone parsed.
        """
        return await self.read(caller.namespace, await request.body())

    async def read(self, namespace: str, body: bytes) -> Any:
        """The same for bytes; a large body is read in a thread."""
        body_bytes.set(len(body))
        return await in_thread_if_large(namespace, self._read, body)

    def _read(self, body: bytes) -> Any:
        try:
            return self._reader.read(body)
        except ValidationError as error:
            found: Sequence[Any] = error.errors(include_url=False)
            raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]) from None


def json_body(model: type[BaseModel]) -> Any:
    """For signatures: `body: Annotated[Start, json_body(Start)]`."""
    return Depends(JsonBody(model))


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
