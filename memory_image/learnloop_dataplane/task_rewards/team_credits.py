"""One reward of a task divided among the agents that took part: pure functions. The parts always add up to the reward.

What a smaller team would have got is the value of that coalition. Known values are taken as they are. Of the others
nothing is assumed but that agents add up: each has the worth that fits the known values best.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import orjson

from learnloop_api.kinds.reward_components import TeamCredit
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import TaskResult
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import Policy, Running, scaled, statistics

Coalition = frozenset[str]
RIDGE = 1e-6
"""Keeps the fit from dividing by zero where two agents were never seen apart."""


@dataclass(frozen=True)
class Part:
    """One agent's part.

    Attributes:
        agent: whose it is.
        credit: of the task's reward.
        error: standard error of the sampling; 0 where nothing was sampled.
    """

    agent: str
    credit: float
    error: float = 0.0


@dataclass(frozen=True)
class Division:
    """The parts, in the order of the agents, and how they came about: the method that was used in the end."""

    method: str
    parts: tuple[Part, ...]
    samples: int = 0


def divide(
    rule: TeamCredit, reward: float, agents: Sequence[str], known: Mapping[Coalition, float], seed: str = ""
) -> Division:
    """Divides `reward` among `agents`, each named once.

    Args:
        rule: the method, and how many orders to sample.
        reward: of the whole team; finite.
        agents: who took part, one at least.
        known: what smaller teams got, or would have got. Without any, nobody can be told apart: equal parts.
        seed: the same seed samples the same orders.
    """
    whole = frozenset(agents)
    smaller = {team: value for team, value in known.items() if team < whole}
    if rule.method == "equal" or len(agents) == 1 or not any(smaller):
        return Division("equal", tuple(Part(agent, reward / len(agents)) for agent in agents))
    value = _values(reward, agents, smaller)
    if rule.method == "difference":
        return Division("difference", _differences(reward, agents, value))
    return _shapley(agents, value, rule.samples, seed)


def _differences(reward: float, agents: Sequence[str], value: Callable[[Coalition], float]) -> tuple[Part, ...]:
    """What the team has with each agent and not without it (Wolpert & Tumer, 2002). These do not add up to the reward,
    so what is over or missing is shared equally, as non-separable costs are (Moulin, J. Economic Theory 36, 1985)."""
    whole = frozenset(agents)
    own = [reward - value(whole - {agent}) for agent in agents]
    rest = (reward - math.fsum(own)) / len(agents)
    return tuple(Part(agent, part + rest) for agent, part in zip(agents, own, strict=True))


def _shapley(agents: Sequence[str], value: Callable[[Coalition], float], samples: int, seed: str) -> Division:
    """The mean of what each agent adds, over orders in which they might have come (Shapley, 1953). All orders where
    they are no more than `samples`; else a sample, each order beside its reverse (Castro et al., Computers & Operations
    Research 36, 2009)."""
    every = math.factorial(len(agents)) if len(agents) < 12 else math.inf
    exact = every <= samples
    orders: Iterable[tuple[tuple[str, ...], ...]]
    orders = ((order,) for order in permutations(agents)) if exact else _pairs(agents, max(2, samples // 2), seed)
    added: list[list[float]] = []
    for block in orders:
        gains = [_gains(order, value) for order in block]
        added.append([math.fsum(gain[agent] for gain in gains) / len(gains) for agent in agents])
    means = [math.fsum(column) / len(added) for column in zip(*added, strict=True)]
    errors = [0.0] * len(agents)
    if not exact:
        spread = np.asarray(added).std(axis=0, ddof=1) / math.sqrt(len(added))
        errors = [float(error) for error in spread]
    # What no agent at all would have got is nobody's merit: it is shared equally.
    rest = value(frozenset()) / len(agents)
    parts = (Part(*part) for part in zip(agents, (mean + rest for mean in means), errors, strict=True))
    return Division("shapley", tuple(parts), len(added) * (1 if exact else 2))


def _pairs(agents: Sequence[str], count: int, seed: str) -> Iterable[tuple[tuple[str, ...], ...]]:
    source = random.Random(seed)
    for _ in range(count):
        order = tuple(source.sample(agents, len(agents)))
        yield order, order[::-1]


def _gains(order: Sequence[str], value: Callable[[Coalition], float]) -> dict[str, float]:
    gains, team, before = {}, frozenset[str](), value(frozenset())
    for agent in order:
        team = team | {agent}
        after = value(team)
        gains[agent], before = after - before, after
    return gains


def _values(reward: float, agents: Sequence[str], known: Mapping[Coalition, float]) -> Callable[[Coalition], float]:
    """The value of any coalition; nobody gets nothing unless it is known better."""
    place = {agent: index for index, agent in enumerate(agents)}
    seen = {**known, frozenset(agents): reward}
    nobody = seen.get(frozenset(), 0.0)
    teams = [team for team in seen if team]
    rows = np.zeros((len(teams), len(agents)))
    for row, team in zip(rows, teams, strict=True):
        row[[place[agent] for agent in team]] = 1.0
    wanted = np.asarray([seen[team] - nobody for team in teams])
    # Of two agents that were never seen apart neither is better: the ridge draws towards equal worth, not towards none.
    level = float(wanted.sum() / rows.sum())
    moved = np.linalg.solve(
        rows.T @ rows + RIDGE * np.eye(len(agents)), rows.T @ (wanted - rows @ np.full(len(agents), level))
    )
    worth = {agent: level + float(moved[place[agent]]) for agent in agents}

    def value(team: Coalition) -> float:
        found = seen.get(team)
        return found if found is not None else nobody + math.fsum(worth[agent] for agent in team)

    return value


BATCH = 100
EARLIER_TASKS = 1000
"""Of each member, of any type."""
_UNDIVIDED = """
SELECT r.trajectory_id, r.task_type, r.result, t.agent_id, h.raw_reward, h.reward, p.spec, h.reward_policy,
    h.reward_policy_revision, coalesce((h.metadata ->> 'worth')::float8, h.raw_reward) AS worth
FROM task_results r
JOIN trajectories t ON t.namespace = r.namespace AND t.trajectory_id = r.trajectory_id AND t.reward IS NOT NULL
JOIN reward_history h ON h.namespace = r.namespace AND h.trajectory_id = r.trajectory_id
    AND h.reward_policy_revision = t.reward_policy_revision
JOIN reward_policy_revisions p ON p.namespace = r.namespace AND p.name = h.reward_policy
    AND p.revision = h.reward_policy_revision
WHERE r.namespace = $1 AND NOT r.credited ORDER BY r.trajectory_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED
"""
# A team is known by its members' names in order, with a space between: no name has one.
_EARLIER = """
SELECT team, avg(shaped_reward) AS shaped, avg(learned_reward) AS learned FROM (
    SELECT DISTINCT ON (c.created_at, c.trajectory_id) c.team, c.shaped_reward,
        coalesce(c.learned_reward, c.raw_reward) AS learned_reward
    FROM unnest($2::text[]) AS member(name) CROSS JOIN LATERAL (
        SELECT * FROM task_credits c WHERE c.namespace = $1 AND c.agent_id = member.name
        ORDER BY c.created_at DESC LIMIT $5) c
    WHERE c.task_type = $3 AND c.trajectory_id <> $4
    ORDER BY c.created_at DESC, c.trajectory_id LIMIT $5) earlier
GROUP BY team
"""
_KEEP = """
INSERT INTO task_credits (namespace, trajectory_id, agent_id, raw_reward, shaped_reward, credit_assigned, error, method,
    team, task_type, learned_reward, learned_credit)
SELECT $1, $2, c.agent, $3, $4, c.credit, c.error, $5, $6, $7, $8, c.learned
FROM unnest($9::text[], $10::float8[], $11::float8[], $12::float8[]) AS c(agent, credit, error, learned)
ON CONFLICT (namespace, trajectory_id, agent_id) DO UPDATE SET raw_reward = excluded.raw_reward,
    shaped_reward = excluded.shaped_reward, credit_assigned = excluded.credit_assigned, error = excluded.error,
    method = excluded.method, learned_reward = excluded.learned_reward, learned_credit = excluded.learned_credit
"""
_OWN = """
UPDATE reward_history SET credit_assigned = $3, metadata = metadata || jsonb_build_object('agents', $4::jsonb)
WHERE namespace = $1 AND trajectory_id = $2
"""
_DONE = "UPDATE task_results SET credited = true WHERE namespace = $1 AND trajectory_id = $2"
_OF_TASK = """
SELECT agent_id AS agent, raw_reward, shaped_reward, credit_assigned, error, method, learned_credit FROM task_credits
WHERE namespace = $1 AND trajectory_id = $2 ORDER BY agent_id
"""
_OF_AGENT = """
SELECT trajectory_id, agent_id AS agent, task_type, raw_reward, shaped_reward, credit_assigned, error, method,
    learned_credit, created_at
FROM task_credits WHERE namespace = $1 AND agent_id = $2 AND (created_at, trajectory_id) < ($4, $5)
ORDER BY created_at DESC, trajectory_id DESC LIMIT $3
"""


class TeamCredits:
    """Parts of all namespaces' agents in the rewards of common tasks."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def run(self, namespace: str) -> int:
        """Divides every reward that waits for it, and returns how many that were.

        Raises:
            Unavailable: the rest waits.
        """
        done = 0
        while True:
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_UNDIVIDED, namespace, BATCH)
                for row in rows:
                    await _divide(connection, namespace, row)
            done += len(rows)
            if len(rows) < BATCH:
                return done

    async def of_task(self, namespace: str, trajectory_id: str) -> list[dict[str, Any]]:
        """Every agent's part in one task's reward, by name; none where it was not divided."""
        async with self._db.tenant(namespace) as connection:
            return [dict(row) for row in await connection.fetch(_OF_TASK, namespace, trajectory_id)]

    async def of_agent(self, namespace: str, agent: str, limit: int, before: tuple[Any, ...]) -> list[dict[str, Any]]:
        """An agent's parts, newest first, those before a time and a trajectory."""
        async with self._db.tenant(namespace) as connection:
            return [dict(row) for row in await connection.fetch(_OF_AGENT, namespace, agent, limit, *before)]

    async def among(
        self, namespace: str, scale: "Scale", reward: float, result: TaskResult, seed: str
    ) -> Division | None:
        """How a reward that is not stored would be divided; None for a task of one agent."""
        if not result.agents:
            return None
        async with self._db.tenant(namespace) as connection:
            earlier = await _earlier(connection, namespace, scale.spec.team_credit, result, seed)
        return _by_stored(scale, reward, result, earlier, seed)


@dataclass(frozen=True, slots=True)
class Scale:
    """On what scale an agent's stored rewards are: the policy, and the statistics it normalises by."""

    spec: RewardPolicySpec
    running: Running

    def of(self, raw: float) -> float:
        """A raw reward as it would be stored."""
        return scaled(self.spec, raw, self.running)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What smaller teams got in earlier tasks of the same type: as stored, and as learners are given it."""

    stored: dict[Coalition, float]
    learned: dict[Coalition, float]


async def _divide(connection: Any, namespace: str, row: Any) -> None:
    identity, result = row["trajectory_id"], TaskResult.model_validate_json(row["result"])
    if result.agents:
        spec = RewardPolicySpec.model_validate_json(row["spec"])
        policy = Policy(row["reward_policy"], row["reward_policy_revision"], spec)
        scale = Scale(spec, await statistics(connection, namespace, row["agent_id"], policy))
        earlier = await _earlier(connection, namespace, spec.team_credit, result, identity)
        found = _by_stored(scale, row["reward"], result, earlier, identity)
        members = result.participants()
        known = earlier.learned | told(result, members)
        learned = divide(spec.team_credit, row["worth"], list(members), known, identity)
        parts = found.parts
        columns = [[part.agent for part in parts], [part.credit for part in parts], [part.error for part in parts]]
        columns.append([part.credit for part in learned.parts])
        team = " ".join(sorted(members))
        worth = (row["raw_reward"], row["reward"])
        how = (found.method, team, row["task_type"], row["worth"])
        await connection.execute(_KEEP, namespace, identity, *worth, *how, *columns)
        own = next((part.credit for part in parts if part.agent == row["agent_id"]), 0.0)
        await connection.execute(_OWN, namespace, identity, own, orjson.dumps(described(found)).decode())
    await connection.execute(_DONE, namespace, identity)


async def _earlier(connection: Any, namespace: str, rule: TeamCredit, result: TaskResult, seed: str) -> Earlier:
    if rule.method == "equal" or not rule.history:
        return Earlier({}, {})
    asked = (list(result.participants()), result.task_type, seed, EARLIER_TASKS)
    rows = await connection.fetch(_EARLIER, namespace, *asked)
    teams = [frozenset[str](row["team"].split()) for row in rows]
    stored = {team: row["shaped"] for team, row in zip(teams, rows, strict=True)}
    return Earlier(stored, {team: row["learned"] for team, row in zip(teams, rows, strict=True)})


def _by_stored(scale: Scale, reward: float, result: TaskResult, earlier: Earlier, seed: str) -> Division:
    """Of a reward as it is stored. What the result says of smaller teams is raw, and so is the 0 of nobody: both are
    put on the same scale first."""
    members = result.participants()
    said = {frozenset[str](): 0.0} | told(result, members)
    known = earlier.stored | {team: scale.of(value) for team, value in said.items()}
    return divide(scale.spec.team_credit, reward, list(members), known, seed)


def told(result: TaskResult, members: Mapping[str, float | None]) -> dict[Coalition, float]:
    """What the result itself says of smaller teams."""
    whole = frozenset(members)
    known = {frozenset(team.agents): team.reward for team in result.teams}
    return known | {whole - {agent}: value for agent, value in members.items() if value is not None}


def described(division: Division) -> list[dict[str, Any]]:
    """As JSON has it."""
    return [
        {"agent": part.agent, "credit_assigned": part.credit, "error": part.error, "method": division.method}
        for part in division.parts
    ]
