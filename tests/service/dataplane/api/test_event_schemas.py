"""The events' JSON Schemas, as the service gives them out."""

from learnloop_api import events

from ..conftest import Api


async def test_schemas_are_served_under_their_subjects(api: Api) -> None:
    listed = (await api.call("GET", "/api/v1/schemas"))["schemas"]
    assert [item["subject"] for item in listed] == list(events.EVENTS)
    for item in listed:
        answer = await api.call("GET", item["href"])
        assert answer.headers["content-type"] == "application/schema+json"
        assert answer.json() == events.schema(item["subject"])
    refused = await api.call("GET", "/api/v1/schemas/agent.rl.nothing.v1", 404)
    assert "agent.rl.trajectory.v1" in refused["error"]["message"]
