"""What a dry-run found: how far two rankings agree, who gains, who loses, and the episodes that moved most."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.rewards.rank_statistics import Floats, percentiles, spearman

TOP = 10
FEWEST = 5  # episodes of an agent or task below which a mean says nothing
NOTICEABLE = 1.0  # percentile points


@dataclass
class EpisodeColumns:
    """What is kept of each episode: 32 bytes. Agents and tasks by their number in the list of names."""

    before: "array[float]" = field(default_factory=lambda: array("d"))
    after: "array[float]" = field(default_factory=lambda: array("d"))
    agent: "array[int]" = field(default_factory=lambda: array("i"))
    task: "array[int]" = field(default_factory=lambda: array("i"))
    seq: "array[int]" = field(default_factory=lambda: array("q"))
    agents: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    coverage: float = 0.0
    skipped: int = 0


@dataclass(frozen=True)
class Change:
    """Mean change of percentile of an agent's or a task's episodes, in percentile points."""

    name: str
    change: float
    trajectories: int


@dataclass(frozen=True)
class Moved:
    """One episode and its percentile under both policies."""

    place: int
    agent: str
    task: str
    before: float
    after: float
    trajectory_id: str | None = None


@dataclass(frozen=True)
class DryRunAnswer:
    """The answer to POST /api/v1/rewards/dry-run.

    Attributes:
        trajectories: episodes compared.
        skipped: episodes whose agent has no policy in force.
        truncated: the limit was reached; older episodes were not looked at.
        correlation: Spearman's rank correlation with the policies in force; None where there is nothing to rank.
        coverage: mean share of the new policy's weights that the episodes have measurements for.
        sentence: the above in words.
    """

    trajectories: int
    skipped: int
    truncated: bool
    correlation: float | None
    coverage: float | None
    agents_gain: tuple[Change, ...]
    agents_lose: tuple[Change, ...]
    tasks_gain: tuple[Change, ...]
    tasks_lose: tuple[Change, ...]
    most_changed: tuple[Moved, ...]
    sentence: str

    def named(self, identities: Sequence[str | None]) -> "DryRunAnswer":
        """The same with the ids of the episodes that moved most; one deleted meanwhile has none."""
        pairs = zip(self.most_changed, identities, strict=True)
        return replace(self, most_changed=tuple(replace(item, trajectory_id=identity) for item, identity in pairs))


def report(columns: EpisodeColumns, *, truncated: bool) -> DryRunAnswer:
    """Compares the two rankings."""
    before, after = np.frombuffer(columns.before), np.frombuffer(columns.after)
    count = len(before)
    old, new = percentiles(before), percentiles(after)
    change = new - old
    agents = _changes(list(columns.agents), np.frombuffer(columns.agent, dtype=np.int32), change)
    tasks = _changes(list(columns.tasks), np.frombuffer(columns.task, dtype=np.int32), change)
    correlation = spearman(before, after)
    agent_names, task_names = list(columns.agents), list(columns.tasks)
    places = [int(place) for place in np.argsort(-np.abs(change), kind="stable")[:TOP] if change[place] != 0]
    moved = tuple(
        Moved(
            place,
            agent_names[columns.agent[place]],
            task_names[columns.task[place]],
            round(float(old[place]), 2),
            round(float(new[place]), 2),
        )
        for place in places
    )
    return DryRunAnswer(
        trajectories=count,
        skipped=columns.skipped,
        truncated=truncated,
        correlation=None if correlation is None else round(correlation, 4),
        coverage=round(columns.coverage / count, 4) if count else None,
        agents_gain=_gainers(agents),
        agents_lose=_losers(agents),
        tasks_gain=_gainers(tasks),
        tasks_lose=_losers(tasks),
        most_changed=moved,
        sentence=_sentence(count, correlation, agents, tasks),
    )


def _changes(names: list[str], group: NDArray[np.int32], change: Floats) -> list[Change]:
    counts = np.bincount(group, minlength=len(names))
    sums = np.bincount(group, weights=change, minlength=len(names))
    return [
        Change(name, round(float(total / count), 2), int(count))
        for name, total, count in zip(names, sums, counts, strict=True)
        if count >= FEWEST
    ]


def _gainers(changes: list[Change]) -> tuple[Change, ...]:
    gaining = [item for item in changes if item.change >= NOTICEABLE]
    return tuple(sorted(gaining, key=lambda item: (-item.change, item.name))[:TOP])


def _losers(changes: list[Change]) -> tuple[Change, ...]:
    losing = [item for item in changes if item.change <= -NOTICEABLE]
    return tuple(sorted(losing, key=lambda item: (item.change, item.name))[:TOP])


def _sentence(count: int, correlation: float | None, agents: list[Change], tasks: list[Change]) -> str:
    if not count:
        return "no logged episode of an agent with a policy in force: nothing to compare"
    if correlation is None:
        return f"over {count} episodes one of the policies gives all the same reward: it ranks nothing"
    parts = [f"rank correlation {correlation:.2f} over {count} episodes"]
    for what, changes in (("agent", agents), ("task", tasks)):
        if best := _gainers(changes):
            parts.append(f"{what} {best[0].name[:60] or '(unnamed)'} gains most ({best[0].change:+.1f} points)")
        if worst := _losers(changes):
            parts.append(f"{what} {worst[0].name[:60] or '(unnamed)'} loses most ({worst[0].change:+.1f} points)")
    return "; ".join(parts)
