"""Distillation of many episodes into a few memories of a task: how it goes (semantic), what works best (procedural)."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

from learnloop_dataplane.memories.memory_store import PEOPLE, NewMemory
from learnloop_dataplane.recall.memory_types import MemoryType

FEWEST = 5
WAYS = ("approach", "strategy", "action", "policy_revision")  # what an episode may say about how it was done
MAX_SOURCES = 100
MAX_PEOPLE = 1000
"""Where a distilled memory's provenance has the pseudonyms of those whose episodes it counts; erasures look there."""


@dataclass(frozen=True)
class Episode:
    """One episodic memory about a task: its result, how it was done (`way`), its person's pseudonym, and its text."""

    id: str
    task: str
    success: bool | None
    returned: float | None
    way: tuple[str, str] | None
    person: str = ""
    text: str = ""


class Distiller(Protocol):
    """Turns the episodes of one agent into memories; each names its episodes and their people in `provenance`."""

    async def distil(self, agent: str, episodes: Sequence[Episode]) -> list[NewMemory]:
        """New semantic and procedural memories. `origin` must be the same for the same subject: it replaces the old.

        Args:
            episodes: newest first.
        """
        ...


def episode(identity: str, content: dict[str, Any], person: str = "") -> Episode | None:
    """Reads an episodic memory's content; None when it names no task."""
    task = content.get("task")
    if not isinstance(task, str) or not task:
        return None
    success = content.get("success")
    if not isinstance(success, bool):
        success = {"succeeded": True, "failed": False}.get(str(content.get("outcome")))
    returned = content.get("return", content.get("reward"))
    way = next(((name, str(content[name])[:200]) for name in WAYS if content.get(name)), None)
    number = float(returned) if isinstance(returned, int | float) and not isinstance(returned, bool) else None
    return Episode(identity, task, success, number, way, person, _text_of(content))


def _text_of(content: dict[str, Any]) -> str:
    """The text that an agent stored; of a memory made from an episode, without the first line, which has the result."""
    text = content.get("text")
    if not isinstance(text, str):
        return ""
    return text.partition("\n")[2] if content.get("trajectory_id") else text


class CountingDistiller:
    """Success rates with a lower confidence bound: one lucky episode makes none."""

    async def distil(self, agent: str, episodes: Sequence[Episode]) -> list[NewMemory]:
        """See Distiller. Tasks with fewer than five episodes say nothing yet."""
        return await asyncio.to_thread(self._counted, agent, episodes)

    def _counted(self, agent: str, episodes: Sequence[Episode]) -> list[NewMemory]:
        tasks: dict[str, list[Episode]] = defaultdict(list)
        for item in episodes:
            tasks[item.task].append(item)
        memories: list[NewMemory] = []
        for task, items in sorted(tasks.items()):
            if len(items) >= FEWEST:
                memories.append(_fact(agent, task, items))
                memories += _procedure(agent, task, items)
        return memories


def _fact(agent: str, task: str, items: list[Episode]) -> NewMemory:
    judged = [item.success for item in items if item.success is not None]
    returns = [item.returned for item in items if item.returned is not None]
    text = f"{task}: {len(items)} episodes"
    content: dict[str, Any] = {"task": task, "episodes": len(items)}
    if judged:
        content["success_rate"] = round(sum(judged) / len(judged), 4)
        text += f", {sum(judged)} of {len(judged)} succeeded"
    if returns:
        content["return_mean"] = round(sum(returns) / len(returns), 4)
        text += f", mean return {content['return_mean']:g}, best {max(returns):g}"
    return distilled(agent, "semantic", task, {"text": text} | content, items)


def _procedure(agent: str, task: str, items: list[Episode]) -> list[NewMemory]:
    ways: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for item in items:
        if item.way and item.success is not None:
            ways[item.way].append(item.success)
    bounds = {way: lower_bound(sum(results), len(results)) for way, results in ways.items()}
    if not bounds:
        return []
    best = max(sorted(bounds), key=lambda way: bounds[way])
    results = ways[best]
    if len(results) < FEWEST or not any(results):
        return []
    name, how = best
    text = f"{task}: {name.replace('_', ' ')} {how} works best, {sum(results)} of {len(results)} succeeded"
    content = {"text": text, "task": task, name: how, "success_rate": round(sum(results) / len(results), 4)}
    used = [item for item in items if item.way == best]
    return [distilled(agent, "procedural", task, content, used)]


def lower_bound(successes: int, trials: int, z: float = 1.645) -> float:
    """Wilson's lower bound of a rate (1927), one-sided 95 %."""
    if not trials:
        return 0.0
    rate = successes / trials
    middle = rate + z * z / (2 * trials)
    spread = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return (middle - spread) / (1 + z * z / trials)


def distilled(
    agent: str, kind: MemoryType, subject: str, content: dict[str, Any], items: Sequence[Episode]
) -> NewMemory:
    """A memory made of these episodes; `subject` is what it replaces the older one by."""
    people = sorted({item.person for item in items if item.person})
    return NewMemory(
        agent,
        kind,
        content,
        importance=0.7,
        source="consolidation",
        origin=f"distilled/{kind}/{subject}"[:256],
        provenance={
            "episodes": len(items),
            "from": [item.id for item in items[:MAX_SOURCES]],
            PEOPLE: people[:MAX_PEOPLE],
        },
    )
