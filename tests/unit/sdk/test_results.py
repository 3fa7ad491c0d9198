"""An agent's result of its task: kept as it was then, redacted, and valid where it arrives."""

import pytest

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Learnloop
from testing.servers.recording_server import DataPlane


async def recorded(output, **more) -> Trajectory:
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
    trajectory = await recorded({"city": "Rome"}, expected="Rome", task_type="geo", metadata={"k": 1}, agents=agents)
    assert (trajectory.result.output, trajectory.result.expected) == ({"city": "Rome"}, "Rome")
    assert (trajectory.result.task_type, trajectory.result.metadata) == ("geo", {"k": 1})
    assert trajectory.result.participants() == {"asker": None, "helper": 0.25}


async def test_secrets_and_addresses_do_not_leave_the_process() -> None:
    trajectory = await recorded("write to ann@example.org", expected={"password": "hunter2"})
    assert "ann@example.org" not in trajectory.result.model_dump_json()
    assert "hunter2" not in trajectory.result.model_dump_json()


async def test_what_json_has_not_is_refused_where_it_is_said() -> None:
    for wrong in (float("nan"), {1, 2}, object()):
        with pytest.raises(TypeError):
            await recorded(wrong)


async def test_an_agent_that_helps_names_the_task_it_helped_in() -> None:
    server = DataPlane()
    lead, helper = Learnloop("lead", data_url=server.url), Learnloop("helper", data_url=server.url)
    async with lead.episode("t", external=True) as task, lead.episode("t", external=True) as alone:
        async with helper.episode("part", external=True, joint_task=task.joint_task) as help_:
            help_.record("a", 0.0, True, observation="x")
        for episode in (task, alone):
            episode.record("a", 0.0, True, observation="x")
        assert task.joint_task == help_.joint_task
    for loop in (lead, helper):
        assert await loop.flush(60) == 0
        await loop.close()
    server.shutdown()
    trajectories = [Trajectory.model_validate_json(body) for body in server.bodies()]
    named = {one.trajectory_id: one.metadata.get("joint_task") for one in trajectories}
    assert sorted(named.values(), key=str) == sorted([task.joint_task, task.joint_task, None], key=str)
    wrong = "joint_task: '<EMAIL>'"
    with pytest.raises(ValueError, match=wrong):
        helper.episode("part", external=True, joint_task="<EMAIL>")
