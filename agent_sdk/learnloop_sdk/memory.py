"""Memories of an agent. A memory service that is down costs an agent its memories, never its work (spec 002)."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from learnloop_sdk.counters import Counters
from learnloop_sdk.identity import Identity

log = logging.getLogger(__name__)
TIMEOUT = 2.0
REST_SECONDS = 5.0  # after a failure: answer "no memories" at once instead of waiting for the time-out at every call


@dataclass(frozen=True)
class Recall:
    """What came back: memories best first, and the id that lets rewards teach the ranker which of them helped."""

    memories: list[dict[str, Any]] = field(default_factory=list)
    retrieval_id: str | None = None


class MemoryClient:
    """POST /api/v1/memory/store, /store/batch, /retrieve and /feedback. No method raises because of the service."""

    def __init__(self, client: httpx.AsyncClient | None, identity: Identity, agent: str, counters: Counters) -> None:
        self._client = client
        self._identity = identity
        self._agent = agent
        self._counters = counters
        self._rest_until = 0.0

    async def store(
        self,
        content: Mapping[str, Any],
        *,
        memory_type: str = "episodic",
        importance: float | None = None,
        **options: Any,
    ) -> bool:
        """Remember `content`; says whether the service took it.

        Args:
            options: session_id, user_id, origin, pinned, ttl_seconds, valid_from, valid_to, idempotency_key; see
                docs/memory.md.
        """
        return (
            await self._post("/api/v1/memory/store", self._memory(content, memory_type, importance, options))
            is not None
        )

    async def store_many(
        self, contents: Sequence[Mapping[str, Any]], *, memory_type: str = "episodic", **options: Any
    ) -> bool:
        """Remember up to 5,000 contents, all or none; says whether the service took them."""
        memories = [self._memory(content, memory_type, None, options) for content in contents]
        return not memories or await self._post("/api/v1/memory/store/batch", {"memories": memories}) is not None

    async def feedback(
        self, recall: "Recall", *, reward: float | None = None, helpful: Sequence[str] | None = None
    ) -> bool:
        """Tell what came of a recall: its reward, or the ids of the memories that helped; says whether it was taken.

        An episode recorded with its recalls teaches by its own reward and needs no call of this.
        """
        if recall.retrieval_id is None or (reward is None) == (helpful is None):
            return False
        body: dict[str, Any] = {"retrieval_id": recall.retrieval_id}
        body |= {"reward": reward} if helpful is None else {"helpful": list(helpful)}
        return await self._post("/api/v1/memory/feedback", body) is not None

    def _memory(
        self, content: Mapping[str, Any], memory_type: str, importance: float | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"agent_id": self._agent, "memory_type": memory_type, "content": dict(content)}
        return body | ({} if importance is None else {"importance": importance}) | dict(options)

    async def retrieve(
        self, context: Mapping[str, Any], k: int = 5, memory_types: Sequence[str] | None = None
    ) -> Recall:
        """At most `k` memories relevant to `context`; an empty Recall when the service is not there."""
        body: dict[str, Any] = {"agent_id": self._agent, "context": dict(context), "k": k}
        if memory_types is not None:
            body["memory_types"] = list(memory_types)
        answer = await self._post("/api/v1/memory/retrieve", body)
        if answer is None:
            return Recall()
        memories, retrieval_id = answer.get("memories"), answer.get("retrieval_id")
        return Recall(
            [memory for memory in memories if isinstance(memory, dict)][:k] if isinstance(memories, list) else [],
            retrieval_id if isinstance(retrieval_id, str) else None,
        )

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if self._client is None or time.monotonic() < self._rest_until:
            return None
        try:
            response = await self._client.post(path, json=body, headers=self._identity.headers(), timeout=TIMEOUT)
            if response.status_code >= 300:
                raise ValueError(f"HTTP {response.status_code}: {response.text[:200]}")
            answer = response.json()
            if not isinstance(answer, dict):
                raise ValueError("the answer is not a JSON object")
        except (httpx.HTTPError, OSError, ValueError, TypeError) as error:
            self._counters.memory_failures += 1
            if not isinstance(error, ValueError):
                self._rest_until = time.monotonic() + REST_SECONDS
            log.warning("memory service: %s; going on without memories", str(error) or type(error).__name__)
            return None
        return answer
