"""Computes rewards: reads waiting episodes in one round trip, and writes their rewards in another one, which commits.

Nothing is locked while a reward is computed. Instead the writing statement looks whether everything it was computed
from is still so, holding it, and writes nothing where it is not: the episodes are there, without a reward and with the
measurements that were read, and the agent's statistics are those that were read.

Rewards that are committed and not yet announced are published from the table: a crash in between cannot lose one. From
reading them to their acknowledgement no erasure begins: one that comes later finds the events in the stream.
"""

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from learnloop_api import names
from learnloop_common.reward_rules import components, step_rewards
from learnloop_dataplane.concurrency import background_loop
from learnloop_dataplane.data_keys import PLAIN, StepCipher
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import Event, publish_pending
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import (
    LOG,
    NO_LOG,
    SCORES,
    STATE,
    Policies,
    Policy,
    Running,
    as_reward,
    confidence,
    read_episode,
    settle,
)
from learnloop_dataplane.telemetry.agent_metrics import Recent

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus

log = logging.getLogger(__name__)
_SCORED = """AND (SELECT count(*) FROM task_scores c WHERE c.namespace = t.namespace
    AND c.trajectory_id = t.trajectory_id AND c.reward_policy = $3 AND c.reward_policy_revision = $4) >= $6::int"""
_SCOPE = "FROM set_config('app.namespace', $1, true) AS s(namespace)"
# Only agents with a published policy; the order makes each probe one look-up in the index of unrewarded rows. Each part
# runs for the row of `s` and says $1 inside: through `s` PostgreSQL would guess one row a namespace, and read them all.
_WAITING = f"""
SELECT a.name, a.reward_policy, a.reward_policy_revision {_SCOPE}, LATERAL (
    SELECT a.name, a.reward_policy, a.reward_policy_revision, a.since FROM agents a
    WHERE a.namespace = s.namespace AND a.registered_at IS NOT NULL ORDER BY a.name) a, LATERAL (
    SELECT 1 FROM reward_policy_revisions p
    WHERE p.namespace = $1 AND p.name = a.reward_policy AND p.revision = a.reward_policy_revision LIMIT 1) p, LATERAL (
    SELECT 1 FROM trajectories t
    WHERE t.namespace = $1 AND t.agent_id = a.name AND t.reward IS NULL AND t.received_at >= a.since
    ORDER BY t.received_at, t.seq LIMIT 1) t
"""
# In the order of arrival. The statistics come with the first episode.
_PENDING = f"""
SELECT t.*, r.* {_SCOPE}, LATERAL (
    SELECT a.since FROM agents a WHERE a.namespace = s.namespace AND a.name = $2 AND a.registered_at IS NOT NULL
        AND a.reward_policy = $3 AND a.reward_policy_revision = $4 OFFSET 0) a, LATERAL (
    SELECT row_number() OVER (ORDER BY received_at, seq) AS place, waiting.* FROM (
        SELECT t.seq, t.received_at, t.trajectory_id, t.episode_return, t.success, t.steps, t.outcome_values, t.task,
            t.episode_id, t.policy_revision, {{log}} AS log, {{scores}} AS scores
        FROM trajectories t
        WHERE t.namespace = s.namespace AND t.agent_id = $2 AND t.reward IS NULL AND t.received_at >= a.since
            {{scored}}
        ORDER BY t.received_at, t.seq LIMIT $5) waiting) t
LEFT JOIN LATERAL (
    SELECT {STATE} FROM reward_statistics r WHERE t.place = 1 AND r.namespace = $1 AND r.agent_id = $2
        AND r.reward_policy = $3 AND r.reward_policy_revision = $4 OFFSET 0) r ON true
ORDER BY t.place
"""
# Episodes before statistics before totals, each in one order, as an erasure goes: no deadlock. The last
# two begin when `saved` is complete, which has named the namespace. num_nulls, because after IS NULL the index of what
# is unrewarded looks smaller than the key: it is read whole for each episode, and a backlog has many.
KEEP = f"""
WITH s AS MATERIALIZED (
    SELECT set_config('app.namespace', $1, true) AS namespace
), given AS MATERIALIZED (
    SELECT * FROM unnest($12::text[], $13::jsonb[], $14::jsonb[], $15::float8[], $16::float8[], $17::float8[],
        $18::jsonb[], $19::text[], $20::jsonb[])
    AS g(trajectory_id, measured, components, raw, reward, confidence, violated, task, metadata)
), held AS MATERIALIZED (
    SELECT t.trajectory_id FROM s, given g, LATERAL (
        SELECT t.trajectory_id FROM trajectories t
        WHERE t.namespace = s.namespace AND t.trajectory_id = g.trajectory_id AND num_nulls(t.reward) = 1
            AND t.outcome_values = g.measured FOR UPDATE) t
), saved AS (
    INSERT INTO reward_statistics AS r (namespace, agent_id, reward_policy, reward_policy_revision, {STATE})
    SELECT s.namespace, $2, $3, $4, $7::bigint, $8::float8, $9::float8, $10::float8, $11::float8 FROM s
    WHERE (SELECT count(*) FROM held) = cardinality($12::text[])
    ON CONFLICT (namespace, agent_id, reward_policy, reward_policy_revision) DO UPDATE
    SET count = excluded.count, mean = excluded.mean, m2 = excluded.m2, low = excluded.low, high = excluded.high
    WHERE r.count = $6::bigint RETURNING r.namespace
), history AS (
    INSERT INTO reward_history (namespace, agent_id, reward_policy, reward_policy_revision, trajectory_id, components,
        raw_reward, reward, confidence, violated, created_at, published_at, task_id, credit_assigned, metadata)
    SELECT saved.namespace, $2, $3, $4, g.trajectory_id, g.components, g.raw, g.reward, g.confidence, g.violated,
        clock_timestamp(), CASE WHEN $5::bool THEN NULL ELSE now() END, g.task, g.reward, g.metadata
    FROM saved, given g
), marked AS (
    UPDATE trajectories t SET reward = g.reward, reward_policy_revision = $4, warehoused = false FROM saved, given g
    WHERE t.namespace = $1 AND t.trajectory_id = g.trajectory_id
), counted AS (
    UPDATE agents a SET rewarded = a.rewarded + cardinality($12::text[]) FROM saved
    WHERE a.namespace = $1 AND a.name = $2
)
SELECT 1 FROM saved
"""
# An arm that was withdrawn tells nothing of its model. A grouping set without columns is all of them together.
_RECENT = f"""
SELECT t.policy_revision AS version, avg(h.raw_reward)::float8 AS reward, avg(t.success::int)::float8 AS success,
    avg((t.status = 'error')::int)::float8 AS errors
{_SCOPE}, LATERAL (
    SELECT t.trajectory_id, t.policy_revision, t.status, t.success, t.reward_policy_revision FROM trajectories t
    WHERE t.namespace = $1 AND s.namespace = $1 AND t.agent_id = $2 AND t.status <> 'withdrawn'
    ORDER BY t.seq DESC LIMIT 100) t
LEFT JOIN LATERAL (SELECT h.raw_reward FROM reward_history h
    WHERE h.namespace = $1 AND h.trajectory_id = t.trajectory_id
        AND h.reward_policy_revision = t.reward_policy_revision LIMIT 1) h ON true
GROUP BY GROUPING SETS ((t.policy_revision), ())
"""


@dataclass(frozen=True)
class Weigher:
    """An agent and the policy revision its new episodes are rewarded by."""

    agent: str
    policy: str
    revision: str


# Ids, measurements and components as JSON, raw, reward, confidence, broken constraints as JSON, tasks, metadata as
# JSON: each as long as there are episodes.
Columns = tuple[list[str], list[str], list[str], list[float], list[float], list[float], list[str], list[str], list[str]]


async def waiting(db: Database, namespace: str) -> list[Weigher]:
    """Agents with episodes that wait for a reward, by name."""
    return [Weigher(*row) for row in await db.fetch_as(namespace, _WAITING)]


async def pending(
    db: Database, namespace: str, whose: Weigher, limit: int, *, with_steps: bool, evaluators: int = 0
) -> tuple[list[Any], Running]:
    """The first episodes without a reward in the order of their arrival, and the statistics before them.

    Args:
        evaluators: how many score an output; only episodes that all of them have scored are ready.
    """
    scores = SCORES.format(policy="$3", revision="$4") if evaluators else NO_LOG
    statement = _PENDING.format(log=LOG if with_steps else NO_LOG, scores=scores, scored=_SCORED if evaluators else "")
    arguments = (whose.agent, whose.policy, whose.revision, limit, *([evaluators] if evaluators else []))
    rows = await db.fetch_as(namespace, statement, *arguments)
    if not rows or rows[0]["count"] is None:
        return rows, Running()
    first = rows[0]
    return rows, Running(*(first[name] for name in STATE.split(", ")))


async def keep(
    db: Database, namespace: str, whose: Weigher, before: Running, after: Running, columns: Columns, *, announce: bool
) -> bool:
    """Writes rewards, statistics and totals, and commits. False: something changed since it was read, and nothing was
    written.

    Args:
        before: the statistics that were read.
        announce: the rewards are still to be published.

    Raises:
        Unavailable: nothing was written, or the answer was lost: what was written does not wait any more.
    """
    key = (whose.agent, whose.policy, whose.revision)
    return bool(await db.fetch_as(namespace, KEEP, *key, announce, before.count, *astuple(after), *columns))


async def recent(db: Database, namespace: str, agent: str) -> list[Recent]:
    """The newest hundred episodes: all together, and by the model version that played them."""
    rows = await db.fetch_as(namespace, _RECENT, agent)
    return [Recent(**row) for row in rows if row["errors"] is not None]


BATCH = 200
ATTEMPTS = 5
"""At one batch, when replicas or late feedback come in between; what is left waits for the next pass."""


class RewardWorker:
    """Computes what is pending. Any number of replicas may do so: of two that weigh the same episodes one writes,
    the other reads again.

    Args:
        announce: leave an entry in the outbox for each reward (there is a NATS to publish it on).
        batch: how many at most in a transaction.
    """

    def __init__(
        self,
        db: Database,
        policies: Policies,
        metrics: Metrics,
        *,
        announce: bool,
        batch: int = BATCH,
        cipher: StepCipher = PLAIN,
    ) -> None:
        self._cipher = cipher
        self._db = db
        self._policies = policies
        self._metrics = metrics
        self._announce = announce
        self._size = batch

    async def run(self, namespace: str) -> int:
        """Rewards what is pending in one namespace, as much as a turn has, and returns how many that were."""
        done, played = 0, self._metrics.agents.played(namespace)
        for whose in await waiting(self._db, namespace):
            here = 0
            while count := await self._batch(namespace, whose):
                here += count
                if count < self._size or done + here >= background_loop.TURN:
                    break
            if here:
                played.add(whose.agent)
            done += here
            if done >= background_loop.TURN:
                break
        agents = self._metrics.agents
        for agent in sorted(played):
            agents.recent(namespace, agent, await recent(self._db, namespace, agent))
        for agent in agents.stale(namespace):
            agents.recent(namespace, agent, await recent(self._db, namespace, agent), news=False)
        return done

    async def _batch(self, namespace: str, whose: Weigher) -> int:
        policy = await self._policies.get(namespace, whose.policy, whose.revision)
        if policy is None:
            return 0
        by_steps = components.needs_log(policy.spec) or policy.spec.credit.method == "environment"
        for _ in range(ATTEMPTS):
            stored, before = await pending(
                self._db, namespace, whose, self._size, with_steps=by_steps, evaluators=evaluated(policy)
            )
            if not stored:
                return 0
            rows = await self._cipher.open_rows(self._db, namespace, stored)
            columns, after = compute(policy, before, rows)
            if await keep(self._db, namespace, whose, before, after, columns, announce=self._announce):
                for row, raw in zip(rows, columns[3], strict=True):
                    self._metrics.agents.reward(namespace, whose.agent, row["policy_revision"], raw)
                return len(rows)
        log.info("rewards of %s/%s: other workers process them too, the next pass continues", namespace, whose.agent)
        return 0


def evaluated(policy: Policy) -> int:
    """How many of its components are scores of evaluators."""
    return sum(component.evaluator is not None for component in policy.spec.components)


def compute(policy: Policy, running: Running, rows: Sequence[Any]) -> tuple[Columns, Running]:
    """Rewards of consecutive episodes, and the statistics after them."""
    columns: Columns = ([], [], [], [], [], [], [], [], [])
    for row in rows:
        episode = read_episode(row)
        worth = components.evaluate(policy.spec, episode)
        reward, running = settle(policy.spec, worth, running)
        columns[0].append(row["trajectory_id"])
        columns[1].append(row["outcome_values"])
        columns[2].append(orjson.dumps(worth.components).decode())
        columns[3].append(worth.raw)
        columns[4].append(reward)
        columns[5].append(confidence(policy.spec, worth, running))
        columns[6].append(orjson.dumps(worth.broken).decode())
        columns[7].append(row["task"])
        columns[8].append(metadata(policy, reward, episode, row))
    return columns, running


def metadata(policy: Policy, reward: float, episode: components.Episode, row: Any) -> str:
    """The facts that outlive the episode, as JSON: its ids, its worth to learners, and how the reward was divided among
    its steps."""
    facts = {"episode_id": row["episode_id"], "policy_revision": row["policy_revision"]}
    facts["worth"] = step_rewards.whole(policy.spec, episode)
    facts["credit"] = components.division(policy.spec.credit, reward, episode.steps, episode.log)
    return orjson.dumps(facts).decode()


# What a team earned is announced when it is divided.
_UNPUBLISHED = """
SELECT trajectory_id, agent_id AS agent, reward_policy, reward_policy_revision, components, raw_reward, reward,
    confidence, violated, h.created_at AS computed_at, task_id, credit_assigned, metadata, p.spec
FROM reward_history h LEFT JOIN reward_policy_revisions p
    ON p.namespace = h.namespace AND p.name = h.reward_policy AND p.revision = h.reward_policy_revision
WHERE h.namespace = $1 AND published_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM task_results r
    WHERE r.namespace = h.namespace AND r.trajectory_id = h.trajectory_id AND NOT r.credited)
ORDER BY h.created_at LIMIT $2
"""
_PUBLISHED = """
UPDATE reward_history SET published_at = now() FROM unnest($2::text[], $3::text[], $4::text[])
    AS t(trajectory_id, policy, revision)
WHERE namespace = $1 AND reward_history.trajectory_id = t.trajectory_id AND reward_policy = t.policy
    AND reward_policy_revision = t.revision
"""


class RewardOutbox:
    """Relays `reward_history` to `agent.rl.reward.v1.<namespace>.<agent>`, at least once and deduplicated by id."""

    def __init__(self, db: Database, bus: "Bus") -> None:
        self._db = db
        self._bus = bus

    async def run(self, namespace: str) -> int:
        """Publishes what is pending in one namespace, as much as a turn has, and returns how many that were.

        Raises:
            Unavailable: what was not marked will be published again; the message id makes that harmless.
        """
        keys = ("trajectory_id", "reward_policy", "reward_policy_revision")
        return await publish_pending(self._db, self._bus, namespace, _UNPUBLISHED, _event, (_PUBLISHED, keys))


def _event(namespace: str, row: Any) -> Event:
    reward = as_reward(row)
    message_id = f"{namespace}/{reward.trajectory_id}:{reward.reward_policy}:{reward.reward_policy_revision}"
    return f"{names.SUBJECT_REWARD}.{namespace}.{reward.agent}", reward.model_dump_json().encode(), message_id
