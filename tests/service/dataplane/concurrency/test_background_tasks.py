"""Background work on the real PostgreSQL that refuses for a while."""

from ..conftest import Api, eventually, superuser
from ..recall.test_recall import ask, store

ROLE = "learnloop_service"


async def test_work_that_was_refused_is_named_and_goes_on_where_it_was(api: Api, dsn: str) -> None:
    await store(api, "walker", ["the gate opens at dawn"])
    async with superuser(dsn) as connection:
        await connection.execute(f"REVOKE INSERT ON recall_log FROM {ROLE}")
        await connection.execute(f"REVOKE SELECT ON tenants FROM {ROLE}")
        answers = [await ask(api, "walker", "gate") for _ in range(3)]
        stopped = {"recall log", "rewards", "audit", "vectors"}

        async def degraded():
            return (await api.call("GET", "/readyz"))["degraded"]

        async def named() -> bool:
            return stopped <= set(await degraded())

        await eventually(named)
        assert "InsufficientPrivilegeError" in (await degraded())["recall log"]
        assert 'learnloop_background_failures_total{work="audit"}' in (await api.call("GET", "/metrics")).text
        await connection.execute(f"GRANT INSERT ON recall_log TO {ROLE}")
        await connection.execute(f"GRANT SELECT ON tenants TO {ROLE}")

        async def logged() -> bool:
            rows = await connection.fetch("SELECT retrieval_id FROM recall_log WHERE agent_id = 'walker'")
            return {str(row["retrieval_id"]) for row in rows} >= {answer["retrieval_id"] for answer in answers}

        await eventually(logged)

        async def well() -> bool:
            return await degraded() == {}

        await eventually(well)
