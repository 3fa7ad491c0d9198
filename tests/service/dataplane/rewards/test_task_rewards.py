"""Outputs that evaluators score, and rewards that several agents share: on request, and of stored episodes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from learnloop_dataplane.rewards import evaluator_scores

from ..conftest import Api, eventually, running, settings, trajectory

ANSWER = {"name": "right", "type": "evaluator", "weight": 0.75, "evaluator": {"type": "exact"}}
FORM = {
    "name": "form",
    "type": "evaluator",
    "weight": 0.25,
    "evaluator": {"type": "regex", "regex": {"pattern": "^[0-9]+$"}},
}
SPEC = {"components": [ANSWER, FORM], "normalisation": {"method": "none"}}


async def _use(api: Api, agent: str, spec: dict, revision: str = "r1") -> None:
    await api.call("PUT", f"/api/v1/rewards/policies/{agent}/revisions/{revision}", json=spec)
    body = {"reward_policy": agent, "reward_policy_revision": revision}
    await api.call("PUT", f"/api/v1/agents/{agent}", json=body)


async def _play(api: Api, identity: str, agent: str, **result) -> None:
    body = trajectory(identity, agent) | {"result": result}
    await api.call("POST", "/api/v1/trajectories", 202, json=body)


async def _rewards(api: Api, agent: str, count: int, **query) -> list[dict]:
    async def check() -> list[dict] | None:
        answer = await api.call("GET", "/api/v1/rewards/history", params={"agent_id": agent, **query})
        return list(answer["rewards"][::-1]) if len(answer["rewards"]) == count else None

    return list(await eventually(check))


async def test_a_reward_is_calculated_from_the_output_and_says_how(api: Api) -> None:
    await _use(api, "sums", SPEC)
    result = {"task_type": "math", "task": "6 × 7", "output": "42 ", "expected": "42", "metadata": {"unit": None}}
    body = {"task_id": "t-1", "agent_id": "sums", "result": result}
    answer = await api.call("POST", "/api/v1/rewards/calculate", json=body)
    assert answer["components"] == {"right": 1.0, "form": 0.0}
    assert (answer["raw_reward"], answer["shaped_reward"], answer["credit_assigned"]) == (0.75, 0.75, 0.75)
    assert answer["evaluations"]["right"] == {"value": 1.0, "note": "the output is the expected one"}
    assert answer["evaluators"] == {"right": "exact", "form": "regex"}
    assert answer["weights"] == {"right": 0.75, "form": 0.25}
    assert answer["normalisation"] == {"method": "none", "clip": 10.0}
    missing = await api.call("POST", "/api/v1/rewards/calculate", json=body | {"result": {"output": "42"}})
    assert (missing["confidence"], missing["components"]["right"]) == (0.25, 0.0)


async def test_steps_may_be_sent_whole_and_shape_the_reward(api: Api) -> None:
    spec = SPEC | {"shaping": {"observation": 0, "weight": 1, "discount": 1}}
    await _use(api, "shaped", spec)
    steps = [{"observation": [float(value)], "action": 0} for value in (1, 3)]
    result = {"output": "42", "expected": "42", "steps": steps}
    answer = await api.call("POST", "/api/v1/rewards/calculate", json={"agent_id": "shaped", "result": result})
    assert answer["raw_reward"] == pytest.approx(1.0 + 2.0)
    for steps_sent in (-1, [{"observation": [0.0]}], "two"):
        wrong = {"agent_id": "shaped", "result": result | {"steps": steps_sent}}
        refused = await api.call("POST", "/api/v1/rewards/calculate", 422, json=wrong)
        assert refused["error"]["field"].startswith("result.steps")


async def test_one_reward_is_divided_among_those_who_took_part(api: Api) -> None:
    await _use(api, "lead", SPEC | {"teamCredit": {"method": "difference"}})
    agents = [{"agent": "lead", "without": 0.25}, {"agent": "helper", "without": 1.0}]
    result = {"output": "42", "expected": "42", "agents": agents}
    body = {"agent_id": "lead", "task_id": "t", "result": result}
    answer = await api.call("POST", "/api/v1/rewards/calculate", json=body)
    assert {part["agent"]: part["credit_assigned"] for part in answer["credits"]} == {"lead": 0.875, "helper": 0.125}
    assert answer["credit_assigned"] == 0.875


async def test_a_published_evaluator_has_usable_settings_or_is_refused(api: Api) -> None:
    wrong = FORM | {"weight": 1, "evaluator": {"type": "regex", "regex": {"pattern": r"(a)\1"}}}
    path = "/api/v1/rewards/policies/wrong/revisions/r1"
    refused = await api.call("PUT", path, 422, json={"components": [wrong]})
    assert refused["error"]["field"] == "components[0].evaluator.regex.pattern"
    assert "without look-around" in refused["error"]["message"]


async def test_stored_outputs_are_scored_before_they_are_rewarded(api: Api) -> None:
    await _use(api, "scored", SPEC)
    await _play(api, "scored-1", "scored", output="42", expected="42")
    await _play(api, "scored-2", "scored", output="43", expected="42")
    await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("scored-3", "scored"))
    rewards = {item["trajectory_id"]: item for item in await _rewards(api, "scored", 3)}
    assert {name: item["raw_reward"] for name, item in rewards.items()} == {
        "scored-1": 1.0,
        "scored-2": 0.25,
        "scored-3": 0.0,
    }
    assert rewards["scored-3"]["confidence"] == 0.0
    assert rewards["scored-1"]["evaluators"] == {"right": "exact", "form": "regex"}


async def test_a_corrected_reward_keeps_its_scores(api: Api) -> None:
    spec = {"components": [ANSWER | {"weight": 0.5}, {"name": "people", "type": "feedback", "weight": 0.5}]}
    await _use(api, "rated", spec | {"normalisation": {"method": "none"}})
    await _play(api, "rated-1", "rated", output="x", expected="x")
    await _rewards(api, "rated", 1)
    await api.call("POST", "/api/v1/feedback", json={"trajectory_id": "rated-1", "user_id": "ann", "thumbs": "up"})

    async def corrected() -> bool:
        [reward] = await _rewards(api, "rated", 1)
        return bool(reward["raw_reward"] == 1.0)

    await eventually(corrected)


async def test_the_parts_of_a_stored_task_add_up_and_each_agent_finds_its_own(api: Api) -> None:
    await _use(api, "boss", SPEC | {"teamCredit": {"method": "difference"}})
    agents = [{"agent": "boss", "without": 0.0}, {"agent": "aide", "without": 0.5}]
    await _play(api, "team-1", "boss", output="42", expected="42", agents=agents)

    async def divided() -> dict | None:
        answer = await api.call("GET", "/api/v1/rewards/credits", params={"agent_id": "aide"})
        return dict(answer["credits"][0]) if answer["credits"] else None

    own = await eventually(divided)
    assert (own["trajectory_id"], own["method"], own["credit_assigned"]) == ("team-1", "difference", 0.25)
    assert (own["raw_reward"], own["shaped_reward"]) == (1.0, 1.0)
    whole = await api.call("GET", "/api/v1/rewards/credits/team-1")
    assert sum(part["credit_assigned"] for part in whole["agents"]) == pytest.approx(whole["reward"])
    [reward] = await _rewards(api, "boss", 1)
    assert reward["credit_assigned"] == 0.75
    assert [part["agent"] for part in reward["credits"]] == ["boss", "aide"]
    others = await api.call("GET", "/api/v1/rewards/credits", params={"agent_id": "aide"}, namespace="team-b")
    assert others["credits"] == []


@asynccontextmanager
async def judge(verdicts: list[str]) -> AsyncIterator[str]:
    """A judge that says these, and then hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        if verdicts:
            text = json.dumps({"choices": [{"message": {"content": verdicts.pop(0)}}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(text), text))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield f"http://{host}:{port}/v1#wise"
    server.close()


async def test_a_judge_that_does_not_answer_holds_a_reward_back_and_at_last_is_given_up(dsn, tmp_path):
    spec = {"components": [{"name": "j", "type": "evaluator", "weight": 1, "evaluator": {"type": "judge"}}]}
    spec |= {"normalisation": {"method": "none"}}
    async with (
        judge(['{"winner": "A"}', '{"winner": "A"}']) as url,
        running(**settings(dsn, tmp_path, judge=url)) as api,
    ):
        await _use(api, "judged", spec)
        await _play(api, "judged-1", "judged", output="x", expected="y")
        [first] = await _rewards(api, "judged", 1)
        assert (first["components"], first["confidence"]) == ({"j": 0.5}, 1.0)
        await _play(api, "judged-2", "judged", output="x", expected="y")
        await asyncio.sleep(1.5)
        assert len(await _rewards(api, "judged", 1)) == 1, "nothing is rewarded while the judge may still answer"
        async with api.plane.shared.db.tenant("team-a") as connection:
            late = "UPDATE trajectories SET received_at = now() - interval '1 hour' WHERE trajectory_id = 'judged-2'"
            await connection.execute(late)
            await connection.execute("UPDATE agents SET since = now() - interval '2 hours' WHERE name = 'judged'")
        second = (await _rewards(api, "judged", 2))[-1]
        assert (second["trajectory_id"], second["confidence"]) == ("judged-2", 0.0)


async def test_one_tenants_slow_evaluations_hold_up_no_other_tenant(dsn, tmp_path, monkeypatch):
    """Answers never come. Last of this file: what waits here would ask every later judge."""
    times: list[float] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        times.append(time.monotonic())
        await reader.read()
        writer.close()

    monkeypatch.setattr(evaluator_scores, "TURN_SECONDS", 2.0)
    judged = {"components": [{"name": "j", "type": "evaluator", "weight": 1, "evaluator": {"type": "judge"}}]}
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1#wise"
    async with running(**settings(dsn, tmp_path, judge=url)) as api:
        api.plane.experience._judge._seconds = 20.0
        await _use(api, "slow", judged)
        for number in range(30):
            await _play(api, f"slow-{number}", "slow", output="x", expected="y")

        await eventually(lambda: times)
        path, body = "/api/v1/rewards/policies/quick/revisions/r1", {"components": [ANSWER | {"weight": 1}]}
        await api.call("PUT", path, namespace="team-b", json=body)
        uses = {"reward_policy": "quick", "reward_policy_revision": "r1"}
        await api.call("PUT", "/api/v1/agents/quick", namespace="team-b", json=uses)
        result = trajectory("quick-1", "quick") | {"result": {"output": "42", "expected": "42"}}
        await api.call("POST", "/api/v1/trajectories", 202, namespace="team-b", json=result)

        async def rewarded() -> bool:
            answer = await api.call("GET", "/api/v1/rewards/history", namespace="team-b", params={"agent_id": "quick"})
            return bool(answer["rewards"])

        begin = time.monotonic()
        await eventually(rewarded, 15)
        assert time.monotonic() - begin < 10, "the first four answers take 20 seconds until their callers give up"
    server.close()
