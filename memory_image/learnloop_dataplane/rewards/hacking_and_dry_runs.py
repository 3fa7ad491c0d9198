"""Looks at policies by recorded episodes: signs of reward hacking in the newest rewards, and a dry run of a new policy.

Signs: people dislike what it rewards, or episodes repeat. A dry run ranks recorded episodes by the policy and by those
in force, and compares the two rankings.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import orjson
from cachetools import TTLCache
from numpy.typing import NDArray

from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_common.reward_rules.components import LIMIT, Episode, evaluate, needs_log, outcome_readers
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.postgres.database import STEPS_OF, Database
from learnloop_dataplane.rewards.reward_tables import Policies, Window, pages, read_episode

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


FEWEST = 100  # rewards below which nothing is said
FEWEST_FEEDBACK = 30
DUPLICATES = 0.2  # share of the episodes that may be exact repetitions of another
WORST = 3
ERRS = 0.05  # chance that feedback which has nothing to do with the rewards is ever called against them
WINDOWS = 60  # of the newest rewards, without one in common, that this chance is for


@dataclass(frozen=True)
class Rewarded:
    """One reward and what is compared with it.

    Attributes:
        components: values before weighting, by name.
        fingerprint: equal for episodes with exactly the same steps; None where they are gone.
        feedback: the mean opinion of people; None: there is none.
    """

    trajectory_id: str
    components: dict[str, float]
    reward: float
    fingerprint: str | None
    feedback: float | None


@dataclass(frozen=True)
class Sign:
    """One finding and the episodes that show it best, worst first."""

    reason: Literal["FeedbackDisagrees", "DuplicateTrajectories"]
    sentence: str
    worst: tuple[str, ...]


def read_signals(spec: RewardPolicySpec, rewards: Sequence[Rewarded]) -> RewardSignals:
    """The gravest sign in these rewards, or that there is none."""
    count = len(rewards)
    if count < FEWEST:
        sentence = f"fewer than {FEWEST} rewards so far, too few to look for signs of reward hacking"
        return RewardSignals(suspected=None, reason="NotEnoughRewards", sentence=sentence, rewards=count)
    checks = (_disagrees(spec, rewards), _repeats(rewards))
    gravest = next((sign for sign in checks if sign is not None), None)
    if gravest is None:
        sentence = "no sign of reward hacking in the newest rewards"
        return RewardSignals(suspected=False, reason="NothingFound", sentence=sentence, rewards=count)
    return RewardSignals(
        suspected=True, reason=gravest.reason, sentence=gravest.sentence, rewards=count, worst=list(gravest.worst)
    )


def _disagrees(spec: RewardPolicySpec, rewards: Sequence[Rewarded]) -> Sign | None:
    """The rewards without their feedback part against the feedback: a correlation that is surely below 0."""
    rated = [item for item in rewards if item.feedback is not None]
    if len(rated) < FEWEST_FEEDBACK:
        return None
    rest = [component for component in spec.components if not _is_feedback(component)]
    proxy = np.array([math.fsum(c.weight * item.components.get(c.name, 0.0) for c in rest) for item in rated])
    feedback = np.array([item.feedback for item in rated], dtype=np.float64)
    correlation = spearman(proxy, feedback)
    if correlation is None:
        return None
    # Fisher's transformation; 1.06 is the variance factor for ranks (E. Fieller, H. Hartley & E. Pearson, 1957).
    spread = math.sqrt(1.06 / (len(rated) - 3))
    if math.atanh(max(-0.999999, min(0.999999, correlation))) + _always_valid(len(rated)) * spread >= 0:
        return None
    sentence = f"what the other components reward, people dislike: rank correlation {correlation:.2f} with feedback"
    return Sign(
        "FeedbackDisagrees",
        f"{sentence} over {len(rated)} rated episodes",
        _worst(rated, percentiles(proxy) - percentiles(feedback)),
    )


def _always_valid(n: int) -> float:
    """Standard deviations that the mean of n values strays by at any of all looks with the chance ERRS only, on one
    side: the normal mixture (H. Robbins, 1970), tightest from FEWEST_FEEDBACK values on.

    It holds while the values grow in number. A full window slides on over others, so that each of WINDOWS has its share
    of the chance, too."""
    growth = (n + FEWEST_FEEDBACK) / FEWEST_FEEDBACK
    growing = math.sqrt((1.0 + FEWEST_FEEDBACK / n) * math.log(growth / (2.0 * ERRS) ** 2))
    return max(growing, NormalDist().inv_cdf(1.0 - ERRS / WINDOWS))


def _repeats(rewards: Sequence[Rewarded]) -> Sign | None:
    """Exact repetitions of an episode that are many and pay at least as well as the rest."""
    sizes = Counter(item.fingerprint for item in rewards if item.fingerprint is not None)
    repeated = [item for item in rewards if item.fingerprint is not None and sizes[item.fingerprint] > 1]
    share = sum(size - 1 for size in sizes.values()) / len(rewards)
    if share < DUPLICATES:
        return None
    mean, mean_repeated = (math.fsum(i.reward for i in some) / len(some) for some in (rewards, repeated))
    if mean_repeated < mean:
        return None
    order = np.array([sizes[item.fingerprint or ""] for item in repeated], dtype=np.float64)
    sentence = f"{share:.0%} of the episodes repeat another one exactly and earn as well as the rest"
    return Sign("DuplicateTrajectories", sentence, _worst(repeated, order))


def _is_feedback(component: RewardComponent) -> bool:
    return component.type == "feedback" or component.key == "feedback"


def _worst(rewards: Sequence[Rewarded], badness: Floats) -> tuple[str, ...]:
    """Ids of the worst, of equals those with the highest reward."""
    order = sorted(range(len(rewards)), key=lambda i: (-badness[i], -rewards[i].reward, rewards[i].trajectory_id))
    return tuple(rewards[index].trajectory_id for index in order[:WORST])


NEWEST = 1000
FRESH_SECONDS = 60.0
MAX_REMEMBERED = 1000
MOST_KEYS = 64

# By agent, because that is what the index is by: a quiet policy must not search through a busy one's rewards. The
# newest come first, and the revision and all else are looked up for them alone.
_NEWEST = f"""
SELECT h.trajectory_id, h.components, h.reward, t.fingerprint, t.feedback, t.recorded
FROM (SELECT r.* FROM agents a CROSS JOIN LATERAL (
        SELECT trajectory_id, components, reward, created_at, reward_policy, reward_policy_revision
        FROM reward_history r WHERE r.namespace = a.namespace AND r.agent_id = a.name
        ORDER BY r.created_at DESC LIMIT $4) r
    WHERE a.namespace = $1 AND a.reward_policy = $2 AND a.reward_policy_revision = $3
        AND r.reward_policy = $2 AND r.reward_policy_revision = $3
    ORDER BY r.created_at DESC, r.trajectory_id LIMIT $4) h
CROSS JOIN LATERAL (
    SELECT (t.outcome_values ->> 'feedback')::float8 AS feedback,
        ARRAY(SELECT jsonb_object_keys(t.outcome_values)) AS recorded, (
        SELECT coalesce(s.steps ->> 'fingerprint', md5(s.steps::text)) FROM training_transitions s WHERE {STEPS_OF}
        ) AS fingerprint
    FROM trajectories t WHERE t.namespace = $1 AND t.trajectory_id = h.trajectory_id OFFSET 0) t
ORDER BY h.created_at DESC, h.trajectory_id
"""


class SignalReader:
    """Reads signs of all namespaces; an answer is reused for a minute."""

    def __init__(self, db: Database, policies: Policies) -> None:
        self._db, self._policies = db, policies
        self._answers: TTLCache[tuple[str, str, str], RewardSignals] = TTLCache(MAX_REMEMBERED, FRESH_SECONDS)

    async def read(self, namespace: str, name: str, revision: str) -> RewardSignals | None:
        """Signs in the newest rewards of a revision in force; None when it was never published."""
        key = (namespace, name, revision)
        if (fresh := self._answers.get(key)) is not None:
            return fresh
        if (policy := await self._policies.get(namespace, name, revision)) is None:
            return None
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_NEWEST, namespace, name, revision, NEWEST)
        signals = await asyncio.to_thread(_read, policy.spec, rows)
        self._answers[key] = signals
        return signals


def _read(spec: RewardPolicySpec, rows: list[Any]) -> RewardSignals:
    recorded = {key for row in rows for key in row["recorded"]}
    wanted = outcome_readers(spec) if len(rows) >= FEWEST else {}
    unrecorded = [f"{key} ({reader})" for key, reader in wanted.items() if key not in recorded]
    rewards = [Rewarded(**_rewarded(row)) for row in rows]
    signals = read_signals(spec, rewards)
    return signals.model_copy(update={"unrecorded": unrecorded[:MOST_KEYS], "recorded": sorted(recorded)[:MOST_KEYS]})


def _rewarded(row: Any) -> dict[str, Any]:
    fields = {**row, "components": orjson.loads(row["components"])}
    del fields["recorded"]
    return fields


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
