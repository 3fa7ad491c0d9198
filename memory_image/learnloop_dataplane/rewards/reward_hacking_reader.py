"""Reads the rewards that signs of reward hacking are looked for in, and remembers the answer for a minute."""

import asyncio
import time
from typing import Any

import orjson

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import RewardSignals
from learnloop_common.reward_rules.components import asked_values
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.partitions import STEPS_OF
from learnloop_dataplane.rewards.reward_hacking import FEWEST, Rewarded, read_signals
from learnloop_dataplane.rewards.reward_tables import get_policy

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
    """Answers for one process; whoever asks often gets the same answer for a minute."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._answers: dict[tuple[str, str, str], tuple[float, RewardSignals]] = {}

    async def read(self, namespace: str, name: str, revision: str) -> RewardSignals | None:
        """Signs in the newest rewards of a revision in force; None when it was never published.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        key = (namespace, name, revision)
        known = self._answers.get(key)
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        async with self._db.tenant(namespace) as connection:
            policy = await get_policy(connection, namespace, name, revision)
            if policy is None:
                return None
            rows = await connection.fetch(_NEWEST, namespace, name, revision, NEWEST)
        found = await asyncio.to_thread(_read, policy.spec, rows)
        while len(self._answers) >= MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        self._answers.pop(key, None)
        self._answers[key] = (time.monotonic(), found)
        return found


def _read(spec: RewardPolicySpec, rows: list[Any]) -> RewardSignals:
    recorded = {key for row in rows for key in row["recorded"]}
    asked = asked_values(spec) if len(rows) >= FEWEST else {}
    unrecorded = [f"{key} ({reader})" for key, reader in asked.items() if key not in recorded]
    rewards = [Rewarded(**_rewarded(row)) for row in rows]
    found = read_signals(spec, rewards)
    return found.model_copy(update={"unrecorded": unrecorded[:MOST_KEYS], "recorded": sorted(recorded)[:MOST_KEYS]})


def _rewarded(row: Any) -> dict[str, Any]:
    fields = {**row, "components": orjson.loads(row["components"])}
    del fields["recorded"]
    return fields
