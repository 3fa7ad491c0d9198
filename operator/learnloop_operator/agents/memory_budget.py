"""An agent's memory budget: what the data plane is sent, and what the status shows.

Pods of a MemoryService read their agents' budgets themselves (docs/decisions/0022-scope-of-the-operators-token.md)."""

from typing import Any, Literal

from learnloop_api.kinds.learning_agent import AgentMemory, LearningAgentSpec, LearningAgentStatus
from learnloop_api.wire.memory import MemoryBudget, MemoryUse, budgets_config_map
from learnloop_operator.agents.snapshot import AgentSnapshot, MemoryHome
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition
from learnloop_operator.core.plan import Call, Notice
from learnloop_operator.core.times import seconds_since, stamp

CONDITION, PINNED_ABOVE = "MemoryBudget", "PinnedAboveBudget"
STEP = 5
"""Percent of the budget: smaller changes are not written."""
STALE_SECONDS = 600.0
"""Older figures are written again even without a change."""


def wanted(spec: LearningAgentSpec) -> MemoryBudget | None:
    """The budget that the data plane is to keep; None where a MemoryService does."""
    budget = None if spec.memory.service_ref else spec.memory.budget
    return budget.told() if budget else None


def asks(spec: LearningAgentSpec, before: LearningAgentStatus) -> bool:
    """Whether the data plane has a budget of this agent to keep, or may have one that is still to be removed."""
    return wanted(spec) is not None or any(
        item.type == CONDITION and item.reason not in REASONS for item in before.conditions
    )


def tell(world: AgentSnapshot) -> tuple[Call, ...]:
    """Whatever makes the data plane's budget that of the spec; nothing while that is not known."""
    budget, path = wanted(world.spec), f"/api/v1/agents/{world.name}/memory-budget"
    own = world.memory_use.own if world.memory_use else None
    if world.memory_problem or own == budget:
        return ()
    if budget is None:
        return (Call("DELETE", path),)
    return (Call("PUT", path, budget.model_dump(mode="json", exclude_none=True)),)


def shown(world: AgentSnapshot) -> AgentMemory | None:
    """The figures of the status: those that are there already unless there is news."""
    old, use = world.before.memory, world.memory_use
    if wanted(world.spec) is None:
        return None
    if use is None or use.memories is None or use.bytes is None:
        return old
    new = AgentMemory(
        memories=use.memories,
        bytes=use.bytes,
        used=_share(use),
        forgotten=use.forgotten,
        last_forgotten=use.last_forgotten or None,
        last_forgotten_at=stamp(use.last_forgotten_at) if use.last_forgotten_at else None,
        observed_at=world.time,
    )
    if old is None or old.used != new.used:
        return new
    same = old.model_copy(update={"observed_at": new.observed_at}) == new
    return old if same or seconds_since(old.observed_at, world.now) < STALE_SECONDS else new


def judge(world: AgentSnapshot) -> list[dict[str, Any]]:
    """The condition MemoryBudget of an agent that has one, or whose budget could not be removed yet."""
    budget, use = wanted(world.spec), world.memory_use
    if world.memory_problem:
        return [condition(CONDITION, UNKNOWN, "DataPlaneUnavailable", world.memory_problem, world.generation)]
    if world.spec.memory.service_ref and world.spec.memory.budget:
        result = _kept_by_service(world, world.spec.memory.service_ref.name, world.spec.memory.budget.told())
        return [condition(CONDITION, *result, world.generation)]
    if budget is None:
        return []
    if use is None or use.own != budget or use.memories is None:
        text = "the data plane has not measured yet what the agent keeps"
        return [condition(CONDITION, UNKNOWN, "NotMeasured", text, world.generation)]
    if use.pinned_above:
        return [condition(CONDITION, FALSE, PINNED_ABOVE, _pinned(use), world.generation)]
    text = f"at most {use.budget.sentence()}; above, what is worth least is forgotten"
    return [condition(CONDITION, TRUE, "WithinBudget", text, world.generation)]


def news(world: AgentSnapshot) -> tuple[Notice, ...]:
    """A warning when pinned memories have come to exceed the budget."""
    previous = any(item.type == CONDITION and item.reason == PINNED_ABOVE for item in world.before.conditions)
    result = [item for item in judge(world) if item["reason"] == PINNED_ABOVE and not previous]
    return tuple(Notice("Warning", PINNED_ABOVE, item["message"]) for item in result)


def _pinned(use: MemoryUse) -> str:
    fields = ", ".join(f"spec.memory.budget.{_field(name)}" for name in use.pinned_above)
    return f"{use.pinned} pinned memories alone exceed {fields}, and pinned ones stay: unpin some, or raise it"


def _field(name: str) -> str:
    return "size" if name == "bytes" else name.replace("per_type", "perType")


def _share(use: MemoryUse) -> str | None:
    pairs = ((use.memories, use.budget.memories), (use.bytes, use.budget.bytes))
    shares = [100 * (held or 0) / limit for held, limit in pairs if limit]
    return f"{STEP * round(max(shares) / STEP)}%" if shares else None


MISSING, NOT_TOLD, NO_ROOM, KEPT = "MemoryServiceMissing", "NotToldYet", "NoRoom", "KeptByMemoryService"
REASONS = frozenset({MISSING, NOT_TOLD, NO_ROOM, KEPT})


def _kept_by_service(
    world: AgentSnapshot, service: str, budget: MemoryBudget
) -> tuple[Literal["True", "False", "Unknown"], str, str]:
    """Status, reason and message."""
    home = world.memory or MemoryHome()
    if not home.exists:
        return UNKNOWN, MISSING, f"no MemoryService {service} keeps it: there is none"
    if home.left_out_from is not None and world.name >= home.left_out_from:
        return FALSE, NO_ROOM, _full(service)
    if not home.tells_budgets:
        return UNKNOWN, NOT_TOLD, f"MemoryService {service} has not told its pods yet"
    text = f"MemoryService {service} keeps it, or less where its agentBudget is smaller: at most {budget.sentence()}"
    return TRUE, KEPT, f"{text}; how much of it is used is in that service's REST interface and metrics"


def _full(service: str) -> str:
    return (
        f"ConfigMap {budgets_config_map(service)} has no room for it, so MemoryService {service} holds this agent to "
        "its agentBudget alone: name another MemoryService, or take other agents' budgets back"
    )
