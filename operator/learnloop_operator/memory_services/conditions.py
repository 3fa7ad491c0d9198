"""Conditions of a MemoryService besides Ready: budgets of its agents, its Weaviate, and Secrets that its pods wait for.

The operator may read no Secret: the kubelet's messages name the one that is missing.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from learnloop_api.wire.memory import BUDGETS_ROOM
from learnloop_operator.core import conditions
from learnloop_operator.core.plan import Notice
from learnloop_operator.memory_services import manifests as models
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

AGENT_BUDGETS, NO_ROOM = "AgentBudgets", "NoRoomForBudgets"


def agent_budgets(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """The condition; none where no agent has a budget of its own. It tells no number of agents: all of them look at
    each change of this status."""
    first = world.budgets.left_out_from
    if first is not None:
        return [conditions.condition(AGENT_BUDGETS, conditions.FALSE, NO_ROOM, _full(world, first), world.generation)]
    if not world.budgets.agents:
        return []
    text = f"its pods read the budgets of its agents in ConfigMap {world.budgets_name}"
    return [conditions.condition(AGENT_BUDGETS, conditions.TRUE, "Told", text, world.generation)]


def budget_news(world: MemoryServiceSnapshot) -> tuple[Notice, ...]:
    """A warning when the room is used up."""
    live = world.status.get("conditions") or ()
    previous = any(item.get("type") == AGENT_BUDGETS and item.get("reason") == NO_ROOM for item in live)
    result = [item for item in agent_budgets(world) if item["reason"] == NO_ROOM and not previous]
    return tuple(Notice("Warning", NO_ROOM, item["message"]) for item in result)


def _full(world: MemoryServiceSnapshot, first: str) -> str:
    return (
        f"ConfigMap {world.budgets_name} is full ({BUDGETS_ROOM} bytes): LearningAgent {first} and those after it by "
        "name are held to spec.agentBudget alone; give some of them another MemoryService, or take their "
        "spec.memory.budget back"
    )


VECTOR_STORE = "VectorStoreAvailable"
LONGEST_PROBLEM = 500


def vector_store(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """The condition; none where PostgreSQL does it all. While its status stays, so does its first sentence: a store
    that is away says so in many ways, and a reader learns nothing from the next."""
    if world.spec.weaviate is None:
        return []
    result: tuple[Literal["True", "False", "Unknown"], str, str]
    if world.degraded is None:
        result = (conditions.UNKNOWN, "NotAsked", "no ready pod of the service has said whether Weaviate answers")
    elif problem := world.degraded.get("vector store", "")[:LONGEST_PROBLEM]:
        meaning = "large agents are scanned, which is slower and finds the same; nothing is lost"
        result = (conditions.FALSE, "DoesNotAnswer", f"{world.spec.weaviate.url}: {problem}; {meaning}")
    else:
        result = (conditions.TRUE, "Answers", f"{world.spec.weaviate.url} takes what it is given")
    live = _live(world)
    if live is not None and live.get("status") == result[0] and world.spec.weaviate.url in str(live.get("message")):
        result = (result[0], result[1], str(live["message"]))
    return [conditions.condition(VECTOR_STORE, *result, world.generation)]


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
    return next((item for item in world.status.get("conditions") or () if item.get("type") == VECTOR_STORE), None)


_GONE = re.compile(r'secret "(?P<name>[a-z0-9][-a-z0-9.]*)" not found', re.IGNORECASE)
_NO_KEY = re.compile(
    r"couldn't find key (?P<key>[-._A-Za-z0-9]+) in Secret (?:[a-z0-9-]+/)?(?P<name>[a-z0-9][-a-z0-9.]*)"
)
_NO_ITEM = re.compile(r"references non-existent secret key: (?P<key>[-._A-Za-z0-9]+)")


@dataclass(frozen=True, slots=True)
class UnusableSecret:
    """A Secret, and what to do about it."""

    name: str
    sentence: str


def unusable_secret(world: MemoryServiceSnapshot) -> UnusableSecret | None:
    """The Secret that pods wait for; None where they wait for none."""
    text = world.complaint or ""
    gone, no_key, no_item = _GONE.search(text), _NO_KEY.search(text), _NO_ITEM.search(text)
    if gone:
        name, result = gone["name"], "does not exist"
    elif no_key:
        name, result = no_key["name"], f"has no key {no_key['key']}"
    elif no_item:
        name, result = world.credentials_name, f"has no key {no_item['key']}"
    else:
        return None
    field, key = _named(world).get(name, ("", ""))
    where = f"{field}: Secret {name}" if field else f"Secret {name}"
    fix = f"create it with key {key}" if key else "delete it, and the operator makes another"
    return UnusableSecret(
        name, f"{where} {result} in namespace {world.namespace}: {fix}; pods that wait for it then start"
    )


def _named(world: MemoryServiceSnapshot) -> dict[str, tuple[str, str]]:
    """Secrets that the user names: field and key."""
    named = {}
    if own := world.spec.dsn_secret_ref:
        named[own.name] = ("spec.dsnSecretRef", own.key)
    weaviate = world.spec.weaviate
    if weaviate is not None and (key := weaviate.api_key_secret_ref):
        named[key.name] = ("spec.weaviate.apiKeySecretRef", key.key)
    named |= {ref.name: (field, ref.key) for field, ref in models.model_keys(world.spec).items() if ref}
    return named
