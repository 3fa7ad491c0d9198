"""Rewards are computed without a lock: whatever happens between reading and writing, each is right and counted once."""

import asyncio
from collections.abc import Iterator
from dataclasses import astuple

import pytest

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.agents.agent_registry import AgentRegistry
from learnloop_dataplane.experience.trajectories import prepare, store
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import Policies
from learnloop_dataplane.rewards.reward_worker import KEEP, RewardWorker, Weigher, compute, keep, pending, waiting

from ..conftest import START_SECONDS, superuser, trajectory

SPACE = "team-a"


def untold(namespace: str) -> None:
    """Background work gets no wake-up: each test starts the passes itself."""


FEEDBACK = """
UPDATE trajectories SET outcome_values = outcome_values || '{"feedback": 1.0}' WHERE trajectory_id = $1
"""


@pytest.fixture
async def db(dsn: str):
    """No service works on this one but what a test starts."""
    opened = Database(dsn, pool_size=4)
    opened.start()
    await asyncio.wait_for(opened.ready.wait(), START_SECONDS)
    yield opened
    await opened.close()


async def _arrive(db: Database, agent: str, *returns: float) -> Weigher:
    """A registered agent with an episode of each of these returns, none of them rewarded yet."""
    spec = RewardPolicySpec.model_validate(
        {
            "components": [
                {"name": "return", "type": "environment", "weight": 0.5},
                {"name": "stars", "type": "feedback", "weight": 0.5},
            ],
            "normalisation": {"method": "none", "clip": 100},
        }
    )
    await Policies(db, untold).publish(SPACE, agent, "r1", spec)
    await AgentRegistry(db, untold).register(SPACE, agent, agent, "r1")
    episodes = [trajectory(f"{agent}-{index}", agent, value) for index, value in enumerate(returns)]
    await store(db, SPACE, [prepare(Trajectory.model_validate_json(_json(body))) for body in episodes])
    return Weigher(agent, agent, "r1")


def _json(body: dict) -> bytes:
    return Trajectory.model_validate(body).model_dump_json().encode()


async def _counts(dsn: str, agent: str) -> tuple[int, int, int, int]:
    """Rewards of an agent: in its history, in its totals, in its statistics, and on its episodes."""
    async with superuser(dsn) as connection:
        row = await connection.fetchrow(
            """SELECT (SELECT count(*) FROM reward_history WHERE agent_id = $1),
            (SELECT rewarded FROM agents WHERE name = $1),
            (SELECT coalesce(sum(count), 0)::bigint FROM reward_statistics WHERE agent_id = $1),
            (SELECT count(*) FROM trajectories WHERE agent_id = $1 AND reward IS NOT NULL)""",
            agent,
        )
    return tuple(row)


async def _read(db: Database, whose: Weigher) -> tuple:
    """The data of a pass before it writes: statistics before and after, and the rewards."""
    policy = await Policies(db, untold).get(SPACE, whose.policy, whose.revision)
    assert policy is not None
    rows, before = await pending(db, SPACE, whose, 100, with_steps=False)
    columns, after = compute(policy, before, rows)
    return before, after, columns


async def test_of_two_replicas_that_weigh_the_same_episodes_one_writes(db: Database, dsn: str) -> None:
    whose = await _arrive(db, "raced", *map(float, range(60)))
    first, second = await _read(db, whose), await _read(db, whose)
    wrote = await asyncio.gather(*(keep(db, SPACE, whose, *read, announce=True) for read in (first, second)))
    assert sorted(wrote) == [False, True]
    assert await _counts(dsn, "raced") == (60, 60, 60, 60)


async def test_replicas_that_go_on_beside_one_another_count_everything_once(db: Database, dsn: str) -> None:
    await _arrive(db, "crowded", *map(float, range(100)))
    workers = [RewardWorker(db, Policies(db, untold), Metrics(), announce=True, batch=7) for _ in range(3)]
    await asyncio.gather(*(worker.run(SPACE) for worker in workers))
    await workers[0].run(SPACE)
    assert await _counts(dsn, "crowded") == (100, 100, 100, 100)


async def test_an_opinion_that_comes_while_a_reward_is_computed_is_in_it(db: Database, dsn: str) -> None:
    whose = await _arrive(db, "praised", 10.0)
    read = await _read(db, whose)
    async with db.tenant(SPACE) as connection:
        await connection.execute(FEEDBACK, "praised-0")
    assert not await keep(db, SPACE, whose, *read, announce=True)
    assert await _counts(dsn, "praised") == (0, 0, 0, 0)
    await RewardWorker(db, Policies(db, untold), Metrics(), announce=True).run(SPACE)
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT reward FROM trajectories WHERE agent_id = 'praised'") == 5.5


async def test_nothing_is_written_about_episodes_of_which_one_went_meanwhile(db: Database, dsn: str) -> None:
    whose = await _arrive(db, "leaver", 1.0, 2.0)
    read = await _read(db, whose)
    async with db.tenant(SPACE) as connection:
        await connection.execute("DELETE FROM trajectories WHERE trajectory_id = 'leaver-0'")
    assert not await keep(db, SPACE, whose, *read, announce=True)
    assert await _counts(dsn, "leaver") == (0, 0, 0, 0)


async def test_rewards_of_another_namespace_are_neither_read_nor_written(db: Database, dsn: str) -> None:
    whose = await _arrive(db, "apart", 1.0)
    read = await _read(db, whose)
    assert await waiting(db, "team-b") == []
    assert await pending(db, "team-b", whose, 100, with_steps=True) == ([], read[0])
    assert not await keep(db, "team-b", whose, *read, announce=True)
    assert await _counts(dsn, "apart") == (0, 0, 0, 0)


async def test_a_reward_is_read_and_written_in_a_round_trip_each(db, dsn, monkeypatch):
    whose = await _arrive(db, "quick", 1.0)
    worker, trips = RewardWorker(db, Policies(db, untold), Metrics(), announce=True), list[str]()
    await worker.run(SPACE)
    await _arrive(db, "quick", 1.0, 2.0)
    real = db.fetch_as

    async def counted(namespace: str, statement: str, *arguments) -> list:
        trips.append(statement)
        return await real(namespace, statement, *arguments)

    monkeypatch.setattr(db, "fetch_as", counted)
    monkeypatch.setattr(db, "tenant", None)
    assert await worker.run(SPACE) == 1
    assert len(trips) == 4  # who waits, what, the reward; and the figures of /metrics
    assert await _counts(dsn, whose.agent) == (2, 2, 2, 2)


async def test_a_backlog_is_written_by_key_also_where_statistics_know_of_none(db: Database, dsn: str) -> None:
    whose = await _arrive(db, "late", *map(float, range(300)))
    await RewardWorker(db, Policies(db, untold), Metrics(), announce=True).run(SPACE)
    async with superuser(dsn) as connection:
        await connection.execute("ANALYZE")
    async with db.tenant(SPACE) as connection:
        await connection.execute("UPDATE trajectories SET reward = NULL WHERE agent_id = 'late'")
    before, after, columns = await _read(db, whose)
    async with db.tenant(SPACE) as connection:
        statement = await connection.prepare(KEEP)
        key = (SPACE, whose.agent, whose.policy, whose.revision)
        [plan] = await statement.explain(*key, True, before.count, *astuple(after), *columns)
    ways = {way for node in _nodes(plan["Plan"]) if (way := _read_by(node, "trajectories"))}
    assert ways <= {"trajectories_pkey", "Seq Scan"}  # the table is a few pages, which are read in one go


def _nodes(plan: dict) -> Iterator[dict]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _read_by(node: dict, table: str) -> str | None:
    """The index a part of a plan reads a table by, or what it does instead; None for parts that do not read it."""
    if node.get("Relation Name") != table or node["Node Type"] == "ModifyTable":
        return None
    return str(node.get("Index Name", node["Node Type"]))
