"""Does the Weaviate that a MemoryService names take what it is given?"""

from typing import Any, Literal

from learnloop_operator.core import conditions
from learnloop_operator.core.plan import Notice
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

TYPE = "VectorStoreAvailable"
LONGEST = 500


def vector_store(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """The condition; none where PostgreSQL does it all. While its status stays, so does its first sentence: a store
    that is away says so in many ways, and a reader learns nothing from the next."""
    if world.spec.weaviate is None:
        return []
    found: tuple[Literal["True", "False", "Unknown"], str, str]
    if world.degraded is None:
        found = (conditions.UNKNOWN, "NotAsked", "no ready pod of the service has said whether Weaviate answers")
    elif problem := world.degraded.get("vector store", "")[:LONGEST]:
        meaning = "large agents are scanned, which is slower and finds the same; nothing is lost"
        found = (conditions.FALSE, "DoesNotAnswer", f"{world.spec.weaviate.url}: {problem}; {meaning}")
    else:
        found = (conditions.TRUE, "Answers", f"{world.spec.weaviate.url} takes what it is given")
    live = _live(world)
    if live is not None and live.get("status") == found[0] and world.spec.weaviate.url in str(live.get("message")):
        found = (found[0], found[1], str(live["message"]))
    return [conditions.condition(TYPE, *found, world.generation)]


def vector_news(world: MemoryServiceSnapshot, found: list[dict[str, Any]]) -> tuple[Notice, ...]:
    """An event when it goes, and one when it is back."""
    before = (_live(world) or {}).get("status")
    for item in found:
        if item["status"] == conditions.FALSE and before != conditions.FALSE:
            return (Notice("Warning", "VectorStoreAway", item["message"]),)
        if item["status"] == conditions.TRUE and before == conditions.FALSE:
            return (Notice("Normal", "VectorStoreBack", item["message"]),)
    return ()


def _live(world: MemoryServiceSnapshot) -> Any:
    return next((item for item in world.status.get("conditions") or () if item.get("type") == TYPE), None)
