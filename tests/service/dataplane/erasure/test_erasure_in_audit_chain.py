"""The audit chain says that something was erased even where the erasure could not be brought to its end."""

from ..conftest import Api, running, settings


async def test_rows_that_are_gone_are_on_record_where_the_rest_could_not_be_erased(dsn, nats, tmp_path):
    values = settings(dsn, tmp_path, nats_url=nats.url)

    async def recorded(api: Api) -> list[tuple[str, str, int]]:
        await api.sealer.run("team-a")
        records = (await api.call("GET", "/api/v1/audit/records?action=agent.erased"))["records"]
        return [(one["outcome"], one["subject"], one["detail"]["rows"]["agent_memories"]) for one in records]

    begun = ("begun", "agent/helper", 1)
    async with running(**values) as api:
        note = {"agent_id": "helper", "memory_type": "semantic", "content": {"text": "likes tea"}}
        await api.call("POST", "/api/v1/memory/store", 201, json=note)
        nats.kill()
        await api.call("POST", "/api/v1/erasure", 503, json={"agent_id": "helper"})
        assert await recorded(api) == [begun]
    nats.start()
    async with running(**values) as api:
        receipt = await api.call("POST", "/api/v1/erasure", json={"agent_id": "helper"})
        assert await recorded(api) == [begun, ("begun", "agent/helper", 0), ("done", "agent/helper", 0)]
        last = f"/api/v1/audit/records?after={receipt['audit_seq'] - 2}"
        pair = (await api.call("GET", last))["records"]
        assert [one["detail"]["erasure_id"] for one in pair] == [receipt["erasure_id"]] * 2
        assert (await api.call("GET", "/api/v1/audit/verify"))["ok"]


async def test_an_opt_out_has_its_erasure_on_record(api: Api) -> None:
    await api.call("PUT", "/api/v1/users/anna/opt-out", 204)
    records = (await api.call("GET", "/api/v1/audit/records"))["records"][-3:]
    expected = [("user.opted-out", "done"), ("user.erased", "begun"), ("user.erased", "done")]
    assert [(one["action"], one["outcome"]) for one in records] == expected
    assert len({one["subject"] for one in records}) == 1
