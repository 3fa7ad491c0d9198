"""Routes of the audit chain: read it, verify it, and take the newest signature for safe keeping."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from learnloop_dataplane.api.requests import Audit, Caller, Db, answer, not_found
from learnloop_dataplane.audit.chain import page
from learnloop_dataplane.audit.verification import newest_checkpoint, verify

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
) -> Response:
    """Records in the order of the chain, page by page, with their hashes."""
    rows = await page(db, caller.namespace, after, limit, action=action, subject=subject)
    return answer({"records": rows, "next": rows[-1]["seq"] if len(rows) == limit else None})


@router.get("/checkpoint")
async def get_checkpoint(db: Db, caller: Caller) -> Response:
    """The newest signature over the chain. Keep it elsewhere: it proves later that the end is missing."""
    newest = await newest_checkpoint(db, caller.namespace)
    if newest is None:
        raise not_found("checkpoint", caller.namespace, "nothing is signed yet; wait a minute, or set an audit key")
    return answer(newest.to_json())


@router.get("/verify")
async def get_verify(db: Db, audit: Audit, caller: Caller) -> Response:
    """Checks the whole chain; `problem` names the first bad record."""
    return answer((await verify(db, caller.namespace, trusted=audit.trusted)).to_json())
