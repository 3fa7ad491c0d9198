"""What an agent says came of its task: kept as it was then, redacted, and valid where it arrives."""

from typing import Any

import pytest

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Learnloop
from testing.servers.recording_server import DataPlane


async def recorded(output: Any, **more: Any) -> Trajectory:
    server = DataPlane()
    loop = Learnloop("asker", data_url=server.url)
    async with loop.episode("t", external=True) as episode:
        episode.record("a", 0.0, True, observation="x")
        episode.result(output, **more)
        if isinstance(output, dict):
            output["late"] = True
    assert await loop.flush(60) == 0
    await loop.close()
    server.shutdown()
    return Trajectory.model_validate_json(server.bodies()[0])


async def test_output_and_participants_arrive_as_they_were_said() -> None:
    agents = ["asker", {"agent": "helper", "without": 0.25}]
    found = await recorded({"city": "Rome"}, expected="Rome", task_type="geo", metadata={"k": 1}, agents=agents)
    assert found.result is not None
    assert (found.result.output, found.result.expected) == ({"city": "Rome"}, "Rome")
    assert (found.result.task_type, found.result.metadata) == ("geo", {"k": 1})
    assert found.result.participants() == {"asker": None, "helper": 0.25}


async def test_secrets_and_addresses_do_not_leave_the_process() -> None:
    found = await recorded("write to ann@example.org", expected={"password": "hunter2"})
    assert found.result is not None
    assert "ann@example.org" not in found.result.model_dump_json()
    assert "hunter2" not in found.result.model_dump_json()


async def test_what_json_has_not_is_refused_where_it_is_said() -> None:
    for wrong in (float("nan"), {1, 2}, object()):
        with pytest.raises(TypeError):
            await recorded(wrong)
