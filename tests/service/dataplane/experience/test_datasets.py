"""Learners' reads: pages that nothing moves, filters that all hold, from PostgreSQL and from the warehouse."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop_api.wire.trajectory import EpisodePage
from learnloop_dataplane.warehouse import ClickHouse
from testing.servers.clickhouse_server import START_SECONDS, ClickHouseServer
from testing.servers.ports import held_port

from ..conftest import Api, eventually, running, settings, trajectory

PATH = "/api/v1/experience/trajectories"
SUCCESS = {"components": [{"name": "won", "type": "success", "weight": 1}], "normalisation": {"method": "none"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with held_port() as port:
        server = ClickHouseServer(tmp_path_factory.mktemp("warehouse"), port).start()
        yield server
        server.kill()


@pytest.fixture
async def api(
    dsn: str, tmp_path: Path, server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """A service with both sources, and no NATS: what is accepted is stored."""
    monkeypatch.setitem(ClickHouse.__init__.__kwdefaults__, "timeout", START_SECONDS)
    async with running(**settings(dsn, tmp_path, warehouse=server.dsn)) as served:
        yield served


async def page(api: Api, **where) -> EpisodePage:
    return EpisodePage.model_validate(await api.call("GET", PATH, params=where))


async def whole(api: Api, **where) -> list[str]:
    """Ids of all pages, one after another."""
    ids: list[str] = []
    after: dict[str, str] = {}
    while True:
        read = await page(api, **where, **after)
        ids += [episode.trajectory_id for episode in read.trajectories]
        if read.next is None:
            return ids
        after = {"after": read.next}


async def put(api: Api, identity: str, agent: str, **changes) -> None:
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(identity, agent, **changes))


async def test_an_episode_comes_back_as_it_was_told(api: Api) -> None:
    steps = [{"observation": [1.0], "action": [0.5], "reward": 1.0, "log_prob": -0.1}]
    outcome = {"status": "completed", "episode_return": 1.0, "success": True, "values": {"feedback": 0.5}}
    await put(api, "told", "teller", steps=steps, last_observation=[2.0], outcome=outcome)
    await put(api, "older", "teller")
    older, read = (await page(api, agent="teller")).trajectories
    assert (read.trajectory_id, read.policy_revision, read.success) == ("told", "3f9a2c81", True)
    assert (read.status, read.episode_return) == ("completed", 1.0)
    assert (read.steps[0].action, read.steps[0].log_prob, read.values) == ([0.5], -0.1, {"feedback": 0.5})
    assert (read.last_observation, older.last_observation) == ([2.0], None)


async def test_what_arrives_while_somebody_reads_is_neither_read_twice_nor_moves_a_page(api: Api) -> None:
    for number in range(7):
        await put(api, f"p{number}", "paged")
    first = await page(api, agent="paged", limit=3)
    for number in range(7, 10):
        await put(api, f"p{number}", "paged")
    rest: list[str] = []
    mark = first.next
    while mark is not None:
        read = await page(api, agent="paged", limit=3, after=mark)
        rest += [episode.trajectory_id for episode in read.trajectories]
        mark = read.next
    assert [one.trajectory_id for one in first.trajectories] + rest == [f"p{n}" for n in (6, 5, 4, 3, 2, 1, 0)]
    assert (await whole(api, agent="paged", limit=4))[:3] == ["p9", "p8", "p7"], "the next run reads them"


async def filtered(api: Api, source: str) -> None:
    """Each filter by itself, and two together."""
    agent = f"chosen-{source}"
    await api.call("PUT", "/api/v1/rewards/policies/wins/revisions/r1", json=SUCCESS)
    await api.call("PUT", f"/api/v1/agents/{agent}", json={"reward_policy": "wins", "reward_policy_revision": "r1"})
    won = {"status": "completed", "episode_return": 1.0, "success": True}
    lost = {"status": "completed", "episode_return": 1.0, "success": False}
    await put(api, f"{source}-a", agent, outcome=won, task="climb", metadata={"opted_in": "true"})
    await put(api, f"{source}-b", agent, outcome=lost, task="climb")
    between = datetime.now(UTC)
    await put(api, f"{source}-c", agent, outcome=won, task="swim", policy_revision="00000001")

    async def matching(**where) -> str:
        ids = await whole(api, agent=agent, source=source, **where)
        return "".join(one.removeprefix(f"{source}-") for one in ids)

    async def rewarded() -> bool:
        return await matching(min_reward=0, max_reward=1) == "cba"

    await eventually(rewarded)
    assert await matching() == await matching(limit=1) == await matching(tasks=["climb", "swim"]) == "cba"
    assert await matching(min_reward=0.5) == await matching(success="true") == "ca"
    assert await matching(max_reward=0.5) == await matching(success="false") == "b"
    assert await matching(tasks=["climb"]) == await matching(until=between.isoformat()) == "ba"
    assert await matching(since=between.isoformat()) == await matching(model_revisions=["00000001"]) == "c"
    assert await matching(opted_in="true") == "a"
    assert await matching(tasks=["climb"], success="true") == "a"


async def test_filters_choose_what_postgresql_has(api: Api) -> None:
    await filtered(api, "postgresql")


async def test_filters_choose_what_the_warehouse_has(api: Api) -> None:
    await filtered(api, "clickhouse")
    [first] = (await page(api, agent="chosen-clickhouse", source="clickhouse", limit=1)).trajectories
    assert (len(first.steps), first.last_observation) == (3, None)


async def test_who_opted_out_is_not_read_even_where_the_warehouse_still_has_it(api: Api) -> None:
    for number, user in enumerate(("anna", "berta")):
        await put(api, f"o{number}", "owned", metadata={"user_id": user}, last_observation=[1.0, 2.0, 3.0, 4.0])

    async def shipped() -> bool:
        return await whole(api, agent="owned", source="clickhouse") == ["o1", "o0"]

    await eventually(shipped)
    [newest, _] = (await page(api, agent="owned", source="clickhouse")).trajectories
    assert newest.last_observation == [1.0, 2.0, 3.0, 4.0]
    await api.call("PUT", "/api/v1/users/anna/opt-out", 204)
    assert await whole(api, agent="owned", source="clickhouse") == ["o1"]
    assert await whole(api, agent="owned") == ["o1"]


async def test_wrong_questions_are_answered_with_field_and_fix(api: Api, dsn: str, tmp_path: Path) -> None:
    for where, words in (
        ({"after": "7,older"}, "this page is of another source"),
        ({"after": "7", "source": "clickhouse"}, "this page is of another source"),
        ({"after": "x"}, "after"),
        ({"since": "yesterday"}, "since"),
        ({"tasks": ["t"] * 17}, "tasks"),
        ({"source": "redis"}, "source"),
    ):
        answer = await api.call("GET", PATH, 422, params={"agent": "asker", **where})
        assert words in str(answer), answer
    far = {"agent": "asker", "source": "clickhouse", "after": "9" * 18 + ",x", "since": "0001-01-01T00:00:00Z"}
    assert (await page(api, **far)).trajectories == []
    for source in ("postgresql", "clickhouse"):
        for window in ({"until": "0001-01-01T00:00:00Z"}, {"since": "9999-12-31T23:59:59Z"}):
            assert (await page(api, agent="asker", source=source, **window)).trajectories == []
    async with running(**settings(dsn, tmp_path)) as plain:
        answer = await plain.call("GET", PATH, 409, params={"agent": "asker", "source": "clickhouse"})
        assert "this installation has no warehouse; set source to postgresql" in str(answer)


async def test_scores_of_a_policys_evaluators_come_along_where_it_is_named(api: Api) -> None:
    spec = {"components": [{"name": "right", "type": "evaluator", "weight": 1, "evaluator": {"type": "exact"}}]}
    await api.call("PUT", "/api/v1/rewards/policies/exactly/revisions/r1", json=spec)
    await api.call("PUT", "/api/v1/agents/answerer", json={"reward_policy": "exactly", "reward_policy_revision": "r1"})
    await put(api, "right", "answerer", result={"output": "4", "expected": "4"})
    named = {"reward_policy": "exactly", "reward_policy_revision": "r1"}

    async def scored():
        return (await page(api, agent="answerer", **named)).trajectories[0].scores

    assert await eventually(scored) == {"right": 1.0}
    assert (await page(api, agent="answerer")).trajectories[0].scores == {}


async def test_a_published_policy_can_be_read_again(api: Api) -> None:
    await api.call("PUT", "/api/v1/rewards/policies/read/revisions/r1", json=SUCCESS)
    revision = await api.call("GET", "/api/v1/rewards/policies/read/revisions/r1")
    assert revision["components"][0]["name"] == "won"
    await api.call("GET", "/api/v1/rewards/policies/read/revisions/r2", 404)
