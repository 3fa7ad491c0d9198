"""Memories of an agent, and people's opinions of its work. A service that is down never stops an agent."""

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from learnloop_common.redaction.redactor import Redaction, safe_origin, user_as_sent
from learnloop_sdk.errors import Counters, LearnloopError, NotSent, Refused, SinkDown
from learnloop_sdk.outbox import Delivery, Parcel, Service

log = logging.getLogger(__name__)
UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Recall:
    """Result of a recall.

    Attributes:
        memories: best first.
        retrieval_id: lets rewards teach which of the memories helped.
        degraded: missing parts, e.g. `embedder`; `unavailable` where the service did not answer. Empty: complete.
    """

    memories: list[dict[str, Any]] = field(default_factory=list)
    retrieval_id: str | None = None
    degraded: list[str] = field(default_factory=list)


class MemoryClient:
    """POST /api/v1/memory/store, /retrieve and /feedback. No method raises because of the service.

    While it is away, recalls return nothing without waiting, and what is to be stored is sent later, once.
    """

    def __init__(
        self, service: Service, delivery: Delivery, agent: str, redactor: Redaction, counters: Counters
    ) -> None:
        self._service, self._delivery = service, delivery
        self._agent, self._redactor, self._counters = agent, redactor, counters

    async def store(
        self,
        content: Mapping[str, Any],
        *,
        memory_type: str = "episodic",
        importance: float | None = None,
        **options: Any,
    ) -> bool:
        """Remember `content`, redacted; True when the service has it, False when it waits or was refused.

        Args:
            options: session_id, speaker, position, user_id, origin (redacted as well), pinned, ttl_seconds, valid_from,
                valid_to, idempotency_key; see docs/explanation/memory.md.
        """
        memory = self._memory(content, memory_type, importance, options)
        return await self._hand_over("/api/v1/memory/store", memory)

    async def feedback(
        self, recall: "Recall", *, reward: float | None = None, helpful: Sequence[str] | None = None
    ) -> bool:
        """Report a recall's reward, or the ids of the memories that helped; returns whether it was accepted.

        An episode recorded with its recalls teaches by its own reward and needs no such call.
        """
        if recall.retrieval_id is None or (reward is None) == (helpful is None):
            return False
        body: dict[str, Any] = {"retrieval_id": recall.retrieval_id}
        body |= {"reward": reward} if helpful is None else {"helpful": list(helpful)}
        return await self._hand_over("/api/v1/memory/feedback", body)

    def _memory(
        self, content: Mapping[str, Any], memory_type: str, importance: float | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "agent_id": self._agent,
            "memory_type": memory_type,
            "content": self._redactor.value(dict(content)),
            "idempotency_key": uuid.uuid4().hex,
        }
        body |= {} if importance is None else {"importance": importance}
        person = {"user_id": user_as_sent(str(options["user_id"]))} if options.get("user_id") is not None else {}
        origin = {"origin": safe_origin(str(options["origin"]), self._redactor)} if options.get("origin") else {}
        return body | dict(options) | person | origin

    async def retrieve(
        self,
        context: Mapping[str, Any],
        k: int = 5,
        memory_types: Sequence[str] | None = None,
        scope: Literal["agent", "group", "namespace"] = "agent",
    ) -> Recall:
        """Recall at most `k` memories relevant to `context`, which is redacted first; empty and degraded where the
        service does not answer.

        Args:
            scope: the agent's own memories, those of its group (`spec.memory.group` of the LearningAgent), or those of
                all agents of the namespace. Each has its `agent_id`.
        """
        redacted = self._redactor.value(dict(context))
        body: dict[str, Any] = {"agent_id": self._agent, "context": redacted, "k": k}
        if memory_types is not None:
            body["memory_types"] = list(memory_types)
        if scope != "agent":
            body["scope"] = scope
        try:
            answer = await self._service.post("/api/v1/memory/retrieve", _encoded(body))
        except (SinkDown, Refused) as error:
            self._failed(error)
            return Recall(degraded=[UNAVAILABLE])
        memories, retrieval_id, degraded = (answer.get(name) for name in ("memories", "retrieval_id", "degraded"))
        return Recall(
            [memory for memory in memories if isinstance(memory, dict)][:k] if isinstance(memories, list) else [],
            retrieval_id if isinstance(retrieval_id, str) else None,
            [str(item) for item in degraded] if isinstance(degraded, list) else [],
        )

    async def _hand_over(self, path: str, body: dict[str, Any]) -> bool:
        """Post `body`, which may arrive twice. True: accepted. False: it waits, or was refused."""
        try:
            encoded = _encoded(body)
            await self._service.post(path, encoded)
            return True
        except Refused as error:
            self._failed(error)
        except SinkDown as error:
            self._failed(error)
            if self._service.address:
                await self._delivery.put(Parcel(uuid.uuid4().hex, encoded, path))
        return False

    def _failed(self, error: SinkDown | Refused) -> None:
        if not isinstance(error, NotSent):
            self._counters.memory_failures += 1
            log.warning("%s; going on without it", error)


class People:
    """POST /api/v1/feedback, in the background: an opinion waits while the data plane is away."""

    def __init__(self, delivery: Delivery | None) -> None:
        self._delivery = delivery

    async def feedback(
        self,
        trajectory_id: str,
        user_id: str,
        *,
        thumbs: Literal["up", "down"] | None = None,
        stars: int | None = None,
    ) -> None:
        """Send one person's opinion of one episode; a later one replaces it. It may arrive before the episode does.

        Args:
            trajectory_id: Episode.trajectory_id or EpisodeResult.trajectory_id.
            user_id: the application's id of the person; the data plane keeps a pseudonym.
            stars: 1 to 5; 3 is neutral.

        Raises LearnloopError: neither thumbs nor stars, both, or stars outside of 1 to 5.
        """
        if (thumbs is None) == (stars is None):
            raise LearnloopError("feedback: give either thumbs or stars")
        if stars is not None and not 1 <= stars <= 5:
            raise LearnloopError(f"feedback: stars is {stars}, must be 1 to 5")
        opinion: dict[str, Any] = {"thumbs": thumbs} if stars is None else {"stars": stars}
        body = {"trajectory_id": trajectory_id, "user_id": user_as_sent(user_id), **opinion}
        identity = sha256(f"{trajectory_id} {user_id}".encode("utf-8", "replace")).hexdigest()
        if self._delivery is not None:
            await self._delivery.put(Parcel(identity, _encoded(body), "/api/v1/feedback"))


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(f"not JSON: {error}") from error
