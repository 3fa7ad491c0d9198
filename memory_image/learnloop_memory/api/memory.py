"""Memories: store and retrieve (specification 000)."""

import time
from dataclasses import asdict

from fastapi import APIRouter, Response
from pydantic import Field, JsonValue

from learnloop_api.wire.base import Identifier, Name
from learnloop_memory.api.common import Caller, Input, Svc, answer
from learnloop_memory.memory.recall import recall
from learnloop_memory.memory.store import MemoryType, NewMemory, store
from learnloop_memory.memory.text import text_of

router = APIRouter(prefix="/api/v1/memory", tags=["memory"])
ALL_TYPES: tuple[MemoryType, ...] = ("episodic", "semantic", "procedural")


class StoreMemory(Input):
    """One memory of one agent."""

    agent_id: Name
    memory_type: MemoryType
    content: dict[str, JsonValue] = Field(min_length=1, max_length=256, description="`text` is what is searched")
    importance: float = Field(default=0.5, ge=0, le=1)
    idempotency_key: Identifier | None = Field(default=None, description="the same key stores the same memory once")


class Retrieve(Input):
    """What is going on now; the best matching memories come back."""

    agent_id: Name
    context: dict[str, JsonValue] | str = Field(max_length=65_536)
    k: int = Field(default=10, ge=1, le=100)
    memory_types: list[MemoryType] = Field(default=list(ALL_TYPES), min_length=1, max_length=3)


@router.post("/store", status_code=201)
async def store_memory(body: StoreMemory, service: Svc, caller: Caller) -> Response:
    """Stores a memory; it can be recalled as soon as this answers."""
    memory = NewMemory(
        body.agent_id,
        body.memory_type,
        dict(body.content),
        importance=body.importance,
        idempotency_key=body.idempotency_key,
    )
    identity, duplicate = await store(service.db, caller.namespace, memory, service.embedder)
    return answer({"id": identity, "duplicate": duplicate}, 200 if duplicate else 201)


@router.post("/retrieve")
async def retrieve(body: Retrieve, service: Svc, caller: Caller) -> Response:
    """The k best memories with the score of every signal."""
    started = time.perf_counter()
    found = await recall(
        service.db,
        caller.namespace,
        body.agent_id,
        text_of(body.context),
        k=body.k,
        memory_types=body.memory_types,
        embedder=service.embedder,
    )
    service.metrics.recall.observe(time.perf_counter() - started)
    return answer(asdict(found))
