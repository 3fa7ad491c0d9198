"""An agent's memory budget where a MemoryService keeps it: what the condition says of it.

The operator sends nothing there (docs/decisions/0022-scope-of-the-operators-token.md): the service's pods read the
budget, and how much of it is used they tell whoever asks them.
"""

from typing import Literal

from learnloop_api.wire.memory import MemoryBudget, budgets_config_map
from learnloop_operator.agents.snapshot import AgentSnapshot, MemoryHome
from learnloop_operator.core.conditions import FALSE, TRUE, UNKNOWN

MISSING, NOT_TOLD, NO_ROOM, KEPT = "MemoryServiceMissing", "NotToldYet", "NoRoom", "KeptByMemoryService"
REASONS = frozenset({MISSING, NOT_TOLD, NO_ROOM, KEPT})


def judge(
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
    said = f"MemoryService {service} keeps it, or less where its agentBudget is smaller: at most {budget.sentence()}"
    return TRUE, KEPT, f"{said}; how much of it is used is in that service's REST interface and metrics"


def _full(service: str) -> str:
    return (
        f"ConfigMap {budgets_config_map(service)} has no room for it, so MemoryService {service} holds this agent to "
        "its agentBudget alone: name another MemoryService, or take other agents' budgets back"
    )
