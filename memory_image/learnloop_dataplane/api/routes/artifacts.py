"""Artifacts: streaming up, streaming down, known by their digest."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from learnloop_api.wire.base import Name, Sha256
from learnloop_dataplane.api.http.dependencies import (
    Caller,
    Callers,
    DigestHeader,
    DigestPath,
    Input,
    Quota,
    Training,
    answer,
)
from learnloop_dataplane.api.http.json_bodies import json_body
from learnloop_dataplane.registry.artifacts import Content

router = APIRouter(prefix="/api/v1/artifacts", tags=["artifacts"])
BYTES: dict[str, Any] = {
    "description": "The bytes; their SHA-256 is in the header x-learnloop-sha256.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}

RAW_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
    }
}


@router.put("", status_code=201, openapi_extra=RAW_BODY)
async def put_artifact(
    request: Request, training: Training, quotas: Quota, caller: Caller, x_learnloop_sha256: DigestHeader
) -> Response:
    """Keeps the raw body under its SHA-256."""
    async with training.artifacts.receive(request.stream(), x_learnloop_sha256) as upload:
        await quotas.room_for_bytes(caller.namespace, upload.size)
        await training.artifacts.put(caller.namespace, upload)
    uri = f"learnloop://{caller.namespace}/{upload.sha256}"
    return answer({"uri": uri, "sha256": upload.sha256, "size_bytes": upload.size}, 201)


class InUse(Input):
    """What a namespace needs, as far as the operator knows."""

    sha256: list[Sha256] = Field(max_length=20_000, description="artifacts that serve, or may have to serve again")
    jobs: list[Name] = Field(max_length=20_000, description="training runs that may go on: their checkpoints stay")


@router.put("/in-use")
async def put_in_use(
    body: Annotated[InUse, json_body(InUse)], training: Training, callers: Callers, caller: Caller
) -> Response:
    """Keeps what is named, and deletes a batch of what has not been in use for the time of retention. Operator only."""
    callers.require_operator(caller, "only the operator knows what is in use")
    gone = await training.keeping.run(caller.namespace, body.sha256, body.jobs)
    return answer({"artifacts_deleted": gone.artifacts, "checkpoints_deleted": gone.checkpoints})


class _Digest(Convertor[str]):
    """What may be a digest. `in-use` is a resource of its own, which cannot be read: GET is answered with 405 there."""

    regex = "(?!in-use$)[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("digest", _Digest())


@router.get("/{sha256:digest}", response_class=StreamingResponse, responses={200: BYTES})
async def get_artifact(sha256: DigestPath, training: Training, caller: Caller) -> Response:
    """The bytes; compare their digest."""
    return send(await training.artifacts.get(caller.namespace, sha256))


def send(content: Content, headers: dict[str, str] | None = None) -> Response:
    """Streams a blob with its digest and length in the headers."""
    return StreamingResponse(
        content.chunks,
        media_type="application/octet-stream",
        headers={
            "x-learnloop-sha256": content.sha256,
            "content-length": str(content.size),
            **(headers or {}),
        },
    )
