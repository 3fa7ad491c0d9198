"""A RewardPolicy tried on the logged history: the same episodes ranked by it and by the policy in force.

Rewards are compared by rank, because two policies need not share a scale: an episode's percentile among all episodes
looked at, under the one and under the other. Values before normalisation are ranked (normalisation takes away just
the difference between agents that is asked for), and an episode that breaks a safety constraint ranks last.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import LIMIT, Episode, evaluate, needs_log
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.dry_run_report import DryRunAnswer, EpisodeColumns, report
from learnloop_dataplane.rewards.pending_episodes import LOG, NO_LOG, SCORES
from learnloop_dataplane.rewards.reward_worker import read_episode
from learnloop_dataplane.warehouse.clickhouse import ClickHouse

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
