"""Do the pods of a MemoryService know the budgets of all its agents?"""

from typing import Any

from learnloop_api.wire.memory import BUDGETS_ROOM
from learnloop_operator.core import conditions
from learnloop_operator.core.plan import Notice
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

TYPE, NO_ROOM = "AgentBudgets", "NoRoomForBudgets"


def agent_budgets(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """The condition; none where no agent has a budget of its own. It tells no number of agents: all of them look at
    each change of this status."""
    first = world.budgets.left_out_from
    if first is not None:
        return [conditions.condition(TYPE, conditions.FALSE, NO_ROOM, _full(world, first), world.generation)]
    if not world.budgets.agents:
        return []
    said = f"its pods read the budgets of its agents in ConfigMap {world.budgets_name}"
    return [conditions.condition(TYPE, conditions.TRUE, "Told", said, world.generation)]


def budget_news(world: MemoryServiceSnapshot) -> tuple[Notice, ...]:
    """A warning when there is no more room."""
    live = world.status.get("conditions") or ()
    known = any(item.get("type") == TYPE and item.get("reason") == NO_ROOM for item in live)
    found = [item for item in agent_budgets(world) if item["reason"] == NO_ROOM and not known]
    return tuple(Notice("Warning", NO_ROOM, item["message"]) for item in found)


def _full(world: MemoryServiceSnapshot, first: str) -> str:
    return (
        f"ConfigMap {world.budgets_name} is full ({BUDGETS_ROOM} bytes): LearningAgent {first} and those after it by "
        "name are held to spec.agentBudget alone; give some of them another MemoryService, or take their "
        "spec.memory.budget back"
    )
