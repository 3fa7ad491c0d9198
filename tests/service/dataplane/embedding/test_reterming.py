"""Rows that another analyzer cut are cut again while recall goes on, and are then found by any inflection."""

from pathlib import Path

from ..conftest import eventually, running, settings, superuser
from ..recall.test_recall import ask, store

OLD = """
UPDATE memory_index SET analyzer = 'older',
    terms = (SELECT terms FROM memory_index WHERE agent_id = 'stranger' LIMIT 1) WHERE agent_id = 'upgraded'
"""
LEFT = "SELECT count(*) FROM memory_index WHERE analyzer IS DISTINCT FROM 'english-5'"


async def test_rows_from_before_an_upgrade_are_cut_again(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1")) as api:
        ids = await store(api, "upgraded", [f"she was camping near lake number{n}" for n in range(700)])
        await store(api, "stranger", ["nothing of the kind"])
        async with superuser(dsn) as watcher:
            await watcher.execute(OLD)
            assert await watcher.fetchval(LEFT) == 700
    async with running(**settings(dsn, tmp_path, sweep_seconds="0.1")) as api:

        async def cut() -> bool:
            async with superuser(dsn) as watcher:
                return await watcher.fetchval(LEFT) == 0

        await eventually(cut)
        assert (await ask(api, "upgraded", "camps by the number123"))["memories"][0]["id"] == ids[123]
