"""Dry run of a new reward policy: ranks recorded episodes by it and by the policies in force, and compares the two."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import LIMIT, Episode, evaluate, needs_log
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import Window, pages, read_episode

Floats = NDArray[np.float64]


def midranks(values: Floats) -> Floats:
    """Ranks from 1, ties share the mean of theirs. Shape (n,) to shape (n,)."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = (last - (counts - 1) / 2).astype(np.float64)
    return means[group]


def percentiles(values: Floats) -> Floats:
    """Share of the values that are lower, ties count half, in percent: strictly between 0 and 100."""
    return (midranks(values) - 0.5) * (100.0 / max(1, len(values)))


def spearman(one: Floats, other: Floats) -> float | None:
    """Rank correlation of two measurements of the same things, -1 to 1 (C. Spearman, 1904).

    None with fewer than two things, or where one of the measurements is the same for all.
    """
    if len(one) < 2:
        return None
    first, second = midranks(one), midranks(other)
    first, second = first - first.mean(), second - second.mean()
    spread = float(np.sqrt((first @ first) * (second @ second)))
    return None if spread == 0 else float(np.clip((first @ second) / spread, -1.0, 1.0))


FEWEST_OF_AGENT = 5  # episodes of an agent below which a mean says nothing
NOTICEABLE = 1.0  # percentile points


@dataclass
class Rankings:
    """Columns with one entry for each episode."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    coverage: float = 0.0
    skipped: int = 0


@dataclass(frozen=True)
class DryRunAnswer:
    """The answer to POST /api/v1/rewards/dry-run.

    Attributes:
        trajectories: episodes compared.
        skipped: episodes whose agent has no policy in force.
        truncated: the limit was reached; older episodes were not looked at.
        correlation: Spearman's rank correlation with the policies in force; None where there is nothing to rank.
        coverage: mean share of the new policy's weights that the episodes have measurements for.
        sentence: the above in words, with the agents that gain and lose most.
    """

    trajectories: int
    skipped: int
    truncated: bool
    correlation: float | None
    coverage: float | None
    sentence: str


def ranking_report(rankings: Rankings, *, truncated: bool) -> DryRunAnswer:
    """Compares the two rankings."""
    before, after = np.array(rankings.before), np.array(rankings.after)
    correlation, count = spearman(before, after), len(before)
    changes = _changes(rankings.agents, percentiles(after) - percentiles(before))
    return DryRunAnswer(
        trajectories=count,
        skipped=rankings.skipped,
        truncated=truncated,
        correlation=None if correlation is None else round(correlation, 4),
        coverage=round(rankings.coverage / count, 4) if count else None,
        sentence=_ranking_sentence(count, correlation, changes),
    )


def _changes(agents: Sequence[str], change: Floats) -> list[tuple[float, str]]:
    """Mean change of percentile of each agent with enough episodes, the greatest loss first."""
    names, group = np.unique(agents, return_inverse=True)
    counts = np.bincount(group, minlength=len(names))
    sums = np.bincount(group, weights=change, minlength=len(names))
    means = zip(names, sums, counts, strict=True)
    return sorted((float(total / count), str(name)) for name, total, count in means if count >= FEWEST_OF_AGENT)


def _ranking_sentence(count: int, correlation: float | None, changes: Sequence[tuple[float, str]]) -> str:
    if not count:
        return "no logged episode of an agent with a policy in force: nothing to compare"
    if correlation is None:
        return f"over {count} episodes one of the policies gives all the same reward: it ranks nothing"
    parts = [f"rank correlation {correlation:.2f} over {count} episodes"]
    if changes and changes[-1][0] >= NOTICEABLE:
        parts.append(f"agent {changes[-1][1]} gains most ({changes[-1][0]:+.1f} points)")
    if changes and changes[0][0] <= -NOTICEABLE:
        parts.append(f"agent {changes[0][1]} loses most ({changes[0][0]:+.1f} points)")
    return "; ".join(parts)


_IN_FORCE = """
SELECT a.name, p.spec FROM agents a JOIN reward_policy_revisions p
    ON p.namespace = a.namespace AND p.name = a.reward_policy AND p.revision = a.reward_policy_revision
WHERE a.namespace = $1 AND a.registered_at IS NOT NULL AND ($2::text[] IS NULL OR a.name = ANY($2))
"""


class DryRun:
    """Compares policies over the episodes that PostgreSQL still has; one at a time in a process."""

    def __init__(self, db: Database, cipher: data_keys.StepCipher = data_keys.PLAIN) -> None:
        self._cipher = cipher
        self._db = db
        self._lock = asyncio.Lock()

    async def run(self, namespace: str, spec: RewardPolicySpec, window: Window) -> DryRunAnswer:
        """Reads the window in pages and compares; keeps nothing.

        Raises:
            ApiError: 429, another one is running.
        """
        if self._lock.locked():
            raise errors.ApiError(
                429, "another dry-run is at work in this process; send it again later", retry_after=10
            )
        async with self._lock:
            agents = list(window.agents) if window.agents is not None else None
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_IN_FORCE, namespace, agents)
            in_force = {row["name"]: RewardPolicySpec.model_validate_json(row["spec"]) for row in rows}
            steps = any(map(needs_log, (spec, *in_force.values())))
            rankings, count = Rankings(), 0
            async for page in pages(self._db, self._cipher, namespace, window, steps=steps):
                await asyncio.to_thread(rank_page, rankings, page, spec, in_force)
                count += len(page)
            return await asyncio.to_thread(ranking_report, rankings, truncated=count == window.limit)


def rank_page(
    rankings: Rankings, page: Sequence[Any], spec: RewardPolicySpec, in_force: Mapping[str, RewardPolicySpec]
) -> None:
    """Adds the episodes of one page; those of agents without a policy in force are only counted."""
    for row in page:
        current = in_force.get(row["agent_id"])
        if current is None:
            rankings.skipped += 1
            continue
        episode = read_episode(row)
        rankings.before.append(_value(current, episode)[0])
        value, coverage = _value(spec, episode)
        rankings.after.append(value)
        rankings.coverage += coverage
        rankings.agents.append(row["agent_id"])


def _value(spec: RewardPolicySpec, episode: Episode) -> tuple[float, float]:
    worth = evaluate(spec, episode)
    return (-2 * LIMIT if worth.broken else worth.raw), worth.coverage
