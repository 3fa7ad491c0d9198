"""What the operator says to the data plane, and the token it says it with."""

from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.core.plan import Call
from learnloop_operator.data_plane import DataPlane, DataPlaneUnavailable, TokenFile
from testing.servers.ports import held_port


async def test_the_data_plane_is_asked_for_the_objects_namespace_and_held_when_down(wire: Any) -> None:
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


async def test_a_memory_service_sends_the_operator_nowhere_else(wire: Any) -> None:
    wire.answer(302, headers={"location": f"{wire.url}/latest/meta-data"})
    wire.answer(200, {"degraded": {"role": "its credentials"}})
    client = DataPlane("http://nowhere.invalid", "/nonexistent", timeout=60)
    assert await client.degraded(wire.url) is None
    assert [path for _, path, _ in wire.asked] == ["/readyz"]
    await client.close()


async def test_a_token_is_read_again_after_a_minute_and_none_is_no_error(tmp_path: Path) -> None:
    now = [0.0]
    file = TokenFile(tmp_path / "token", lambda: now[0])
    assert await file.token() is None
    (tmp_path / "token").write_text("first\n")
    now[0] = 61.0
    assert await file.token() == "first"
    (tmp_path / "token").write_text("second")
    assert await file.token() == "first"
    now[0] = 122.0
    assert await file.token() == "second"
