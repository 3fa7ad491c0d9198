"""Routes of the life of an agent's memory: consolidation, forgetting, origins, export and import."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from learnloop_api.wire.base import Name, Timestamp
from learnloop_api.wire.memory_budget import MemoryBudget
from learnloop_dataplane.api.route_input import (
    UUID_KEY,
    Caller,
    Db,
    Input,
    Memory,
    Privacy,
    Quota,
    administers,
    answer,
    begins_after,
    following,
    json_body,
    only,
    page_mark,
)
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.lifecycle import export, forgetting, quarantine
from learnloop_dataplane.memories.routes import MAX_BATCH

router = APIRouter(prefix="/api/v1/memory", tags=["memory life"])
AgentQuery = Annotated[Name, Query()]


class Consolidate(Input):
    """An agent; a dry run changes nothing."""

    agent_id: Name
    dry_run: bool = False


class Forget(Input):
    """An agent, and the number of memories it may keep."""

    agent_id: Name
    budget: int = Field(ge=0, le=10_000_000, description="memories to keep; pinned ones stay above it")
    dry_run: bool = False


class Origin(Input):
    """One origin, or with a trailing * every origin that begins like this."""

    origin: Annotated[str, Field(min_length=2, max_length=256, pattern=r"^[^\x00]+$")]
    action: quarantine.Action
    agent_id: Name | None = Field(default=None, description="left out: every agent of the namespace")
    dry_run: bool = Field(default=False, description="only say how far it reached")


class Delete(Input):
    """Memories to delete for good."""

    agent_id: Name
    ids: list[UUID] = Field(min_length=1, max_length=MAX_BATCH)


@router.post("/consolidate")
async def post_consolidate(
    body: Annotated[Consolidate, json_body(Consolidate)], memory: Memory, caller: Caller
) -> Response:
    """Ends duplicates and echoes, and distils episodes into facts and procedures. One at a time for each agent and
    two in a process; another one is refused with 429 and `Retry-After`."""
    done = await memory.consolidation.consolidate(caller.namespace, body.agent_id, dry_run=body.dry_run)
    return answer(asdict(done))


@router.post("/forget")
async def post_forget(
    body: Annotated[Forget, json_body(Forget)], request: Request, memory: Memory, db: Db, caller: Caller
) -> Response:
    """Forgets the least valuable memories above the budget; `as_of` still finds them until retention is over.
    Only a dry run is an agent's. One at a time for each agent and two in a process; another one is refused with 429
    and `Retry-After`."""
    if not body.dry_run:
        await administers(request, caller, "delete", "memories")
    budget = MemoryBudget(memories=body.budget)
    with memory.forgettings.turn(caller.namespace, body.agent_id):
        done = await forgetting.forget(db, caller.namespace, body.agent_id, budget, dry_run=body.dry_run)
    return answer(asdict(done))


@router.post("/origins")
async def post_origin(
    body: Annotated[Origin, json_body(Origin)], request: Request, memory: Memory, db: Db, caller: Caller
) -> Response:
    """Quarantines, releases or rolls back everything that came from an origin, and what was distilled from it. All or
    nothing. One at a time for each agent and two in a process; another one is refused with 429 and `Retry-After`.
    Only a dry run is an agent's."""
    if not body.dry_run:
        await administers(request, caller, "update", "memories")
    with memory.rewrites.turn(caller.namespace, body.agent_id or "*"):
        done = await quarantine.act_on_origin(
            db, caller.namespace, body.origin, body.action, agent=body.agent_id, dry_run=body.dry_run
        )
    return answer(asdict(done))


@router.get("/entries")
async def get_entries(
    agent_id: AgentQuery,
    db: Db,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[str | None, page_mark(1, UUID_KEY)] = None,
    ended: Annotated[bool, Query(description="retired and expired ones too, with why")] = False,
) -> Response:
    """The agent's memories in the order they were stored, page by page."""
    place = None
    if mark := begins_after(after):
        time, *keys = mark
        place = (time, UUID(keys[0]))
    rows = await export.page(db, caller.namespace, agent_id, limit=limit, after=place, ended=ended)
    more = following(rows[-1]["created_at"], str(rows[-1]["id"])) if len(rows) == limit else None
    return answer({"memories": rows, "next": more})


@router.post("/delete", dependencies=[only("delete", "memories")])
async def post_delete(body: Annotated[Delete, json_body(Delete)], db: Db, caller: Caller) -> Response:
    """Deletes the named memories for good."""
    deleted = await export.delete(db, caller.namespace, body.agent_id, body.ids)
    return answer({"deleted": deleted})


_WHOSE = "only what an erasure of this person would take, ended ones too: a person, or their pseudonym"
_LINES: dict[str, Any] = {"description": "NDJSON", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}


@router.get("/export", response_class=StreamingResponse, responses={200: _LINES})
async def get_export(
    agent_id: AgentQuery,
    db: Db,
    privacy: Privacy,
    caller: Caller,
    as_of: Annotated[Timestamp | None, Query()] = None,
    user_id: Annotated[str | None, Query(min_length=1, max_length=256, description=_WHOSE)] = None,
) -> Response:
    """One line of JSON for each memory."""
    only = None if user_id is None else await privacy.erasing.memories_of(caller.namespace, user_id)
    lines = export.export(db, caller.namespace, agent_id, as_of, only=only)
    return StreamingResponse(lines, media_type="application/x-ndjson")


_NDJSON: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}


@router.post("/import", status_code=201, openapi_extra=_NDJSON)
async def post_import(
    request: Request, agent_id: AgentQuery, memory: Memory, quotas: Quota, caller: Caller
) -> Response:
    """Stores the lines of an export as this agent's memories, all or none; the same line again is stored once, one
    about a person who opted out of this namespace (`user_id`, `user_ids`) not at all."""
    lines = [line for line in (await request.body()).splitlines() if line.strip()]
    if not 1 <= len(lines) <= MAX_BATCH:
        raise Invalid(f"send 1 to {MAX_BATCH} lines at a time", field="body", value=len(lines))
    await quotas.room_for_memories(caller.namespace, len(lines))
    given = [export.read_line(agent_id, number, line) for number, line in enumerate(lines, 1)]
    memories = [each.memory() for each in given]
    users, sources = [each.user_id for each in given], [each.user_ids for each in given]
    done = await memory.writes.store_batch(caller.namespace, memories, users, sources)
    memory.budgets.changed(caller.namespace)
    imported = len(memories) - done.duplicates - done.opted_out
    return answer({"imported": imported, "duplicates": done.duplicates, "opted_out": done.opted_out}, 201)
