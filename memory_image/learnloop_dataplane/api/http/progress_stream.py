"""Answers to requests that may take minutes: JSON at the end, or line by line how far the work has come.

The lines are asked for with `Accept: application/x-ndjson`: `{"done": 4000, "of": 300000}` about once a second, and as
the last one what JSON would have been, or the refusal. A caller who hangs up ends the work, which is undone as a whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from learnloop_dataplane.api.http.dependencies import answer
from learnloop_dataplane.api.http.error_responses import refusal, unexpected
from learnloop_dataplane.concurrency.cancellation import cancel
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.sliced_transactions import Progress

MEDIA_TYPE = "application/x-ndjson"
EVERY_SECONDS = 1.0
LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Done; as lines, the last of which says whether it is.",
        "content": {"application/json": {}, MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


async def answered(request: Request, work: Callable[[Progress], Awaitable[Any]], *, status: int = 200) -> Response:
    """What the work returns, as JSON with this status or as lines with 200.

    An `Idempotency-Key` asks for JSON: what is kept for a second request is the end of it.

    Raises:
        ApiError: the work was refused before its first line, or JSON was asked for.
    """
    progress = Progress()
    lines = MEDIA_TYPE in request.headers.get("accept", "") and "idempotency-key" not in request.headers
    if not lines:
        return answer(await work(progress), status)
    task = asyncio.create_task(_awaited(work(progress)))
    try:
        await asyncio.wait({task}, timeout=EVERY_SECONDS)
        if task.done():
            task.result()  # a refusal that is known by now has its own status
    except BaseException:
        await cancel([task])
        raise
    return StreamingResponse(_lines(request, task, progress), media_type=MEDIA_TYPE)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


async def _lines(request: Request, task: asyncio.Task[Any], progress: Progress) -> AsyncIterator[bytes]:
    try:
        while not task.done():
            yield to_json({"done": progress.done, "of": progress.of}) + b"\n"
            await asyncio.wait({task}, timeout=EVERY_SECONDS)
        yield _last(request, task) + b"\n"
    finally:
        await cancel([task])


def _last(request: Request, task: asyncio.Task[Any]) -> bytes:
    try:
        return to_json(task.result())
    except ApiError as error:
        return bytes(refusal(error).body)
    except Exception as error:
        return bytes(unexpected(request.scope, error).body)
