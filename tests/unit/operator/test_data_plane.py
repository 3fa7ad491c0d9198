"""The operator's requests to the data plane, and their token."""

from pathlib import Path

import pytest
from aiohttp import web

from learnloop_operator.core.plan import Call
from learnloop_operator.data_plane_client import DataPlane, DataPlaneUnavailable
from testing.servers.ports import held_port


async def test_the_data_plane_is_asked_for_the_objects_namespace_and_held_when_down(wire) -> None:
    wire.answer(404)
    wire.answer(200, {"job": "t", "surprise": 1})
    wire.answer(503, {"error": {"message": "NATS is down"}})
    client = DataPlane(wire.url, "/nonexistent", timeout=60)
    assert await client.run("ns", "t") is None
    with pytest.raises(DataPlaneUnavailable, match=r"breaks the contract at surprise"):
        await client.run("ns", "t")
    with pytest.raises(DataPlaneUnavailable, match="NATS is down"):
        await client.call("ns", Call("DELETE", "/api/v1/training/runs/t"))
    await client.close()
    with held_port() as dead, pytest.raises(DataPlaneUnavailable, match="does not answer"):
        await DataPlane(f"http://127.0.0.1:{dead}", "/nonexistent").run("ns", "t")


async def test_a_renewed_token_goes_with_the_next_request(wire, tmp_path: Path) -> None:
    file = tmp_path / "token"
    data, authorizations = DataPlane(wire.url, str(file)), list[str | None]()

    async def keep(request: web.Request) -> web.Response:
        authorizations.append(request.headers.get("Authorization"))
        return web.json_response({}, status=404)

    wire.script.append(keep)
    for content in (None, "first\n", "second"):
        if content:
            file.write_text(content)
        await data.run("ns", "job")
    assert authorizations == [None, "Bearer first", "Bearer second"]
    await data.close()
