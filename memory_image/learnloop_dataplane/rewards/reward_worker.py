"""Gives every stored trajectory of a registered agent its reward, exactly once."""

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from learnloop_common.reward_rules.components import Episode, division, evaluate, needs_log
from learnloop_common.reward_rules.step_rewards import whole
from learnloop_dataplane.concurrency import loop
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.normalisation import Running, confidence, settle
from learnloop_dataplane.rewards.pending_episodes import Columns, Weigher, keep, pending, recent, waiting
from learnloop_dataplane.rewards.published_policies import Policies
from learnloop_dataplane.rewards.reward_tables import Policy

log = logging.getLogger(__name__)
BATCH = 200
ATTEMPTS = 5
"""At one batch, when replicas or late feedback come in between; what is left waits for the next pass."""


class RewardWorker:
    """Computes what is pending. Any number of replicas may do so at once: of two that weigh the same episodes one
    writes, the other reads again.

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
        """Rewards what is pending in one namespace, as much as a turn has, and returns how many that were.

        Raises:
            Unavailable: the rest stays pending.
        """
        done, played = 0, self._metrics.agents.played(namespace)
        for whose in await waiting(self._db, namespace):
            here = 0
            while count := await self._batch(namespace, whose):
                here += count
                if count < self._size or done + here >= loop.TURN:
                    break
            if here:
                played.add(whose.agent)
            done += here
            if done >= loop.TURN:
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
        by_steps = needs_log(policy.spec) or policy.spec.credit.method == "environment"
        for _ in range(ATTEMPTS):
            stored, before = await pending(
                self._db, namespace, whose, self._size, log=by_steps, evaluators=evaluated(policy)
            )
            if not stored:
                return 0
            rows = await self._cipher.open_rows(self._db, namespace, stored)
            columns, after = compute(policy, before, rows)
            if await keep(self._db, namespace, whose, before, after, columns, announce=self._announce):
                for row, raw in zip(rows, columns[3], strict=True):
                    self._metrics.agents.reward(namespace, whose.agent, row["policy_revision"], raw)
                return len(rows)
        log.info("rewards of %s/%s: others are at it too, the next pass goes on", namespace, whose.agent)
        return 0


def evaluated(policy: Policy) -> int:
    """How many of its components are scores of evaluators."""
    return sum(component.evaluator is not None for component in policy.spec.components)


def compute(policy: Policy, running: Running, rows: Sequence[Any]) -> tuple[Columns, Running]:
    """Rewards of consecutive episodes, and the statistics after them."""
    columns: Columns = ([], [], [], [], [], [], [], [], [])
    for row in rows:
        episode = read_episode(row)
        worth = evaluate(policy.spec, episode)
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


def metadata(policy: Policy, reward: float, episode: Episode, row: Any) -> str:
    """What a reward says of its episode when that is forgotten, as JSON: which one it was, what it is worth to
    learners, and how the reward was divided among its steps."""
    told = {"episode_id": row["episode_id"], "policy_revision": row["policy_revision"]}
    told["worth"] = whole(policy.spec, episode)
    told["credit"] = division(policy.spec.credit, reward, episode.steps, episode.log)
    return orjson.dumps(told).decode()


def read_episode(row: Any) -> Episode:
    """The episode in a row of `trajectories` that was selected together with its `log`."""
    values, steps = orjson.loads(row["outcome_values"]), orjson.loads(row["log"]) if row["log"] else ()
    scores = orjson.loads(row["scores"]) if row.get("scores") else {}
    return Episode(row["episode_return"], row["success"], row["steps"], values, steps, scores=scores)
