"""What a dry-run found: how far two rankings agree, who gains, who loses, and the episodes that moved most."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import LIMIT, Episode, evaluate, needs_log
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_hacking import Floats, percentiles, spearman
from learnloop_dataplane.rewards.reward_worker import LOG, NO_LOG, SCORES, read_episode
from learnloop_dataplane.warehouse.clickhouse import ClickHouse

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


PAGE = 1000
MAX_TASKS = 10_000
OTHER_TASKS = "(other tasks)"

_IN_FORCE = """
SELECT a.name, p.spec FROM agents a JOIN reward_policy_revisions p
    ON p.namespace = a.namespace AND p.name = a.reward_policy AND p.revision = a.reward_policy_revision
WHERE a.namespace = $1 AND a.registered_at IS NOT NULL AND ($2::text[] IS NULL OR a.name = ANY($2))
"""
# Newest first, so that a limit keeps what is most like what the policy will meet.
_PAGE = """
SELECT t.trajectory_id, t.seq, t.received_at, t.agent_id, t.task, t.episode_return, t.success, t.steps,
    t.outcome_values, {log} AS log, {scores} AS scores
FROM trajectories t
WHERE t.namespace = $1 AND ($2::text[] IS NULL OR t.agent_id = ANY($2))
    AND t.received_at >= $3 AND (t.received_at, t.trajectory_id) < ($4, $5)
ORDER BY t.received_at DESC, t.trajectory_id DESC LIMIT $6
"""
# Those of the revision that rewarded the episode: a component of the same name asks its evaluator the same.
_SCORES = SCORES.format(policy="c.reward_policy", revision="t.reward_policy_revision")
_NAMES = """
SELECT t.seq, t.trajectory_id FROM unnest($2::text[], $3::bigint[]) AS w(agent, seq)
JOIN trajectories t ON t.namespace = $1 AND t.agent_id = w.agent AND t.seq = w.seq
"""

_EPISODE = (
    "trajectory_id",
    "seq",
    "received_at",
    "agent_id",
    "task",
    "episode_return",
    "success",
    "steps",
    "outcome_values",
)
Position = tuple[datetime, str]  # of the oldest episode seen so far: when it was received, and its id


@dataclass(frozen=True)
class Window:
    """Which episodes to look at: the newest `limit` received in [since, until), of these agents (None: of all)."""

    since: datetime
    until: datetime
    limit: int
    agents: Sequence[str] | None = None


class DryRun:
    """One at a time in a process: what serves agents keeps its core.

    PostgreSQL has the newest episodes and each one it has not yet forgotten; what is older comes from the warehouse.
    """

    def __init__(self, db: Database, warehouse: ClickHouse | None = None, cipher: StepCipher = PLAIN) -> None:
        self._cipher = cipher
        self._db = db
        self._warehouse = warehouse
        self._lock = asyncio.Lock()

    async def run(self, namespace: str, spec: RewardPolicySpec, window: Window) -> DryRunAnswer:
        """Streams through the window in pages and compares.

        Raises:
            ApiError: 429, another one is running.
            Unavailable: PostgreSQL went away; nothing is kept of the part that was done.
        """
        if self._lock.locked():
            raise ApiError(429, "another dry-run is at work in this process; send it again later", retry_after=10)
        async with self._lock:
            columns, truncated = await self._read(namespace, spec, window)
            found = await asyncio.to_thread(report, columns, truncated=truncated)
            places = [item.place for item in found.most_changed]
            names = await self._identify(namespace, columns, places)
            return found.named(names)

    async def _read(self, namespace: str, spec: RewardPolicySpec, window: Window) -> tuple[EpisodeColumns, bool]:
        agents = list(window.agents) if window.agents is not None else None
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_IN_FORCE, namespace, agents)
        in_force = {row["name"]: RewardPolicySpec.model_validate_json(row["spec"]) for row in rows}
        steps = any(map(needs_log, (spec, *in_force.values())))
        columns, seen = EpisodeColumns(), 0
        position: Position = (window.until, "")
        for source in (self._recent, self._older):
            while seen < window.limit:
                size = min(PAGE, window.limit - seen)
                page = await source(namespace, agents, window.since, position, size, steps=steps)
                page = await self._cipher.open_rows(self._db, namespace, page)
                await asyncio.to_thread(rank_page, columns, page, spec, in_force)
                seen += len(page)
                if page:
                    position = (page[-1]["received_at"], page[-1]["trajectory_id"])
                if len(page) < size:
                    break
            else:
                return columns, True
        return columns, False

    async def _recent(
        self, namespace: str, agents: list[str] | None, since: datetime, position: Position, size: int, *, steps: bool
    ) -> Sequence[Any]:
        query = _PAGE.format(log=LOG if steps else NO_LOG, scores=_SCORES)
        async with self._db.tenant(namespace) as connection:
            rows: Sequence[Any] = await connection.fetch(query, namespace, agents, since, *position, size)
        return rows

    async def _older(
        self, namespace: str, agents: list[str] | None, since: datetime, position: Position, size: int, *, steps: bool
    ) -> Sequence[Any]:
        if self._warehouse is None:
            return []
        until, before = position
        wanted = (*_EPISODE, "log") if steps else _EPISODE
        page = await self._warehouse.page(
            namespace, wanted, agents=agents, since=since, until=until, before=before, size=size
        )
        return [{"log": None, **row} for row in page]

    async def _identify(self, namespace: str, columns: EpisodeColumns, places: list[int]) -> list[str | None]:
        names = list(columns.agents)
        agents, numbers = [names[columns.agent[place]] for place in places], [columns.seq[place] for place in places]
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_NAMES, namespace, agents, numbers)
        known = {row["seq"]: row["trajectory_id"] for row in rows}
        if self._warehouse and (unknown := sorted(set(numbers) - known.keys())):
            known |= await self._warehouse.names(namespace, unknown)
        return [known.get(number) for number in numbers]


def rank_page(
    columns: EpisodeColumns, page: Sequence[Any], spec: RewardPolicySpec, in_force: Mapping[str, RewardPolicySpec]
) -> None:
    """Adds the episodes of one page; those of agents without a policy in force are only counted."""
    for row in page:
        current = in_force.get(row["agent_id"])
        if current is None:
            columns.skipped += 1
            continue
        episode = read_episode(row)
        columns.before.append(_value(current, episode)[0])
        value, coverage = _value(spec, episode)
        columns.after.append(value)
        columns.coverage += coverage
        columns.agent.append(columns.agents.setdefault(row["agent_id"], len(columns.agents)))
        task = row["task"] if row["task"] in columns.tasks or len(columns.tasks) < MAX_TASKS else OTHER_TASKS
        columns.task.append(columns.tasks.setdefault(task, len(columns.tasks)))
        columns.seq.append(row["seq"])


def _value(spec: RewardPolicySpec, episode: Episode) -> tuple[float, float]:
    worth = evaluate(spec, episode)
    return (-2 * LIMIT if worth.broken else worth.raw), worth.coverage
