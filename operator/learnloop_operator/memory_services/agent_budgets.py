"""Memory budgets and groups of the agents that name a MemoryService, as its pods read them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from learnloop_api.kinds.learning_agent import Memory
from learnloop_api.wire.memory import BUDGETS_ROOM, ToldAgent
from learnloop_operator.core.content_digests import canonical
from learnloop_operator.core.plan import Manifest


@dataclass(frozen=True, slots=True)
class DeliveredBudgets:
    """`budgets.json`, and who is not in it."""

    text: str
    agents: int
    """How many are in it."""
    left_out_from: str | None = None
    """Of all agents, by name, the first for which there was no room; nor was there for any after it."""


def budgets_of(service: str, agents: Iterable[Manifest]) -> dict[str, ToldAgent]:
    """Of these LearningAgents the budgets and groups of those that name the MemoryService, by name.

    One that this version cannot read is left out, which makes no agent forget more; its own status says what is wrong.
    """
    result = {str(item["metadata"]["name"]): _budget(service, item) for item in agents}
    return {name: budget for name, budget in result.items() if budget is not None}


def _budget(service: str, agent: Manifest) -> ToldAgent | None:
    text = (agent.get("spec") or {}).get("memory") or {}
    if not (text.get("budget") or text.get("group")) or (text.get("serviceRef") or {}).get("name") != service:
        return None
    try:
        memory = Memory.model_validate(text)
    except ValidationError:
        return None
    limits = memory.budget.told().model_dump() if memory.budget else {}
    return ToldAgent(**limits, group=memory.group)


def tell(namespace: str, budgets: Mapping[str, ToldAgent], room: int = BUDGETS_ROOM) -> DeliveredBudgets:
    """As many as fit into `room` bytes, by name, so that the same agents always give the same text."""
    head, tail = f'{{"namespace":{json.dumps(namespace)},"agents":{{', "}}"
    lines: list[str] = []
    left, out = room - len(head) - len(tail), None
    for name in sorted(budgets):
        line = f"{json.dumps(name)}:{canonical(budgets[name].model_dump(exclude_none=True, exclude_defaults=True))}"
        left -= len(line) + bool(lines)  # names and numbers are ASCII: a character is a byte
        if left < 0:
            out = name
            break
        lines.append(line)
    return DeliveredBudgets(f"{head}{','.join(lines)}{tail}", len(lines), out)
