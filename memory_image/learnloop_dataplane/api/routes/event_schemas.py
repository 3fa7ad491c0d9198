"""The JSON Schemas of the events, for whoever publishes or reads them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from learnloop_api import events
from learnloop_dataplane.api.http.dependencies import answer, not_found

router = APIRouter(prefix="/api/v1/schemas", tags=["schemas"])
_SCHEMA: dict[str, Any] = {"content": {"application/schema+json": {"schema": {"type": "object"}}}}


class SchemaResponse(Response):
    """A JSON Schema."""

    media_type = "application/schema+json"


Subject = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("")
async def list_schemas() -> Response:
    """Every event: its subject, without `.<namespace>.<name>`, and where its schema is."""
    return answer({"schemas": [{"subject": name, "href": f"/api/v1/schemas/{name}"} for name in events.EVENTS]})


@router.get("/{subject}", response_class=SchemaResponse, responses={200: _SCHEMA})
async def get_schema(subject: Subject) -> Response:
    """JSON Schema 2020-12 of one event's body."""
    if subject not in events.EVENTS:
        raise not_found("subject", subject, f"no such event; there are {', '.join(events.EVENTS)}")
    return SchemaResponse(events.path(subject).read_bytes())
