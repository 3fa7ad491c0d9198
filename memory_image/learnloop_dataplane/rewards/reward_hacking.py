"""Signs of reward hacking in the newest rewards: people dislike what earns them, or episodes repeat."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import orjson
from cachetools import TTLCache

from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_common.reward_rules.components import outcome_readers
from learnloop_dataplane.postgres.database import STEPS_OF, Database
from learnloop_dataplane.rewards.dry_run import Floats, percentiles, spearman
from learnloop_dataplane.rewards.reward_tables import Policies

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
