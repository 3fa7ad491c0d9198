"""Budgets that LearningAgents give themselves, as the operator tells them: a file that the kubelet keeps up to date."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from learnloop_api.wire.memory import BUDGETS_ROOM, AgentBudgets, MemoryBudget
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.strict_json import StrictReader

log = logging.getLogger(__name__)
_NONE: Mapping[str, MemoryBudget] = {}


class ToldBudgets:
    """The newest valid content. A file that is missing or wrong is logged and counted, and changes nothing.

    Args:
        path: None: nobody tells anything.
    """

    def __init__(self, path: Path | None, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self._reader = StrictReader(AgentBudgets)
        self._told: AgentBudgets | None = None
        self._seen: bytes | None = None
        self._refused = ""

    def of(self, namespace: str) -> Mapping[str, MemoryBudget]:
        """By agent."""
        return self._told.agents if self._told is not None and self._told.namespace == namespace else _NONE

    def groups(self, namespace: str) -> Mapping[str, str]:
        """The group of each agent that is in one."""
        if self._told is None or self._told.namespace != namespace:
            return {}
        return {agent: told.group for agent, told in self._told.agents.items() if told.group is not None}

    async def look(self) -> None:
        """Reads the file; never raises."""
        if self._path is None:
            return
        try:
            await asyncio.to_thread(self._read, self._path)
        except (OSError, ValueError) as error:
            self._metrics.budgets_refused.inc()
            said = _sentence(error)
            if said != self._refused:
                log.error("budgets of agents in %s refused, the last good ones hold on: %s", self._path, said)
            self._refused = said
        else:
            self._refused = ""

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            found = file.read(BUDGETS_ROOM + 1)
        if len(found) > BUDGETS_ROOM:
            raise ValueError(f"more than {BUDGETS_ROOM} bytes")
        if found != self._seen:
            self._told = self._reader.read(found)
            self._seen = found


def _sentence(error: Exception) -> str:
    if isinstance(error, ValidationError):
        items = error.errors(include_url=False, include_input=False)[:3]
        return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in items)[:500]
    return (error.strerror if isinstance(error, OSError) else None) or str(error)[:500]
