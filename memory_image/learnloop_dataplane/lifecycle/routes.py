"""The life of an agent's memory: consolidation, forgetting, origins, snapshots, moving it about."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationError

from learnloop_api.wire.base import Name, Timestamp
from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.api.requests import (
    Caller,
    Db,
    Input,
    Memory,
    Privacy,
    Quota,
    administers,
    answer,
    json_body,
    only,
)
from learnloop_dataplane.api.responses import LINES, UUID_KEY, answered, begins_after, following, page_mark
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.lifecycle import export_import, forgetting, retirement, snapshots
from learnloop_dataplane.lifecycle.distillation import MAX_PEOPLE, MAX_SOURCES
from learnloop_dataplane.memories.memory_store import NewMemory
from learnloop_dataplane.memories.routes import MAX_BATCH, StoreMemory
from learnloop_dataplane.postgres.sliced_transactions import Progress

router = APIRouter(prefix="/api/v1/memory", tags=["memory life"])
SnapshotName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
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
    action: retirement.Action
    agent_id: Name | None = Field(default=None, description="left out: every agent of the namespace")
    dry_run: bool = Field(default=False, description="only say how far it reached")


class Pin(Input):
    """Pinned memories neither expire nor are forgotten."""

    pinned: bool


class TakeSnapshot(Input):
    """A name for the agent's memory as it is now."""

    agent_id: Name
    name: SnapshotName


class Fork(Input):
    """Copies a snapshot into an agent that has no memory yet."""

    agent_id: Name
    name: SnapshotName
    into: Name


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


@router.post("/origins", responses=LINES)
async def post_origin(
    body: Annotated[Origin, json_body(Origin)], request: Request, memory: Memory, db: Db, caller: Caller
) -> Response:
    """Quarantines, releases or rolls back everything that came from an origin, and what was distilled from it. All or
    nothing; like forks and restores, one at a time for each agent and two in a process, another one is refused with
    429. Only a dry run is an agent's. With `Accept: application/x-ndjson` lines with `done` and `of` come first."""
    if not body.dry_run:
        await administers(request, caller, "update", "memories")

    async def work(progress: Progress) -> dict[str, Any]:
        with memory.rewrites.turn(caller.namespace, body.agent_id or "*"):
            done = await retirement.act_on_origin(
                db, caller.namespace, body.origin, body.action, progress, agent=body.agent_id, dry_run=body.dry_run
            )
        return asdict(done)

    return await answered(request, work)


@router.post("/snapshots", status_code=201)
async def post_snapshot(body: Annotated[TakeSnapshot, json_body(TakeSnapshot)], db: Db, caller: Caller) -> Response:
    """Names this instant of the agent's memory."""
    return answer(asdict(await snapshots.take(db, caller.namespace, body.agent_id, body.name)), 201)


@router.get("/snapshots")
async def get_snapshots(agent_id: AgentQuery, db: Db, caller: Caller) -> Response:
    """The agent's snapshots, newest first."""
    return answer({"snapshots": [asdict(each) for each in await snapshots.list_all(db, caller.namespace, agent_id)]})


@router.delete("/snapshots", status_code=204, dependencies=[only("delete", "snapshots")])
async def delete_snapshot(
    agent_id: AgentQuery, name: Annotated[SnapshotName, Query()], db: Db, caller: Caller
) -> Response:
    """Forgets the name; the memories stay."""
    await snapshots.drop(db, caller.namespace, agent_id, name)
    return Response(status_code=204)


@router.post("/snapshots/restore", responses=LINES, dependencies=[only("update", "snapshots")])
async def post_restore(
    body: Annotated[TakeSnapshot, json_body(TakeSnapshot)], request: Request, memory: Memory, db: Db, caller: Caller
) -> Response:
    """Makes the agent's memory, and what feedback had taught it, what it was then; all or nothing. One at a time for
    each agent and two in a process; another one is refused with 429. With `Accept: application/x-ndjson` lines with
    `done` and `of` come first."""

    async def work(progress: Progress) -> dict[str, int]:
        with memory.rewrites.turn(caller.namespace, body.agent_id):
            done = await snapshots.restore(db, caller.namespace, body.agent_id, body.name, progress)
        memory.grew(caller.namespace)
        return done

    return await answered(request, work)


@router.post("/snapshots/fork", status_code=201, responses=LINES)
async def post_fork(
    body: Annotated[Fork, json_body(Fork)], request: Request, memory: Memory, db: Db, caller: Caller
) -> Response:
    """Gives another agent a copy of the memory as it was then, with what feedback had taught by then; all or nothing.
    One at a time for each agent and two in a process; another one is refused with 429. With
    `Accept: application/x-ndjson` lines with `done` and `of` come first."""

    async def work(progress: Progress) -> dict[str, int]:
        with memory.rewrites.turn(caller.namespace, body.into):
            copied = await snapshots.fork(db, caller.namespace, body.agent_id, body.name, body.into, progress)
        memory.grew(caller.namespace)
        return {"copied": copied}

    return await answered(request, work, status=201)


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
    rows = await export_import.page(db, caller.namespace, agent_id, limit=limit, after=place, ended=ended)
    more = following(rows[-1]["created_at"], str(rows[-1]["id"])) if len(rows) == limit else None
    return answer({"memories": rows, "next": more})


@router.put("/entries/{id}/pin", status_code=204)
async def put_pin(id: UUID, body: Annotated[Pin, json_body(Pin)], db: Db, caller: Caller) -> Response:
    """Pins a memory, so that it neither expires nor is forgotten, or unpins it."""
    await retirement.pin(db, caller.namespace, id, body.pinned)
    return Response(status_code=204)


@router.post("/delete", dependencies=[only("delete", "memories")])
async def post_delete(body: Annotated[Delete, json_body(Delete)], db: Db, caller: Caller) -> Response:
    """Deletes the named memories for good."""
    deleted = await export_import.delete(db, caller.namespace, body.agent_id, body.ids)
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
    lines = export_import.export(db, caller.namespace, agent_id, as_of, only=only)
    return StreamingResponse(lines, media_type="application/x-ndjson")


_NDJSON: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}
_TAKEN = frozenset(StoreMemory.model_fields) - {"agent_id", "ttl_seconds", "idempotency_key"} | {
    "id",
    "created_at",
    "remembered_at",
    "expires_at",
    "helped",
    "hurt",
    "user_ids",
}
_MOST_PEOPLE = MAX_PEOPLE + MAX_SOURCES + 1  # that an export can name behind one memory
# Feedback that a file claims weighs at most like this much of one's own: wrong, it is outvoted soon.
_MOST_OUTCOMES = 20.0


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
    given = [_imported(agent_id, number, line) for number, line in enumerate(lines, 1)]
    memories, lines_read = [memory for memory, _ in given], [line for _, line in given]
    users, sources = [line.user_id for line in lines_read], [line.user_ids for line in lines_read]
    done = await memory.writes.import_all(caller.namespace, memories, users, sources)
    return answer(asdict(done), 201)


class _Line(StoreMemory):
    id: UUID
    created_at: Timestamp | None = None
    remembered_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    helped: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)
    hurt: float = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)
    user_ids: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(default=[], max_length=_MOST_PEOPLE)


def _imported(agent: str, number: int, line: bytes) -> tuple[NewMemory, _Line]:
    """The memory of one line, and the line."""
    try:
        fields = orjson.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        taken = {name: value for name, value in fields.items() if name in _TAKEN}
        body = _Line.model_validate_json(orjson.dumps(taken | {"agent_id": agent}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"line {number}: {first['msg']}; correct the line and send all again", field=where) from None
    except ValueError as error:
        raise Invalid(f"line {number}: {error}; correct the line and send all again", field="body") from None
    memory = body.memory()
    since = body.remembered_at or body.created_at
    share = min(1.0, _MOST_OUTCOMES / max(body.helped + body.hurt, _MOST_OUTCOMES))
    imported = NewMemory(
        agent=memory.agent,
        memory_type=memory.memory_type,
        content=memory.content,
        importance=memory.importance,
        source="import",
        origin=memory.origin or "import",
        provenance={"imported": str(body.id)} | ({"remembered_at": since} if since else {}),
        session_id=memory.session_id,
        speaker=memory.speaker,
        position=memory.position,
        idempotency_key=f"import:{body.id}",
        pinned=memory.pinned,
        valid_from=memory.valid_from or body.created_at,  # stored now, but valid since then, as in a fork
        valid_to=memory.valid_to,
        expires_at=body.expires_at,
        helped=share * body.helped,
        hurt=share * body.hurt,
    )
    return imported, body
