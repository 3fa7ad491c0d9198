"""An agent that helped another one learns from its own part of the task's reward, once."""

import pytest

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import EpisodePage, LoggedEpisode
from learnloop_trainer.training_run.reward_rules import credited, step_rewards

from ..conftest import Api, eventually, trajectory

RIGHT = {"name": "right", "type": "evaluator", "weight": 1, "evaluator": {"type": "exact"}}
STEPS = {"components": [{"name": "steps", "type": "base", "weight": 1}], "normalisation": {"method": "none"}}
WITHOUT = [{"agent": "lead", "without": 0.0}, {"agent": "helper", "without": 0.75}]


async def use(api: Api, agent: str, spec: dict, namespace: str = "team-a") -> None:
    path = f"/api/v1/rewards/policies/{agent}/revisions/r1"
    await api.call("PUT", path, json=spec, namespace=namespace)
    body = {"reward_policy": agent, "reward_policy_revision": "r1"}
    await api.call("PUT", f"/api/v1/agents/{agent}", json=body, namespace=namespace)


async def play(api: Api, identity: str, agent: str, joint: str = "", namespace: str = "team-a", **changes) -> None:
    labels = {"metadata": {"joint_task": joint}} if joint else {}
    body = trajectory(identity, agent, **labels, **changes)
    await api.call("POST", "/api/v1/trajectories", 202, json=body, namespace=namespace)


async def read(api: Api, agent: str, namespace: str = "team-a") -> dict[str, LoggedEpisode]:
    answer = await api.call("GET", "/api/v1/experience/trajectories", params={"agent": agent}, namespace=namespace)
    return {one.trajectory_id: one for one in EpisodePage.model_validate(answer).trajectories}


async def shared(api: Api, agent: str, identity: str, namespace: str = "team-a") -> LoggedEpisode:
    async def episode() -> LoggedEpisode | None:
        one = (await read(api, agent, namespace))[identity]
        return one if (one.credited_by_others, one.credited_to_others) != (None, None) else None

    return await eventually(episode)


def earns(spec: dict, episode: LoggedEpisode, *, played: bool = False) -> float:
    return sum(step_rewards(RewardPolicySpec.model_validate(spec), played=played)(episode))


@pytest.mark.parametrize("method", ["zscore", "none"])
async def test_who_helped_trains_on_its_part_and_who_led_on_the_rest(api: Api, method: str) -> None:
    lead = {"components": [RIGHT], "normalisation": {"method": method}, "teamCredit": {"method": "difference"}}
    task = f"j-{method}"
    await use(api, "lead", lead | {"components": [RIGHT | {"name": f"right-{method}"}]}, namespace=task)
    await use(api, "helper", STEPS, namespace=task)
    for index in range(3):
        wrong = {"output": "no", "expected": "42"}
        await play(api, f"{task}-{index}", "lead", namespace=task, result=wrong)
    await play(api, f"{task}-help", "helper", task, namespace=task)
    await play(api, f"{task}-alone", "helper", namespace=task)
    before = (await read(api, "helper", task))[f"{task}-help"]
    assert earns(STEPS, before) == len(before.steps), "until the task is rewarded, by the helper's own policy"
    result = {"output": "42", "expected": "42", "agents": WITHOUT}
    await play(api, f"{task}-lead", "lead", task, namespace=task, result=result)
    helped, led = await shared(api, "helper", f"{task}-help", task), await shared(api, "lead", f"{task}-lead", task)
    # 1 - 0.75 for what the helper added, 1 - 0 for the lead, and -0.125 for each: the parts add up to 1.
    assert helped.credited_by_others == pytest.approx(0.125)
    spec = lead | {"components": [RIGHT | {"name": f"right-{method}"}]}
    led = led.model_copy(update={"scores": {f"right-{method}": 1.0}})
    for played in (False, True):
        assert earns(STEPS, helped, played=played) == pytest.approx(0.125)
        assert earns(spec, led, played=played) == pytest.approx(0.875)
    alone = (await read(api, "helper", task))[f"{task}-alone"]
    assert earns(STEPS, alone) == len(alone.steps)
    policy = RewardPolicySpec.model_validate(STEPS)
    assert (credited([helped, alone], policy), credited([helped, alone], None)) == (1, 0)


async def test_a_part_is_counted_once_however_often_an_agent_helped_in_a_task(api: Api) -> None:
    equal = {"components": [RIGHT], "normalisation": {"method": "none"}}
    await use(api, "boss", equal)
    await use(api, "aide", STEPS)
    withdrawn = {"outcome": {"status": "withdrawn", "episode_return": 0.0}}
    await play(api, "often-0", "aide", "often", **withdrawn)
    for index in (1, 2):
        await play(api, f"often-{index}", "aide", "often")
    result = {"output": "42", "expected": "42", "agents": ["boss", "aide"]}
    await play(api, "often-boss", "boss", "often", result=result)
    await play(api, "often-boss", "boss", "often", result=result)
    await shared(api, "aide", "often-1")
    parts = {name: one.credited_by_others for name, one in (await read(api, "aide")).items()}
    assert parts == {"often-0": None, "often-1": 0.25, "often-2": 0.25}
    await api.call("POST", "/api/v1/feedback", json={"trajectory_id": "often-boss", "user_id": "ann", "thumbs": "up"})

    async def divided_again() -> bool:
        async with api.db.tenant("team-a") as connection:
            query = "SELECT joined FROM user_feedback WHERE trajectory_id = 'often-boss'"
            waits = "SELECT credited FROM task_results WHERE trajectory_id = 'often-boss'"
            return bool(await connection.fetchval(query) and await connection.fetchval(waits))

    await eventually(divided_again)
    assert [one.credited_by_others for one in (await read(api, "aide")).values()] == [0.25, 0.25, None]


async def test_only_who_names_the_task_and_is_named_by_it_in_its_own_namespace_gets_a_part(api: Api) -> None:
    equal = {"components": [RIGHT], "normalisation": {"method": "none"}}
    await use(api, "first", equal)
    await play(api, "own-second", "second", "own")
    await play(api, "own-third", "third", "own")
    await play(api, "own-other", "second", "another")
    await play(api, "own-marked", "second", "<EMAIL>")
    await play(api, "own-away", "second", "own", namespace="team-b")
    result = {"output": "42", "expected": "42", "agents": ["first", "second"]}
    await play(api, "own-first", "first", "own", result=result)
    await play(api, "own-masked", "first", "<EMAIL>", result=result)
    await shared(api, "second", "own-second")
    await shared(api, "first", "own-masked")
    parts = {name: one.credited_by_others for name, one in (await read(api, "second")).items()}
    assert parts == {"own-second": 0.5, "own-other": None, "own-marked": None}
    assert [one.credited_by_others for one in (await read(api, "third")).values()] == [None]
    assert [one.credited_by_others for one in (await read(api, "second", "team-b")).values()] == [None]


async def test_a_part_goes_with_the_task_that_is_erased(api: Api) -> None:
    equal = {"components": [RIGHT], "normalisation": {"method": "none"}}
    await use(api, "guide", equal)
    await play(api, "gone-aid", "scout", "gone")
    result = {"output": "42", "expected": "42", "agents": ["guide", "scout"]}
    body = trajectory("gone-guide", "guide", metadata={"joint_task": "gone", "user_id": "eve"}) | {"result": result}
    await api.call("POST", "/api/v1/trajectories", 202, json=body)
    await shared(api, "scout", "gone-aid")
    await api.call("POST", "/api/v1/erasure", json={"user_id": "eve"})

    async def gone() -> bool:
        return (await read(api, "scout"))["gone-aid"].credited_by_others is None

    await eventually(gone)


async def test_what_others_would_have_got_is_put_on_the_scale_of_the_stored_reward(api: Api) -> None:
    spec = {"components": [{"name": "won", "type": "success", "weight": 1}], "teamCredit": {"method": "difference"}}
    await use(api, "scaled", spec | {"normalisation": {"method": "zscore"}})
    lost = {"status": "completed", "episode_return": 0.0, "success": False}
    won = lost | {"success": True}
    for index in range(3):
        await play(api, f"scale-{index}", "scaled", outcome=lost)
    agents = [{"agent": "scaled", "without": 1.0}, {"agent": "mate", "without": 0.0}]
    await play(api, "scale-won", "scaled", outcome=won, result={"agents": agents})

    async def divided() -> list[dict] | None:
        answer = await api.call("GET", "/api/v1/rewards/credits", params={"agent_id": "mate"})
        return list(answer["credits"]) or None

    [mate] = await eventually(divided)
    whole = mate["shaped_reward"]
    # The winner's reward is (1 - 0.25)/0.433. Without the mate none wins, so the mate has the whole distance of the
    # scale from a loss to a win, 1/0.433, and half of what is missing to the reward.
    distance = 1 / 0.4330127
    assert whole == pytest.approx(0.75 * distance)
    assert mate["credit_assigned"] == pytest.approx(distance + (whole - distance) / 2)
    assert mate["learned_credit"] == pytest.approx(1.0)
