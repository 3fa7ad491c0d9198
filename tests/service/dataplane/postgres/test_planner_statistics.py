"""Tables that grow quickly are planned for as they are, not as they were when they were empty."""

from pathlib import Path

from learnloop_dataplane.postgres.database import Statistics

from ..conftest import eventually, running, settings, superuser

_FILL = """
INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision, started_at, ended_at,
    steps, status, episode_return, outcome_values, retrieval_ids, labels, remembered)
SELECT 'grown', $1 || i, 'agent', '', 'e', 'r', now(), now(), 1, 'completed', i, '{}', '[]', '{}', true
FROM generate_series(1, $2::int) i
"""
_ROWS = "SELECT reltuples FROM pg_class WHERE relname = 'trajectories'"


async def test_a_table_is_analyzed_when_it_has_doubled_and_not_before(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path)) as api, superuser(dsn) as connection:
        statistics = Statistics(api.db, dsn)
        await statistics.refresh()
        before = max(0, await connection.fetchval(_ROWS))
        await connection.execute(_FILL, "first", 2 * int(before) + 2000)

        async def noticed() -> bool:
            return bool(await connection.fetchval(_ROWS) >= before + 2000)

        await eventually(noticed)  # by the service itself
        await connection.execute(_FILL, "second", 10)
        assert "trajectories" not in await statistics.refresh()
