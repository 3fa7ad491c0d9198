"""Several servers: another one takes over, and what makes a cluster's tables is what ClickHouse understands.

The engine here is a library without Keeper. So two servers stand for the replicas, each with tables of its own, and
what a cluster is told is read by the engine's own parser.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import clickhouse_connect
import pytest

from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.warehouse.clickhouse import COLUMNS, PART, TABLE, ClickHouse, cluster_statements, literal, mark
from testing.servers.clickhouse_server import START_SECONDS, ClickHouseServer
from testing.servers.ports import held_port

from .test_warehouse import ids, row


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClickHouseServer]]:
    with held_port() as one, held_port() as two:
        ports = one, two
        servers = [ClickHouseServer(tmp_path_factory.mktemp("replica"), port).start() for port in ports]
        yield servers
        for server in servers:
            server.kill()


def both(pair: list[ClickHouseServer]) -> str:
    """One URL of both."""
    first, second = (server.dsn.rpartition("@") for server in pair)
    return f"{first[0]}@{first[2].split('/')[0]},{second[2]}"


def said(server: ClickHouseServer, statement: str) -> Any:
    client = clickhouse_connect.get_client(dsn=server.dsn)
    try:
        return client.command(statement)
    finally:
        client.close()


async def test_another_server_takes_over_from_one_that_died_and_it_again_from_the_other(
    pair: list[ClickHouseServer],
) -> None:
    warehouse = ClickHouse(both(pair), days=3650, timeout=START_SECONDS)
    await warehouse.insert([row("first")])
    assert said(pair[0], f"SELECT count() FROM {TABLE}") == 1
    await asyncio.to_thread(pair[0].kill)
    await warehouse.insert([row("second")])
    assert await ids(warehouse, "team-a") == ["second"]
    await asyncio.to_thread(pair[0].start)
    assert await ids(warehouse, "team-a") == ["second"], "the one that answered last is asked first"
    await asyncio.to_thread(pair[1].kill)
    assert await ids(warehouse, "team-a") == ["first"]
    await asyncio.to_thread(pair[0].kill)
    with pytest.raises(Unavailable):
        await ids(warehouse, "team-a")
    for server in pair:
        await asyncio.to_thread(server.start)
    assert len(await ids(warehouse, "team-a")) == 1
    await warehouse.close()


def test_what_makes_a_cluster_is_read_by_clickhouse_s_own_parser(pair: list[ClickHouseServer]) -> None:
    client = clickhouse_connect.get_client(dsn=pair[0].dsn)
    found = [
        str(client.query(f"SELECT formatQuerySingleLine({literal(statement)})").first_row[0])
        for statement in cluster_statements(90, "{cluster}", "it's")
    ]
    client.close()
    assert all("ON CLUSTER `{cluster}`" in statement for statement in found)
    part, whole = found[0], found[3]
    assert part.startswith(f"CREATE TABLE IF NOT EXISTS {PART} ON CLUSTER")
    assert "ENGINE = ReplicatedReplacingMergeTree(version) PARTITION BY toYYYYMM(received_at)" in part
    assert all(f" `{column}` " in part or f"(`{column}` " in part for column in COLUMNS)
    assert f"{TABLE} ON CLUSTER `{{cluster}}` AS {PART} ENGINE = Distributed('{{cluster}}', 'it\\'s'," in whole
    assert f" {PART}, cityHash64(namespace, trajectory_id))" in whole
    assert "toIntervalDay(90)" in found[2]
    assert f"MODIFY COMMENT '{mark(90)}'" in found[-1], "the last: before it the tables are not whole"


async def test_a_server_where_the_cluster_s_tables_are_is_used_though_others_are_away(
    pair: list[ClickHouseServer],
) -> None:
    """Nothing is said to the whole cluster then: it would wait for every server. Here that fails: there is none."""
    warehouse = ClickHouse(pair[0].dsn, days=30, timeout=START_SECONDS, cluster="several")
    with pytest.raises(Unavailable):
        await ids(warehouse, "team-a")
    made = cluster_statements(30, "several", "default")
    for statement in (made[0], f"CREATE TABLE IF NOT EXISTS {TABLE} AS {PART}", made[-1]):
        said(pair[0], statement.replace("ON CLUSTER 'several'", "").replace("Replicated", ""))
    assert isinstance(await ids(warehouse, "team-a"), list)
    with pytest.raises(Unavailable):
        await warehouse.erase("team-a", "agent_id", "walker")
    other = ClickHouse(pair[0].dsn, days=31, timeout=START_SECONDS, cluster="several")
    with pytest.raises(Unavailable):
        await ids(other, "team-a")
    await warehouse.close()
    await other.close()
