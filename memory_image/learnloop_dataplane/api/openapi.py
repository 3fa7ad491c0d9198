"""The OpenAPI document: FastAPI's, plus what FastAPI cannot see."""

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.api.http.dependencies import IDENTITY_PARAMETERS, identify
from learnloop_dataplane.api.http.idempotency_keys import PARAMETER, WITHOUT
from learnloop_dataplane.api.http.json_bodies import JsonBody
from learnloop_dataplane.api.routes import memories
from learnloop_dataplane.api.routes.rewards import Calculate

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


def build(app: FastAPI, routes: Iterable[APIRoute]) -> dict[str, Any]:
    """The document: bodies that are validated by hand on the hot path have their schemas too, and every operation
    says how it refuses."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    routes = list(routes)
    bodies = dict(_bodies(routes))
    of_callers = {place for route in routes if _asks_who_calls(route.dependant) for place in _places(route)}
    by_hand: tuple[type[BaseModel], ...] = (Trajectory, Calculate, *memories.READ_BY_HAND, *bodies.values(), Refusal)
    # All at once: two models of one name in different modules get names of their own.
    references, found = models_json_schema([(model, "validation") for model in by_hand], ref_template=_TEMPLATE)
    schemas.update(found["$defs"])
    for name in _FASTAPIS:
        schemas.pop(name, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if body := bodies.get((path, method)):
                schema = references[body, "validation"]
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            if (path, method) in of_callers:
                operation["parameters"] = [*operation.get("parameters", []), *IDENTITY_PARAMETERS]
            if method == "post" and path not in WITHOUT:
                operation["parameters"] = [*operation.get("parameters", []), PARAMETER]
            operation["responses"].pop("422", None)
            operation["responses"] |= _refusals()
    return document


def _bodies(routes: Iterable[APIRoute]) -> Iterator[tuple[tuple[str, str], type[BaseModel]]]:
    """What `json_body` reads, by path and method."""
    for route in routes:
        for dependency in route.dependant.dependencies:
            if isinstance(dependency.call, JsonBody):
                for place in _places(route):
                    yield place, dependency.call.model


def _asks_who_calls(dependant: Dependant) -> bool:
    return dependant.call is identify or any(map(_asks_who_calls, dependant.dependencies))


def _places(route: APIRoute) -> Iterator[tuple[str, str]]:
    """Where the document has it: path and method."""
    for method in route.methods or ():
        yield route.path_format, method.lower()


def _refusals() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _TEMPLATE.format(model="Refusal")}}}
    again = {"Retry-After": {"description": "seconds, where waiting helps", "schema": {"type": "string"}}}
    return {
        "4XX": {
            "description": "Refused; the message says why. 429: too many at once, the same request may succeed later.",
            "content": content,
            "headers": again,
        },
        "503": {"description": "A store does not answer right now.", "content": content, "headers": again},
    }
