"""A person speaks in the model's place: what users get, and that nothing of it is learned."""

from pathlib import Path

from tests.unit.gateway.conftest import Bench, build
from tests.unit.gateway.test_conversations import StandIn
from tests.unit.serving.test_overrides import ordered

from testing.servers.policy_servers import CANARY, STABLE, table

USER = {"role": "user", "content": "hi"}


def order(bench: Bench, *overrides: dict) -> None:
    routing = table((STABLE, "stable", 100), (CANARY, "canary", 0), overrides=list(overrides) or None)
    assert bench.routing.offer(routing, "test")


async def test_the_fixed_answer_is_given_and_the_conversation_ends_as_withdrawn(bench: Bench) -> None:
    await bench.ask(USER)
    order(bench, ordered("fixed", answer="Please call us."))
    answer = await bench.ask({"role": "user", "content": "and?"})
    assert answer.json()["choices"][0]["message"]["content"] == "Please call us."
    assert answer.headers["x-learnloop-override"] == "fixed"
    assert len(bench.says.prompts) == 1, "the model was not asked"
    (trajectory,) = await bench.delivered()
    assert (trajectory.outcome.status, len(trajectory.steps)) == ("withdrawn", 1)
    order(bench, ordered("fixed", answer="Please call us.", over=True, seconds=0))
    await bench.ask({"role": "user", "content": "back?"})
    await bench.client.post(
        f"/v1/episodes/{bench.episode}/end", json={"status": "completed", "episode_return": 1, "length": 1}
    )
    assert len(await bench.delivered()) == 1, "what follows the person's words is not recorded"
    assert bench.count("learnloop_episodes_ended_total", outcome="withdrawn") == 1
    assert bench.count("learnloop_episodes_ended_total", outcome="success") == 0


async def test_a_conversation_that_was_under_way_elsewhere_is_withdrawn_too_when_nobody_ends_it(bench: Bench) -> None:
    await bench.ask(USER)
    order(bench, ordered("stop"))  # another gateway of the arm refused the next request
    order(bench, ordered("stop", over=True, seconds=0))
    (session,) = bench.sessions.open.values()
    await bench.sessions._close(session, "completed")
    (trajectory,) = await bench.delivered()
    assert trajectory.outcome.status == "withdrawn"


async def test_the_fixed_answer_is_streamed_to_who_streams(bench: Bench) -> None:
    order(bench, ordered("fixed", answer="Please call us.", agent="cart"))
    answer = await bench.ask(USER, stream=True)
    assert "Please call us." in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_stop_is_a_refusal_that_clients_do_not_repeat(bench: Bench) -> None:
    order(bench, ordered("stop"))
    answer = await bench.ask(USER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "stopped")
    order(bench, ordered("stop", agent="other"))
    assert (await bench.ask()).status_code == 200


async def test_the_fallback_answers_where_a_person_orders_it(tmp_path: Path) -> None:
    stand_in = StandIn()
    bench = build(tmp_path, fallback=stand_in)
    order(bench, ordered("fallback"))
    body = {"model": "cart", "messages": [USER]}
    answer = await bench.client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "from the fallback"
    assert (answer.headers["x-learnloop-revision"], answer.headers["x-learnloop-override"]) == ("fallback", "fallback")
    assert not await bench.delivered()
    bare = build(tmp_path / "bare")
    order(bare, ordered("fallback"))
    assert (await bare.client.post("/v1/chat/completions", json=body)).status_code == 503


async def test_a_gateway_gives_its_part_of_the_decisions_and_blames_no_arm(bench: Bench) -> None:
    arm = {"revision": STABLE, "role": "stable", "weight": 100, "url": "http://x", "share": 0.5}
    assert bench.routing.offer(table(arms=[arm], limits={"per_agent_per_second": 2}), "test")
    assert (await bench.ask(USER)).status_code == 200
    answer = await bench.ask(USER)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert bench.count("learnloop_requests_uncounted_total", verb="act", reason="throttled") == 1
    assert bench.count("learnloop_policy_request_errors_total", verb="act") == 0
