"""POST /v1/shadow: copies of stable's decisions for the arm in shadow (learnloop_api.wire.shadow)."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from learnloop_api import names
from learnloop_api.wire.routing import ServingError
from learnloop_api.wire.shadow import ShadowBatch
from learnloop_serving.refusal import Refusal
from learnloop_serving.shadow_mode.mirror import PATH

if TYPE_CHECKING:
    from learnloop_serving.app import Arm

MAX_BODY = 4_194_304


def shadow_routes(arm: "Arm") -> APIRouter:
    """The one route, for `arm`."""
    router = APIRouter(tags=["shadow"])
    schema = {"requestBody": {"content": {"application/json": {"schema": ShadowBatch.model_json_schema()}}}}

    @router.post(PATH, status_code=202, openapi_extra=schema, summary="Copies of stable's decisions; nobody is told.")
    async def shadow(request: Request) -> Response:
        try:
            batch = arm.episodes.shadow.read(await _body(request), request.headers.get(names.HEADER_MARK, ""))
            await arm.beside(arm.episodes.shadow.take, arm.episodes.loaded(), batch)
        except Refusal as refusal:
            error = ServingError(reason=refusal.reason, message=refusal.message[:1000])
            return Response(error.model_dump_json(), refusal.status, media_type="application/json")
        return Response(status_code=202)

    return router


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise Refusal(413, "TooLarge", f"body: longer than {MAX_BODY} bytes")
        parts.append(chunk)
    return b"".join(parts)
