"""The OpenAPI document: FastAPI's, plus what FastAPI cannot see."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from learnloop_api.wire.trajectory import Trajectory
from learnloop_memory.api import memory

_TEMPLATE = "#/components/schemas/{model}"
_FASTAPIS = ("HTTPValidationError", "ValidationError")


class Problem(BaseModel):
    """What is wrong with a request."""

    field: str | None = Field(description="dotted path of the input at fault, when there is one")
    value: str | None = Field(description="the value at fault, shortened")
    message: str = Field(description="what is wrong and how to mend it, one sentence")


class Refusal(BaseModel):
    """The one shape of every refusal."""

    error: Problem


def build(app: FastAPI) -> dict[str, Any]:
    """The document: bodies that are validated by hand on the hot path have their schemas too, and every operation
    says how it refuses."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    by_hand: tuple[type[BaseModel], ...] = (Trajectory, *memory.READ_BY_HAND, Refusal)
    for model in by_hand:
        schema = model.model_json_schema(ref_template=_TEMPLATE)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for name in _FASTAPIS:
        schemas.pop(name, None)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"] |= _refusals()
    return document


def _refusals() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _TEMPLATE.format(model="Refusal")}}}
    again = {"Retry-After": {"description": "seconds", "schema": {"type": "string"}}}
    return {
        "4XX": {"description": "Refused; the message says why.", "content": content},
        "503": {"description": "A store does not answer right now.", "content": content, "headers": again},
    }
