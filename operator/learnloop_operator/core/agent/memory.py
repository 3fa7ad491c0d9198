"""An agent's memory budget: what the data plane is to be told of it, and what the status tells."""

from typing import Any

from learnloop_api.kinds.learning_agent import AgentMemory
from learnloop_api.kinds.memory_budget import AgentMemoryBudget
from learnloop_api.wire.memory import MemoryBudget, MemoryUse
from learnloop_operator.core.agent.world import World
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN, condition
from learnloop_operator.core.plan import Call, Notice
from learnloop_operator.core.times import seconds_since, stamp

CONDITION, PINNED_ABOVE = "MemoryBudget", "PinnedAboveBudget"
STEP = 5
"""Percent of the budget: what changes less is no news."""
STALE_SECONDS = 600.0
"""Older figures are told anew, however little has changed."""


def wanted(budget: AgentMemoryBudget | None) -> MemoryBudget | None:
    """The budget of the spec, as the data plane takes it."""
    if budget is None:
        return None
    types = budget.per_type.model_dump(exclude_none=True) if budget.per_type else {}
    return MemoryBudget(memories=budget.memories, bytes=budget.bytes, per_type=types)


def tell(world: World) -> tuple[Call, ...]:
    """Whatever makes the data plane's budget that of the spec; nothing while that is not known."""
    budget, path = wanted(world.spec.memory.budget), f"/api/v1/agents/{world.name}/memory-budget"
    own = world.memory_use.own if world.memory_use else None
    if world.memory_problem or own == budget:
        return ()
    if budget is None:
        return (Call("DELETE", path),)
    return (Call("PUT", path, budget.model_dump(mode="json", exclude_none=True)),)


def shown(world: World) -> AgentMemory | None:
    """The figures of the status: those that are there already unless there is news."""
    old, use = world.before.memory, world.memory_use
    if world.spec.memory.budget is None:
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


def judge(world: World) -> list[dict[str, Any]]:
    """The condition MemoryBudget of an agent that has one, or whose budget could not be taken back yet."""
    budget, use = world.spec.memory.budget, world.memory_use
    if world.memory_problem:
        return [condition(CONDITION, UNKNOWN, "DataPlaneUnavailable", world.memory_problem, world.generation)]
    if budget is None:
        return []
    if use is None or use.own != wanted(budget) or use.memories is None:
        said = "the data plane has not measured yet what the agent keeps"
        return [condition(CONDITION, UNKNOWN, "NotMeasured", said, world.generation)]
    if use.pinned_above:
        return [condition(CONDITION, FALSE, PINNED_ABOVE, _pinned(use), world.generation)]
    said = f"at most {_limits(use.budget)}; above, what is worth least is forgotten"
    return [condition(CONDITION, TRUE, "WithinBudget", said, world.generation)]


def news(world: World) -> tuple[Notice, ...]:
    """A warning when pinned memories have come to exceed the budget."""
    known = any(item.type == CONDITION and item.reason == PINNED_ABOVE for item in world.before.conditions)
    found = [item for item in judge(world) if item["reason"] == PINNED_ABOVE and not known]
    return tuple(Notice("Warning", PINNED_ABOVE, item["message"]) for item in found)


def _pinned(use: MemoryUse) -> str:
    fields = ", ".join(f"spec.memory.budget.{_field(name)}" for name in use.pinned_above)
    return f"{use.pinned} pinned memories alone exceed {fields}, and pinned ones stay: unpin some, or raise it"


def _field(name: str) -> str:
    return "size" if name == "bytes" else name.replace("per_type", "perType")


def _limits(budget: MemoryBudget) -> str:
    parts = [f"{budget.memories} memories"] if budget.memories is not None else []
    parts += [f"{budget.bytes} bytes"] if budget.bytes is not None else []
    return ", ".join(parts + [f"{most} {kind} ones" for kind, most in sorted(budget.per_type.items())])


def _share(use: MemoryUse) -> str | None:
    pairs = ((use.memories, use.budget.memories), (use.bytes, use.budget.bytes))
    shares = [100 * (held or 0) / limit for held, limit in pairs if limit]
    return f"{STEP * round(max(shares) / STEP)}%" if shares else None
