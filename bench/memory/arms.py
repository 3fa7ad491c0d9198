"""What ours is put beside: the same vectors in PostgreSQL as others keep them, asked directly, without any HTTP."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
from pgvector import HalfVector, Vector
from pgvector.asyncpg import register_vector

from bench.memory.data import Agent

# Specification 000, literally: the index is created on the empty table, before there is anything to cluster.
SPECIFIED = """
CREATE TABLE specified (id bigint PRIMARY KEY, agent_id VARCHAR(50) NOT NULL, memory_type VARCHAR(20) NOT NULL,
    content JSONB NOT NULL, embedding VECTOR(384), importance FLOAT DEFAULT 0.5, access_count INTEGER DEFAULT 0,
    last_accessed TIMESTAMP, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX ON specified (agent_id, memory_type);
CREATE INDEX specified_embedding ON specified USING ivfflat (embedding vector_cosine_ops);
"""
# One HNSW for everybody, filtered afterwards, and no index on the filter: what most memory services on PostgreSQL do.
GLOBAL = """
CREATE TABLE everybody AS SELECT * FROM specified;
CREATE INDEX everybody_embedding ON everybody USING hnsw (embedding vector_cosine_ops);
ANALYZE everybody;
"""
FLOOR = """
CREATE TABLE narrow (agent_id text, id bigint, embedding halfvec(384));
ALTER TABLE narrow ALTER COLUMN embedding SET STORAGE PLAIN;
CREATE INDEX ON narrow (agent_id);
"""
_TOP = "SELECT id FROM {table} WHERE agent_id = $1 ORDER BY embedding {operator} $2 LIMIT 10"
Ask = Callable[[int, int], Awaitable[list[int]]]  # an agent's and a question's number; the memories' numbers
_ANYBODY = "SELECT id FROM specified ORDER BY embedding <=> $1 LIMIT 10"


@dataclass(frozen=True)
class Found:
    """One arm: milliseconds of one question at a time, and how much of the exact ten best it finds."""

    p50: float
    p99: float
    recall: float
    recall_large: float


async def load(dsn: str, agents: Sequence[Agent]) -> asyncpg.Connection:
    """Fills the arms' tables; `id` is the agent's number times a million plus the memory's."""
    connection = await asyncpg.connect(dsn, command_timeout=3600)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    await register_vector(connection)
    await connection.execute(SPECIFIED)
    await connection.execute(FLOOR)
    for number, agent in enumerate(agents):
        rows = list(enumerate(agent.texts))
        await connection.copy_records_to_table(
            "specified",
            records=[
                (number * 10**6 + i, agent.name, "semantic", f'{{"text":"{text}"}}', Vector(agent.matrix[i]))
                for i, text in rows
            ],
            columns=["id", "agent_id", "memory_type", "content", "embedding"],
        )
        records = [(agent.name, number * 10**6 + i, HalfVector(agent.matrix[i])) for i, _ in rows]
        await connection.copy_records_to_table("narrow", records=records)
    await connection.execute("ANALYZE specified; ANALYZE narrow")
    await connection.execute("SET maintenance_work_mem = '512MB'")
    await connection.execute(GLOBAL)
    return connection


async def measure(connection: asyncpg.Connection, agents: Sequence[Agent], questions: int) -> dict[str, Found]:
    """All arms on the same questions."""

    def ask(table: str, operator: str, kind: Any) -> Ask:
        statement = _TOP.format(table=table, operator=operator)

        async def one(agent: int, question: int) -> list[int]:
            asked = kind(agents[agent].asked[question])
            rows = await connection.fetch(statement, agents[agent].name, asked)
            return [row[0] - agent * 10**6 for row in rows]

        return one

    # Left to itself the planner of the literal schema reads by agent and sorts: exact, and slow for the large agent.
    # What its vector index finds is asked for apart, over everybody, as the specification's own retrieval does.
    return {
        "specified_schema": await serially(ask("specified", "<=>", Vector), agents, questions),
        "global_hnsw_where_agent": await serially(ask("everybody", "<=>", Vector), agents, questions),
        "asyncpg_floor": await serially(ask("narrow", "<#>", HalfVector), agents, questions),
        "numpy_floor": await serially(numpy_floor(agents), agents, questions),
    }


async def specified_index_recall(connection: asyncpg.Connection, agents: Sequence[Agent]) -> float:
    """Recall@10 of the specification's own ivfflat index over all agents' memories, default probes."""
    matrix = np.concatenate([agent.matrix for agent in agents])
    base = np.concatenate([np.arange(len(agent.texts)) + 10**6 * n for n, agent in enumerate(agents)])
    await connection.execute("SET enable_seqscan = off")
    shares = []
    for agent in agents[:: max(len(agents) // 50, 1)]:
        exact = set(base[np.argsort(-(matrix @ agent.asked[0]))[:10]].tolist())
        rows = await connection.fetch(_ANYBODY, Vector(agent.asked[0]))
        shares.append(len(exact & {row[0] for row in rows}) / 10)
    await connection.execute("RESET enable_seqscan")
    return round(float(np.mean(shares)), 4)


def numpy_floor(agents: Sequence[Agent]) -> Ask:
    """Brute force in this process."""

    async def ask(agent: int, question: int) -> list[int]:
        score = agents[agent].matrix @ agents[agent].asked[question]
        top = np.argpartition(-score, 10)[:10]
        return [int(place) for place in top[np.argsort(-score[top])]]

    return ask


async def serially(ask: Ask, agents: Sequence[Agent], questions: int) -> Found:
    """One question at a time, every agent by turns."""
    took: list[float] = []
    recall: list[float] = []
    large: list[float] = []
    for number in range(questions):
        agent = number % len(agents)
        question = number // len(agents) % len(agents[agent].questions)
        before = time.perf_counter()
        found = await ask(agent, question)
        took.append((time.perf_counter() - before) * 1000)
        share = len(set(found) & set(agents[agent].nearest(question).tolist())) / 10
        (large if agents[agent].name == "agent-large" else recall).append(share)
    p50, p99 = np.percentile(took, [50, 99])
    return Found(round(p50, 3), round(p99, 3), _mean(recall), _mean(large))


def _mean(values: list[float]) -> float:
    return round(float(np.mean(values)), 4) if values else float("nan")
