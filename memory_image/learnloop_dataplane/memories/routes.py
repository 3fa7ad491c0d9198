"""Routes of memories: store, retrieve, and feedback on recalls."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ConfigDict, Field, JsonValue, model_validator

from learnloop_api.wire.base import Identifier, Name, Timestamp
from learnloop_dataplane import privacy, stems
from learnloop_dataplane.access import tokens
from learnloop_dataplane.api.route_input import (
    NOTHING_NEW,
    Caller,
    Input,
    JsonBody,
    Memory,
    alternatives,
    answer,
    by_hand,
    data_plane,
    identify,
    json_body,
    quick,
)
from learnloop_dataplane.concurrency.limits import in_thread_if_large
from learnloop_dataplane.memories.memory_store import NewMemory
from learnloop_dataplane.recall import memory_groups, recall
from learnloop_dataplane.recall.memory_types import ALL_TYPES, MemoryType

router = APIRouter(prefix="/api/v1/memory", tags=["memory"])
MAX_BATCH = 5000
MAX_TTL_SECONDS = 10 * 366 * 86_400


class StoreMemory(Input):
    """One memory of one agent."""

    agent_id: Name
    memory_type: MemoryType
    content: dict[str, JsonValue] = Field(min_length=1, max_length=256, description="`text` is searched")
    importance: float = Field(default=0.5, ge=0, le=1)
    session_id: Identifier | None = Field(
        default=None, description="conversation or episode it belongs to; its neighbours there are its context"
    )
    speaker: str | None = Field(
        default=None,
        max_length=64,
        description="who said it: a name, `user` or `assistant`; left out, the content's `speaker` or `role`",
    )
    position: int = Field(
        default=0, ge=0, le=2**53, description="place within the session; memories of one place go by their age"
    )
    origin: Annotated[
        str, Field(max_length=256, description="what it came from; a bad origin is rolled back whole")
    ] = ""
    pinned: bool = Field(default=False, description="never expires and is never forgotten")
    ttl_seconds: int | None = Field(
        default=None, ge=1, le=MAX_TTL_SECONDS, description="not recalled after this; default by type (working: 3600)"
    )
    valid_from: Timestamp | None = Field(default=None, description="when it became true; default: when it is stored")
    valid_to: Timestamp | None = Field(default=None, description="when it stopped being true; default: not yet")
    idempotency_key: Identifier | None = Field(default=None, description="the same key stores the same memory once")
    user_id: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="person that it is about, kept as a pseudonym: their opt-out or erasure reaches it",
    )

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "StoreMemory":
        if self.valid_from and self.valid_to and self.valid_to <= self.valid_from:
            raise ValueError("valid_to: is not after valid_from; nothing could ever be recalled")
        return self

    def memory(self) -> NewMemory:
        given = {name: getattr(self, name) for name in StoreMemory.model_fields if name != "user_id"}
        return NewMemory(agent=given.pop("agent_id"), **given)


class StoreBatch(Input):
    """Many memories, of any agents of the namespace: all are stored or none."""

    memories: list[StoreMemory] = Field(min_length=1, max_length=MAX_BATCH)


class Retrieve(Input):
    """The present context; the best matching memories come back."""

    agent_id: Name
    context: dict[str, JsonValue] | str = Field(max_length=65_536)
    k: int = Field(default=10, ge=1, le=100)
    # A tuple: pydantic would copy a list for every request.
    memory_types: tuple[MemoryType, ...] = Field(default=ALL_TYPES, min_length=1, max_length=len(ALL_TYPES))
    scope: memory_groups.ScopeOfRecall = Field(
        default="agent",
        description="whose memories: the agent's own, those of its group, or those of all agents of the namespace",
    )
    as_of: Timestamp | None = Field(default=None, description="answer as the agent would have at this instant")
    logged: bool = Field(default=True, description="false: only looks; the recall is not logged and teaches nothing")

    def ask(self) -> recall.Ask:
        """As it goes to recall: redacted as memories are, or an address in the question is not the `<EMAIL:…>` that is
        stored, and an embedder elsewhere gets to see it."""
        return recall.Ask(
            self.agent_id,
            stems.question_of(privacy.redact(self.context)),
            self.k,
            tuple(dict.fromkeys(self.memory_types)),
            self.as_of,
            self.scope,
            self.logged,
        )


READ_BY_HAND: tuple[type[Input], ...] = (StoreMemory, StoreBatch, Retrieve)
_BODIES = {model: JsonBody(model, mends=True) for model in READ_BY_HAND}


async def _read(request: Request, caller: tokens.Identity, model: type[Input]) -> Any:
    return await _BODIES[model].receive(caller.namespace, await request.body())


@router.post("/store", status_code=201, responses=NOTHING_NEW, openapi_extra=by_hand(StoreMemory))
async def store_memory(request: Request) -> Response:
    """Stores a memory; it can be recalled as soon as this answers. Nothing is stored about a person who opted out
    (stored: false)."""
    caller = await identify(request)
    body: StoreMemory = await _read(request, caller, StoreMemory)
    await data_plane(request).quotas.room_for_memories(caller.namespace, 1)
    done = await data_plane(request).memory.writes.store_batch(caller.namespace, [body.memory()], [body.user_id])
    stored = {"id": done.ids[0], "duplicate": bool(done.duplicates), "stored": not done.opted_out}
    return quick(stored, 200 if done.duplicates or done.opted_out else 201)


@router.post("/store/batch", status_code=201, openapi_extra=by_hand(StoreBatch))
async def store_batch(request: Request) -> Response:
    """Stores up to 5,000 memories in one transaction; all can be recalled as soon as this answers."""
    caller = await identify(request)
    writes = data_plane(request).memory.writes
    body: StoreBatch = await _read(request, caller, StoreBatch)
    await data_plane(request).quotas.room_for_memories(caller.namespace, len(body.memories))
    memories = [memory.memory() for memory in body.memories]
    users = [memory.user_id for memory in body.memories]
    del body  # thousands of objects that the next batch can use while this one waits for the database
    return quick(await writes.store_batch(caller.namespace, memories, users), 201)


@router.post("/retrieve", openapi_extra=by_hand(Retrieve))
async def retrieve(request: Request) -> Response:
    """The k best memories, each with its score and one word that says why it is there."""
    memory = data_plane(request).memory
    caller = await identify(request)
    body: Retrieve = await _read(request, caller, Retrieve)
    async with memory.places.of(caller.namespace):
        return quick(await memory.recall(caller.namespace, await in_thread_if_large(caller.namespace, body.ask)))


class GiveFeedback(Input):
    """How a recall turned out. Episodes that name their recalls need not send this: their reward teaches by itself."""

    model_config = ConfigDict(json_schema_extra=alternatives("reward", "helpful", at_most_one=True))

    retrieval_id: UUID
    reward: float | None = Field(default=None, ge=-100, le=100, description="of what the agent did with the answer")
    helpful: list[UUID] | None = Field(default=None, max_length=120, description="the memories that helped")

    @model_validator(mode="after")
    def _says_something(self) -> "GiveFeedback":
        if (self.reward is None) == (self.helpful is None):
            raise ValueError("reward: send either a reward or the list of helpful memories")
        return self


@router.post("/feedback")
async def give_feedback(
    body: Annotated[GiveFeedback, json_body(GiveFeedback)], memory: Memory, caller: Caller
) -> Response:
    """Moves the outcomes of the recalled memories; the same recall teaches once."""
    done = await memory.outcomes.give(caller.namespace, body.retrieval_id, reward=body.reward, helpful=body.helpful)
    return answer(done)
