"""The arm of a conversation, and the conversation's fate when its process, its arm or its server goes."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.unit.gateway.conftest import Bench, Delivered, build, turns

from learnloop_gateway.model_servers import UpstreamDown
from learnloop_gateway.open_chat import Journal
from learnloop_gateway.recording import Recording
from learnloop_sdk.outbox import PAGE_BYTES
from testing.servers.policy_servers import CANARY, OTHER, STABLE, table

USER = {"role": "user", "content": "hi"}


class StandIn:
    """A fallback."""

    def __init__(self) -> None:
        self.requests = []

    async def ask(self, path: str, body: dict) -> AsyncGenerator[dict, None]:
        self.requests.append(body)
        message = {"role": "assistant", "content": "from the fallback"}
        yield {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    async def prepare(self) -> None: ...

    async def close(self) -> None: ...


async def test_a_conversation_stays_with_its_arm_and_a_made_up_one_is_refused(bench: Bench) -> None:
    first = await bench.ask(USER)
    again = await bench.ask({"role": "user", "content": "and?"})
    assert first.headers["x-learnloop-episode"] == again.headers["x-learnloop-episode"]
    assert first.headers["x-learnloop-revision"] == STABLE
    assert bench.count("learnloop_episodes_opened_total") == 1
    forged = bench.episode[:-1] + ("0" if bench.episode[-1] != "0" else "1")
    answer = await bench.client.post(
        "/v1/chat/completions", json={"model": "cart", "messages": [USER]}, headers={"x-learnloop-episode": forged}
    )
    assert answer.status_code == 404


async def test_an_ending_counts_once_and_for_the_arm(bench: Bench) -> None:
    await bench.ask(USER)
    await bench.ended()
    again = await bench.client.post(
        f"/v1/episodes/{bench.episode}/end", json={"status": "completed", "episode_return": 1, "length": 1}
    )
    assert again.json() == {"counted": False}
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 1


async def test_a_conversation_whose_arm_is_withdrawn_goes_on_with_stable(tmp_path: Path) -> None:
    bench = build(tmp_path, arms=table((OTHER, "stable", 0, "http://127.0.0.1:9"), (STABLE, "canary", 100)))
    bench.gateway._episodes.reach.answered(bench.routing.table.arms[1])
    await bench.ask(USER)
    assert bench.episode.startswith(STABLE)
    assert bench.routing.offer(table((CANARY, "stable", 100), generation=2), "test")
    answer = await bench.ask({"role": "user", "content": "and?"})
    assert answer.status_code == 502, "the stable arm has no server here"
    assert answer.headers["x-learnloop-revision"] == CANARY
    assert bench.routing.offer(table((STABLE, "stable", 100), generation=3), "test")


async def test_who_may_names_an_arm_and_nothing_of_it_counts_or_is_recorded(bench: Bench) -> None:
    body = {"model": "cart", "messages": [USER]}
    answer = await bench.client.post("/v1/chat/completions", json=body, headers={"x-learnloop-arm": STABLE})
    assert answer.status_code == 200
    bench.episode = answer.headers["x-learnloop-episode"]
    again = await bench.client.post("/v1/chat/completions", json=body, headers={"x-learnloop-episode": bench.episode})
    assert again.status_code == 200
    ending = {"status": "completed", "episode_return": 1, "length": 1}
    assert not (await bench.client.post(f"/v1/episodes/{bench.episode}/end", json=ending)).json()["counted"]
    assert await bench.delivered() == []
    for name in ("learnloop_episodes_opened_total", "learnloop_policy_request_duration_seconds_count"):
        assert bench.count(name, **({"verb": "act"} if "request" in name else {})) == 0
    unknown = await bench.client.post("/v1/chat/completions", json=body, headers={"x-learnloop-arm": "dddddddd"})
    assert unknown.status_code == 404


async def test_a_caller_whose_account_is_not_listed_may_not_name_an_arm(bench: Bench) -> None:
    bench.gateway.callers.subject = lambda _: "system:serviceaccount:team:agent"
    ask = {"model": "cart", "messages": [USER]}
    answer = await bench.client.post("/v1/chat/completions", json=ask, headers={"x-learnloop-arm": CANARY})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "pin_refused")
    assert "team/agent" in answer.json()["error"]["message"]


async def test_the_fallback_answers_where_no_arm_does_and_none_of_it_is_evidence_or_recorded(tmp_path: Path) -> None:
    stand_in = StandIn()
    bench = build(tmp_path, fallback=stand_in)
    bench.says.texts = ["mine", UpstreamDown("gone"), "mine again"]
    await bench.ask(USER)
    answer = await bench.ask({"role": "user", "content": "and?"})
    assert answer.json()["choices"][0]["message"]["content"] == "from the fallback"
    assert answer.headers["x-learnloop-revision"] == "fallback"
    assert bench.count("learnloop_language_fallbacks_total", outcome="answered") == 1
    await bench.ask({"role": "user", "content": "still there?"})
    assert bench.count("learnloop_language_rows_total", reason="fallback") == 1
    trajectory = await bench.ended()
    assert "from the fallback" not in "".join(bench.says.tokens.decode(turn.sampled_ids) for turn in turns(trajectory))
    assert [turn.row for turn in turns(trajectory)] == [0, 1]
    assert trajectory.outcome.status == "withdrawn", "the arm has not earned what the fallback helped to reach"
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 0


async def test_what_a_fallback_said_at_one_replica_makes_no_evidence_at_another(tmp_path: Path) -> None:
    one, two = build(tmp_path / "1", fallback=StandIn()), build(tmp_path / "2", fallback=StandIn())
    for bench in (one, two):  # two gateways of one arm share the key of its episodes
        bench.gateway._episodes.ids._seal.renew(b"k" * 64)
    one.says.texts = ["mine", UpstreamDown("gone")]
    await one.ask(USER)
    opened = one.episode
    await one.ask({"role": "user", "content": "and?"})
    assert one.episode != opened, "the id itself says that the arm did not answer alone"
    two.episode, two.history = one.episode, one.history
    answer = await two.ask({"role": "user", "content": "still there?"})
    assert (answer.status_code, answer.headers["x-learnloop-episode"]) == (200, one.episode)
    body = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True}
    ended = await two.client.post(f"/v1/episodes/{two.episode}/end", json=body)
    assert not ended.json()["counted"]
    assert two.count("learnloop_episodes_ended_total", outcome="success") == 0
    (trajectory,) = await two.delivered()
    assert (trajectory.outcome.status, trajectory.episode_id) == ("withdrawn", opened)


async def test_a_conversation_that_another_arm_began_is_no_evidence_for_stable(tmp_path: Path) -> None:
    bench = build(tmp_path, arms=table((STABLE, "stable", 100)))
    bench.episode = bench.gateway._episodes.ids.make(CANARY, "cart")  # its arm was rolled back
    bench.history = [USER, {"role": "assistant", "content": "the canary said this"}]
    answer = await bench.ask({"role": "user", "content": "and?"})
    assert answer.headers["x-learnloop-revision"] == STABLE
    await bench.ask({"role": "user", "content": "and then?"})
    trajectory = await bench.ended()
    assert trajectory.outcome.status == "withdrawn"
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 0
    assert bench.count("learnloop_episodes_opened_total") == 0, "what never counts as ended is not waited for either"


async def test_who_ends_a_conversation_of_an_arm_that_was_rolled_back_opens_none_with_stable(tmp_path: Path) -> None:
    bench = build(tmp_path, arms=table((STABLE, "stable", 100)))
    ending = {"status": "completed", "episode_return": 1.0, "length": 1, "success": True}
    gone = bench.gateway._episodes.ids.make(CANARY, "cart")
    answer = await bench.client.post(f"/v1/episodes/{gone}/end", json=ending)
    assert answer.json() == {"counted": False}
    assert bench.count("learnloop_episodes_opened_total") == 0


async def test_stable_answers_for_its_own_where_another_arm_said_nothing_yet(tmp_path: Path) -> None:
    bench = build(tmp_path, arms=table((STABLE, "stable", 100)))
    bench.episode = bench.gateway._episodes.ids.make(CANARY, "cart")
    await bench.ask(USER)
    assert (await bench.ended()).outcome.status == "completed"
    assert bench.count("learnloop_episodes_opened_total") == 1
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 1


async def test_a_server_of_text_is_handed_through_and_recorded_as_text(tmp_path: Path) -> None:
    bench = build(tmp_path, chat=StandIn())
    answer = await bench.ask(USER)
    assert answer.json()["choices"][0]["message"]["content"] == "from the fallback"
    trajectory = await bench.ended()
    assert trajectory.steps[0].action == {"role": "assistant", "content": "from the fallback"}
    assert turns(trajectory) == []


async def test_a_process_that_was_killed_leaves_its_turns_to_the_next(tmp_path: Path) -> None:
    bench = build(tmp_path)
    await bench.ask(USER)
    await bench.ask({"role": "user", "content": "and?"})
    # Nothing was closed: this is what a killed process leaves.
    after = build(tmp_path)
    after.sessions.restore()
    after.episode, after.history = bench.episode, bench.history
    after.gateway._arms, after.gateway._episodes = bench.gateway._arms, bench.gateway._episodes
    await after.ask({"role": "user", "content": "are you back?"})
    trajectory = await after.ended()
    assert [(turn.position, turn.row) for turn in turns(trajectory)] == [(0, 0), (1, 0), (2, 1)]
    assert after.count("learnloop_language_rows_total", reason="restart") == 1
    assert len(await after.delivered()) == 1


async def test_a_long_conversation_is_recorded_up_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_gateway.open_chat.LARGEST", 500)
    bench = build(tmp_path)
    for number in range(3):
        assert (await bench.ask({"role": "user", "content": f"number {number}"})).status_code == 200
    trajectory = await bench.ended()
    assert [(turn.row, turn.position) for turn in turns(trajectory)] == [(0, 0)]
    assert (trajectory.outcome.status, trajectory.outcome.episode_return) == ("completed", 1.0)
    assert len(await bench.delivered()) == 1


async def test_a_conversation_nobody_goes_on_with_is_delivered_without_an_outcome(tmp_path: Path) -> None:
    bench = build(tmp_path)
    bench.sessions._idle = -1.0
    await bench.ask(USER)
    sweeping = asyncio.create_task(bench.sessions.sweep(0.01))
    async with asyncio.timeout(30):
        while not bench.sink.bodies:  # noqa: ASYNC110 - what is waited for is a task that sweeps
            await asyncio.sleep(0.01)
    (trajectory,) = await bench.delivered()
    sweeping.cancel()
    assert trajectory.outcome.success is None
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 0
    assert len(bench.sessions) == 0


async def test_a_full_disk_stops_no_conversation_from_ending(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.ask(USER)
    monkeypatch.setattr(Journal, "forget", Mock(side_effect=sqlite3.OperationalError("database or disk is full")))
    await bench.sessions.leave()
    assert len(await bench.delivered()) == 1


async def test_a_full_journal_costs_turns_and_not_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop_gateway.open_chat.JOURNAL_BYTES", 12 * PAGE_BYTES)
    bench = build(tmp_path, context=100_000)
    for _ in range(6):
        assert (await bench.ask({"role": "user", "content": "x" * 2 * PAGE_BYTES})).status_code == 200
    assert 0 < len((await bench.ended()).steps) < 6
    assert bench.recording.counters.trajectories_dropped > 0


async def test_a_process_that_ends_hands_over_what_is_under_way(bench: Bench) -> None:
    await bench.ask(USER)
    await bench.sessions.leave()
    (trajectory,) = await bench.delivered()
    assert trajectory.outcome.status == "withdrawn"


async def test_two_requests_of_one_conversation_at_once_are_two_rows(bench: Bench) -> None:
    await bench.ask(USER)
    ask = {"model": "cart", "messages": [*bench.history, {"role": "user", "content": "and?"}]}
    headers = {"x-learnloop-episode": bench.episode}
    posts = [bench.client.post("/v1/chat/completions", json=ask, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in await asyncio.gather(*posts)] == [200, 200]
    assert sorted(turn.row for turn in turns(await bench.ended())) == [0, 0, 1]


async def test_without_an_agent_nothing_is_recorded(tmp_path: Path) -> None:
    recording = Recording(tmp_path, "", "cart", [Delivered()])
    assert not recording.on
    assert recording.start() == []


async def test_models_lists_the_deployment_and_probes_say_what_is_missing(bench: Bench) -> None:
    assert [model["id"] for model in (await bench.client.get("/v1/models")).json()["data"]] == ["cart"]
    assert (await bench.client.get("/v1/models/cart")).status_code == 200
    assert (await bench.client.get("/v1/models/other")).status_code == 404
    assert (await bench.client.get("/readyz")).status_code == 200
    bench.gateway.loaded = False
    assert (await bench.client.get("/readyz")).status_code == 503
    assert (await bench.client.get("/healthz")).status_code == 200
    assert "learnloop_language_turns_total" in (await bench.client.get("/metrics")).text
    assert (await bench.client.get("/nothing")).json()["error"]["type"] == "invalid_request_error"
