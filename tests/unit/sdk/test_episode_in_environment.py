import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Learnloop, LearnloopError, StepResult, execute_with_learning
from learnloop_sdk.environment_actor import Options, Pace
from testing.servers.policy_servers import STABLE

Make = Callable[..., Learnloop]


async def test_a_gymnasium_environment_learns_by_its_name(learn: Make, data_plane) -> None:
    loop = learn(data_url=data_plane.url)
    result = await execute_with_learning(loop, "CartPole-v1", task="CartPole-v1", success_return=1000)
    assert result.revision == STABLE
    assert result.length == result.episode_return > 5
    assert result.success is False
    await loop.flush(60)
    trajectory = Trajectory.model_validate_json(data_plane.bodies()[0])
    assert len(trajectory.steps) == result.length
    assert trajectory.steps[-1].terminated


async def test_numbers_of_a_gymnasium_info_are_outcome_values(learn: Make, data_plane) -> None:
    class Wall:
        def reset(self) -> tuple[list[float], dict]:
            return [0.0] * 4, {}

        def step(self, action: int) -> tuple[list[float], float, bool, bool, dict]:
            return [0.0] * 4, 1.0, False, False, {"hits": True, "where": "east", "success": 1, 7: 1, "self": 2}

    loop = learn(data_url=data_plane.url)
    await execute_with_learning(loop, Wall(), max_steps=3)
    await loop.flush(60)
    values = Trajectory.model_validate_json(data_plane.bodies()[0]).outcome.values
    assert {name: values[name] for name in values if "self" not in name} == {
        "hits": 3.0,
        "hits.last": 1.0,
        "hits.max": 1.0,
    }


async def test_a_step_function_of_an_external_agent_learns(learn: Make, data_plane) -> None:
    data_plane.answers["/api/v1/memory/retrieve"] = (200, b'{"memories":[{"hint":"b"}],"retrieval_id":"r"}')

    async def ticket(action) -> StepResult:
        if action is None:
            return StepResult("customer cannot log in")
        solved = action["tool"] == "reset"
        return StepResult("done", 1.0 if solved else -1.0, terminated=True, success=solved, values={"tool_errors": 0})

    async def decide(observation, memories: list[dict]):
        assert observation == "customer cannot log in"
        return {"tool": "reset" if memories else "shrug"}

    loop = learn(data_url=data_plane.url)
    result = await execute_with_learning(loop, ticket, task="ticket", act=decide, revision="agent-1.2", recall=3)
    assert (result.revision, result.success, result.recalled, result.length) == ("agent-1.2", True, 1, 1)
    await loop.flush(60)
    trajectory = Trajectory.model_validate_json(data_plane.bodies()[0])
    assert trajectory.steps[0].action == {"tool": "reset"}
    assert trajectory.retrieval_ids == ["r"]
    assert trajectory.outcome.values == {"tool_errors": 0.0}


async def test_a_step_function_can_be_driven_by_the_served_policy_and_is_cut_off_in_time(learn: Make) -> None:
    def endless(action) -> StepResult:
        return StepResult([0.0, 0.0, 0.0, 0.0], reward=1.0)

    result = await execute_with_learning(learn(), endless, max_steps=7)
    assert (result.length, result.episode_return) == (7, 7.0)


async def test_what_was_seen_after_the_last_step_is_recorded(learn: Make, data_plane) -> None:
    observations = iter(range(1, 99))

    def counting(action) -> StepResult:
        return StepResult([0.0, 0.0, 0.0, float(next(observations))], reward=1.0)

    loop = learn(data_url=data_plane.url)
    await execute_with_learning(loop, counting, max_steps=3)
    await execute_with_learning(
        loop, lambda _: StepResult({"page": 2}, terminated=True), act=lambda *_: "click", revision="r"
    )
    await loop.flush(60)
    sent = [Trajectory.model_validate_json(body) for body in data_plane.bodies()]
    ended, cut = sorted(sent, key=lambda one: one.policy_revision != "r")  # objects are encoded first, numbers later
    assert [step.observation[3] for step in cut.steps] == [1.0, 2.0, 3.0]
    assert (cut.last_observation, cut.steps[-1].truncated) == ([0.0, 0.0, 0.0, 4.0], True)
    assert ended.last_observation == {"page": 2}


async def test_an_environment_that_breaks_is_recorded_as_an_error(learn: Make, arms) -> None:
    before = arms.stable.metric("learnloop_episodes_ended_total", outcome="error")

    def broken(action) -> StepResult:
        if action is not None:
            raise RuntimeError("tool is down")
        return StepResult([0.0] * 4)

    with pytest.raises(RuntimeError, match="tool is down"):
        await execute_with_learning(learn(), broken)
    assert arms.stable.metric("learnloop_episodes_ended_total", outcome="error") == before + 1


async def test_what_is_no_environment_is_refused(learn: Make) -> None:
    for world, says in (("NoSuch-v0", "NoSuch"), (5, "neither"), (lambda action: 5, "StepResult")):
        with pytest.raises(LearnloopError, match=says):
            await execute_with_learning(learn(), world)


def test_the_sdk_imports_no_gymnasium_and_nothing_heavy() -> None:
    code = "import learnloop_sdk, sys; print([m for m in ('gymnasium','numpy','torch','fastapi') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_actor_options_come_from_the_environment() -> None:
    given = {
        "LEARNLOOP_ACTOR_ENVIRONMENT": "CartPole-v1",
        "LEARNLOOP_ACTOR_AGENT": "cart",
        "LEARNLOOP_ACTOR_CONCURRENCY": "9",
        "LEARNLOOP_ACTOR_SUCCESS_RETURN": "195",
        "LEARNLOOP_ACTOR_LEVEL": "",
        "LEARNLOOP_ACTOR_RANDOMISE": '[["gain", 0.5, 1.5]]',
        "LEARNLOOP_ENDPOINT": "http://cart:8080",
    }
    options = Options.read(given)
    assert (options.concurrency, options.success_return, options.endpoint) == (9, 195.0, "http://cart:8080")
    assert (options.level, options.randomise) == (None, (("gain", 0.5, 1.5),))
    for name, wrong in (("CONCURRENCY", "0"), ("RANDOMISE", '{"gain": 1}'), ("RANDOMISE", "x"), ("CREDIT", "most")):
        with pytest.raises(ValidationError, match=name.lower()):
            Options.read({**given, f"LEARNLOOP_ACTOR_{name}": wrong})


async def test_players_are_held_to_the_pace_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    pace, start = Pace(200), time.monotonic()
    await asyncio.gather(*(pace.after(10) for _ in range(4)))
    assert time.monotonic() - start > 0.19
    assert max(pauses) < 0.2001, "never longer than the 40 steps are worth"
    pauses.clear()
    await Pace(0).after(1000)
    assert pauses == []
