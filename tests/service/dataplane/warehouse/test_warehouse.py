"""The warehouse is ClickHouse's own engine, a process of its own that is spoken to over HTTP, as in production."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import clickhouse_connect
import pytest

from learnloop_dataplane import warehouse as shipping
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.warehouse import COLUMNS, ClickHouse
from testing.servers.clickhouse_server import START_SECONDS, ClickHouseServer
from testing.servers.ports import held_port

from ..conftest import Api, eventually, measured, running, settings, superuser, trajectory

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
FOREVER = {"since": datetime(2000, 1, 1, tzinfo=UTC), "until": datetime(2100, 1, 1, tzinfo=UTC), "before": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with held_port() as port:
        server = ClickHouseServer(tmp_path_factory.mktemp("warehouse"), port).start()
        yield server
        server.kill()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first statements of an engine take a busy machine more than the ten seconds of production."""
    monkeypatch.setitem(ClickHouse.__init__.__kwdefaults__, "timeout", START_SECONDS)


@pytest.fixture
def engine(server: ClickHouseServer) -> str:
    return server.dsn


def row(trajectory_id: str, **other) -> tuple:
    values = dict.fromkeys(COLUMNS, "") | {
        "namespace": "team-a",
        "trajectory_id": trajectory_id,
        "seq": 1,
        "agent_id": "walker",
        "started_at": NOW,
        "ended_at": NOW,
        "received_at": NOW,
        "steps": 3,
        "episode_return": 1.5,
        "success": None,
        "reward": None,
        "model_deployment": None,
        "reward_policy_revision": None,
        "version": 1,
    }
    return tuple((values | other)[name] for name in COLUMNS)


async def ids(warehouse: ClickHouse, namespace: str, agents: list[str] | None = None) -> list[str]:
    page = await warehouse.page(namespace, ["trajectory_id"], agents=agents, size=1000, **FOREVER)
    return [item["trajectory_id"] for item in page]


async def test_an_episode_sent_twice_is_one_and_the_later_version_counts(engine: str) -> None:
    warehouse = ClickHouse(engine, days=3650)
    await warehouse.insert([row("twice", agent_id="twins"), row("once", agent_id="twins", seq=2)])
    await warehouse.insert([row("twice", agent_id="twins", reward=0.25, version=2)])
    page = await warehouse.page("team-a", ["trajectory_id", "reward"], agents=["twins"], size=10, **FOREVER)
    assert {item["trajectory_id"]: item["reward"] for item in page} == {"twice": 0.25, "once": None}
    assert len(page) == 2
    await warehouse.close()


async def test_pages_go_on_where_the_one_before_ended_even_among_equal_times(engine: str) -> None:
    warehouse = ClickHouse(engine, days=3650)
    times = [NOW - timedelta(seconds=number // 3) for number in range(20)]
    rows = [row(f"p-{n:02}", agent_id="pages", received_at=at, seq=n) for n, at in enumerate(times)]
    await warehouse.insert(rows)
    trajectory_ids: list[str] = []
    position: tuple[datetime, str] = (NOW + timedelta(days=1), "")
    while True:
        page = await warehouse.page(
            "team-a",
            ["trajectory_id", "received_at"],
            agents=["pages"],
            since=NOW - timedelta(days=1),
            until=position[0],
            before=position[1],
            size=7,
        )
        trajectory_ids += [item["trajectory_id"] for item in page]
        if len(page) < 7:
            break
        position = page[-1]["received_at"], page[-1]["trajectory_id"]
    assert sorted(trajectory_ids) == [f"p-{n:02}" for n in range(20)]
    assert len(trajectory_ids) == 20
    await warehouse.close()


async def test_another_namespace_neither_reads_nor_erases(engine: str) -> None:
    warehouse = ClickHouse(engine, days=3650)
    await warehouse.insert([row("mine", agent_id="private", seq=77)])
    assert await ids(warehouse, "team-b", ["private"]) == []
    await warehouse.erase("team-b", "agent_id", "private")
    assert await ids(warehouse, "team-a", ["private"]) == ["mine"]
    await warehouse.erase("team-a", "agent_id", "private")
    assert await ids(warehouse, "team-a", ["private"]) == []
    with pytest.raises(ValueError, match="column=namespace"):
        await warehouse.erase("team-a", "namespace", "team-a")
    await warehouse.close()


async def test_what_looks_like_sql_is_a_value(engine: str) -> None:
    warehouse = ClickHouse(engine, days=3650)
    await warehouse.insert([row("kept", agent_id="quoted")])
    for value in ("' OR 1=1 --", "\\' OR 1=1 --", "{value:String}", "x'; DROP TABLE learnloop_trajectories; --"):
        await warehouse.erase("team-a", "agent_id", value)
        assert await ids(warehouse, value) == []
    assert await ids(warehouse, "team-a", ["quoted"]) == ["kept"]
    await warehouse.close()


async def test_what_the_server_acknowledged_is_on_disk(engine: str) -> None:
    warehouse = ClickHouse(engine, days=3650)
    await warehouse.insert([row("durable")])
    client = clickhouse_connect.get_client(dsn=engine)
    created = client.command("SELECT create_table_query FROM system.tables WHERE name = 'learnloop_trajectories'")
    assert "fsync_after_insert = 1, fsync_part_directory = 1" in str(created)
    client.close()
    await warehouse.close()


async def test_a_server_that_is_not_there_is_unavailable_within_its_time() -> None:
    warehouse = ClickHouse("clickhouse://absent:secret@127.0.0.1:9/none", days=30, timeout=2)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(warehouse.insert([row("lost")]), 120)
    await warehouse.close()


async def test_a_wrong_password_is_unavailable_and_not_an_empty_warehouse(engine: str) -> None:
    warehouse = ClickHouse(engine.replace("learnloop:", "learnloop:not-"), days=30)
    with pytest.raises(Unavailable):
        await ids(warehouse, "team-a")
    await warehouse.close()


def with_warehouse(dsn: str, directory: Path, engine: str, **changes) -> dict:
    return settings(dsn, directory, warehouse=engine, **changes)


async def stored(api: Api, identity: str, agent: str, namespace: str, **changes) -> None:
    body = trajectory(identity, agent, **changes)
    await api.call("POST", "/api/v1/trajectories", 202, namespace=namespace, json=body)


async def registered(api: Api, agent: str, namespace: str) -> None:
    policy = {
        "components": [{"name": "return", "type": "environment", "weight": 1}],
        "normalisation": {"method": "none"},
    }
    await api.call("PUT", "/api/v1/rewards/policies/p/revisions/r1", namespace=namespace, json=policy)
    body = {"reward_policy": "p", "reward_policy_revision": "r1"}
    await api.call("PUT", f"/api/v1/agents/{agent}", namespace=namespace, json=body)


async def in_warehouse(api: Api, namespace: str, identity: str, *columns: str) -> dict | None:
    page = await api.plane.shared.warehouse.page(
        namespace, ["trajectory_id", *columns], agents=None, size=1000, **FOREVER
    )
    return next((dict(item) for item in page if item["trajectory_id"] == identity), None)


async def test_an_episode_goes_with_its_reward_and_again_when_people_change_it(dsn, tmp_path, engine):
    async with running(**with_warehouse(dsn, tmp_path, engine)) as api:
        await registered(api, "liked", "ship")
        await stored(api, "s-1", "liked", "ship", episode_return=4.0)
        first = await eventually(lambda: in_warehouse(api, "ship", "s-1", "reward", "components", "log"))
        assert first["reward"] == 4.0
        assert '"return"' in first["components"]
        assert first["log"].count("log_prob") == 3, "whole episodes: what is learned from later"
        opinion = {"trajectory_id": "s-1", "user_id": "anna", "thumbs": "up"}
        await api.call("POST", "/api/v1/feedback", namespace="ship", json=opinion)

        async def corrected() -> bool:
            episode = await in_warehouse(api, "ship", "s-1", "outcome_values")
            return episode is not None and "feedback" in episode["outcome_values"]

        await eventually(corrected)
        await measured(api, 'learnloop_warehouse_episodes_total{namespace="ship"} 2.0')


async def test_a_namespace_with_much_to_ship_takes_turns_with_those_that_have_little(
    dsn: str, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "BATCH", 2)
    # A reward that is being announced holds its row: the turn waits for it here.
    monkeypatch.setattr(shipping, "_WAITING", shipping._WAITING.replace("SKIP LOCKED", ""))
    went: list[str] = []
    insert = ClickHouse.insert

    async def ship(warehouse: ClickHouse, rows) -> None:
        went.extend(row[0] for row in rows)
        await insert(warehouse, rows)

    monkeypatch.setattr(ClickHouse, "insert", ship)
    async with running(**settings(dsn, tmp_path)) as api:
        for namespace, count in (("turns-busy", 9), ("turns-calm", 1)):
            await registered(api, "one", namespace)
            for number in range(count):
                await stored(api, f"t-{number}", "one", namespace)

        async def rewarded() -> bool:
            stats = await api.call("GET", "/api/v1/agents/one/stats", namespace="turns-busy")
            calm = await api.call("GET", "/api/v1/agents/one/stats", namespace="turns-calm")
            return bool(stats["rewarded"] == 9 and calm["rewarded"] == 1)

        await eventually(rewarded)
    async with running(**with_warehouse(dsn, tmp_path, engine)) as api:
        await eventually(lambda: in_warehouse(api, "turns-busy", "t-8"))
        await eventually(lambda: in_warehouse(api, "turns-calm", "t-0"))
    own = [namespace for namespace in went if namespace.startswith("turns-")]
    assert own.index("turns-calm") <= 2, own


async def test_whoever_opts_out_leaves_the_warehouse_too(dsn: str, tmp_path: Path, engine: str) -> None:
    async with running(**with_warehouse(dsn, tmp_path, engine)) as api:
        await registered(api, "guide", "people")
        await stored(api, "of-anna", "guide", "people", metadata={"user_id": "anna"})
        await stored(api, "of-ben", "guide", "people", metadata={"user_id": "ben"})
        await eventually(lambda: in_warehouse(api, "people", "of-anna"))
        await eventually(lambda: in_warehouse(api, "people", "of-ben"))
        await api.call("PUT", "/api/v1/users/anna/opt-out", namespace="people", status=204)
        assert await in_warehouse(api, "people", "of-anna") is None
        assert await in_warehouse(api, "people", "of-ben") is not None
        async with superuser(dsn) as connection:
            left = await connection.fetchval("SELECT value FROM warehouse_erasures")
            assert left.startswith("user:"), "once more in a minute: an insert of before may still arrive"


async def test_there_is_no_receipt_before_the_warehouse_has_erased(dsn, tmp_path, server):
    async with running(**with_warehouse(dsn, tmp_path, server.dsn)) as api:
        await registered(api, "guide", "proof")
        await stored(api, "of-eva", "guide", "proof", metadata={"user_id": "eva"})
        await eventually(lambda: in_warehouse(api, "proof", "of-eva"))
        server.kill()
        body = {"user_id": "eva"}
        refused = await api.call("POST", "/api/v1/erasure", 503, namespace="proof", json=body)
        assert "the rows in the warehouse are not yet" in refused["error"]["message"]
        await asyncio.to_thread(server.start)

        async def receipt():
            headers = {"x-learnloop-namespace": "proof"}
            answer = await api.client.post("/api/v1/erasure", json=body, headers=headers)
            return answer.json() if answer.status_code == 200 else None

        assert (await eventually(receipt))["warehouse"] == "erased"
        assert await in_warehouse(api, "proof", "of-eva") is None


async def test_old_episodes_stay_until_the_warehouse_has_them(dsn: str, tmp_path: Path, engine: str) -> None:
    async def age() -> None:
        async with superuser(dsn) as connection:
            await connection.execute(
                "UPDATE trajectories SET received_at = date_trunc('hour', now()) - interval '40 days' "
                "WHERE namespace = 'old' AND trajectory_id = 'long-ago'"
            )

    dead = "clickhouse://absent@127.0.0.1:9/none"
    async with running(**settings(dsn, tmp_path, warehouse=dead)) as api:
        await registered(api, "veteran", "old")
        await stored(api, "long-ago", "veteran", "old", episode_return=7.0)
        await stored(api, "today", "veteran", "old", episode_return=1.0)

        async def rewarded() -> bool:
            stats = await api.call("GET", "/api/v1/agents/veteran/stats", namespace="old")
            return bool(stats["rewarded"] == 2)

        await eventually(rewarded)
        await age()
        await api.privacy.retention.run()
        async with superuser(dsn) as connection:
            assert await connection.fetchval("SELECT count(*) FROM trajectories WHERE namespace = 'old'") == 2
    async with running(**with_warehouse(dsn, tmp_path, engine)) as api:
        await eventually(lambda: in_warehouse(api, "old", "long-ago"))
        await eventually(lambda: in_warehouse(api, "old", "today"))

        async def only_today() -> bool:  # an episode is marked a moment after the warehouse has it
            await api.privacy.retention.run()
            async with superuser(dsn) as connection:
                rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = 'old'")
            return [item["trajectory_id"] for item in rows] == ["today"]

        await eventually(only_today)


async def test_a_server_killed_again_and_again_under_load_loses_nothing_and_counts_nothing_twice(
    dsn: str, tmp_path: Path, server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop_dataplane.assembly.experience_parts.SHIP_SECONDS", 0.02)
    monkeypatch.setattr("learnloop_dataplane.concurrency.background_loop.AWAY_SECONDS", 0.1)
    count, kills = 300, 4
    async with running(**with_warehouse(dsn, tmp_path, server.dsn)) as api:
        await registered(api, "busy", "fire")

        async def record() -> None:
            for number in range(count):
                await stored(api, f"f-{number}", "busy", "fire", episode_return=number / 100)

        recording = asyncio.create_task(record())
        for _ in range(kills):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.1)
            await asyncio.to_thread(server.start)
        await recording

        async def shipped() -> bool:
            async with superuser(dsn) as connection:
                query = "SELECT count(*) FROM trajectories WHERE namespace = 'fire' AND warehoused AND reward >= 0"
                return bool(await connection.fetchval(query) == count)

        await eventually(shipped)
        page = await api.plane.shared.warehouse.page(
            "fire", ["trajectory_id", "reward"], agents=None, size=10_000, **FOREVER
        )
        assert sorted(item["trajectory_id"] for item in page) == sorted(f"f-{number}" for number in range(count))
        assert {item["trajectory_id"]: item["reward"] for item in page} == {f"f-{n}": n / 100 for n in range(count)}
