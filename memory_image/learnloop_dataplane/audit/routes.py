"""Routes of the audit chain: read it and verify it."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from learnloop_dataplane.api.route_input import Caller, Db, answer
from learnloop_dataplane.audit.chain import page, verify

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])
_TEXT = r"^[^\x00]*$"
"""PostgreSQL has no text with a NUL in it."""


@router.get("/records")
async def get_records(
    db: Db,
    caller: Caller,
    after: Annotated[int, Query(ge=0, le=2**62, description="`next` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    action: Annotated[
        str | None, Query(max_length=64, pattern=_TEXT, description="only these, e.g. memory.deleted")
    ] = None,
    subject: Annotated[
        str | None, Query(max_length=512, pattern=_TEXT, description="only about this, e.g. agent/walker")
    ] = None,
    newest: Annotated[bool, Query(description="of the last 5,000, whatever `after` says")] = False,
) -> Response:
    """Records in the order of the chain, page by page, with their hashes."""
    place = None if newest else after
    rows, following = await page(db, caller.namespace, place, limit, action=action, subject=subject)
    return answer({"records": rows, "next": following})


@router.get("/verify")
async def get_verify(db: Db, caller: Caller) -> Response:
    """Checks the whole chain; `problem` names the first bad record. Keep `records` and `head` elsewhere: a chain that
    was cut off or written again has another record there."""
    return answer((await verify(db, caller.namespace)).to_json())
