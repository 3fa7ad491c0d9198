"""What the database holds in the end, beside what the agents took charge of."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import asyncpg

SETTLE_SECONDS = 180.0
LOOK_SECONDS = 1.0
_EPISODES = """
SELECT labels ->> 'number' AS number, labels ->> 'continues' AS continues, reward IS NULL AS unrewarded
FROM trajectories
"""
_TOTALS = """
SELECT (SELECT count(*) FROM trajectories) AS rows,
    (SELECT count(*) FROM training_transitions) AS transitions,
    (SELECT count(*) FROM reward_history) AS rewards,
    (SELECT coalesce(sum(trajectories), 0)::bigint FROM agents) AS counted,
    (SELECT coalesce(sum(rewarded), 0)::bigint FROM agents) AS counted_rewards
"""
_MEMORIES = "SELECT content ->> 'number' AS number FROM agent_memories WHERE content ? 'number'"


async def counted(dsn: str, episodes: Iterable[str], memories: Iterable[str]) -> dict[str, Any]:
    """The figures, once everything taken in charge is stored and rewarded, or after `SETTLE_SECONDS` as they are."""
    deadline = time.monotonic() + SETTLE_SECONDS
    wanted, kept = Counter(episodes), Counter(memories)
    while True:
        connection = await asyncpg.connect(dsn)
        try:
            rows = await connection.fetch(_EPISODES)
            totals = dict(await connection.fetchrow(_TOTALS))
            remembered = Counter(row["number"] for row in await connection.fetch(_MEMORIES))
        finally:
            await connection.close()
        found = _figures(wanted, kept, rows, totals, remembered)
        if not (found["lost"] or found["unrewarded"]) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(LOOK_SECONDS)


def _figures(
    wanted: Counter[str], kept: Counter[str], rows: list[Any], totals: dict[str, int], remembered: Counter[str]
) -> dict[str, Any]:
    stored = Counter(row["number"] for row in rows if row["continues"] is None)
    number = totals["rows"]
    lost = (
        (wanted - stored).total()
        + (kept - remembered).total()
        + sum(max(0, number - totals[name]) for name in ("transitions", "rewards", "counted", "counted_rewards"))
    )
    twice = sum(count - 1 for count in [*stored.values(), *remembered.values()]) + sum(
        max(0, totals[name] - number) for name in ("transitions", "rewards", "counted", "counted_rewards")
    )
    return {
        "episodes": wanted.total(),
        "memories": kept.total(),
        "lost": lost,
        "counted_twice": twice,
        "unrewarded": sum(row["unrewarded"] for row in rows),
        "episodes_divided": number - stored.total(),
    }
