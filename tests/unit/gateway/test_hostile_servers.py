"""Servers that answer, but not as their interface says: the fallback answers, and no request ends in a 500."""

import json
from pathlib import Path

import pytest
from tests.unit.gateway.conftest import Bench, build
from tests.unit.gateway.scripted_chat import Chat
from tests.unit.gateway.test_turns import LOOKUP, USER

from learnloop_gateway import model_servers
from learnloop_gateway.model_servers import UpstreamDown

STAND_IN = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "I stand in"}}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "piece",
    [
        {},
        {"choices": 5},
        {"choices": []},
        {"choices": [5]},
        {"choices": [{"index": 0}]},
        {"error": {"message": "over quota"}},
    ],
)
async def test_an_answer_without_a_message_is_none_and_the_fallback_gives_one(tmp_path, piece, stream):
    bench = build(tmp_path, chat=Chat(piece), fallback=Chat(STAND_IN))
    answer = await bench.ask(USER, stream=stream)
    assert (answer.status_code, answer.headers["x-learnloop-revision"]) == (200, "fallback"), answer.text
    assert "I stand in" in answer.text
    assert bench.count("learnloop_policy_request_errors_total", verb="act") == 1


CALL = {"index": 0, "id": "c", "function": {"name": "lookup", "arguments": '{"key": '}}


@pytest.mark.parametrize("delta", [{"content": "hel"}, {"tool_calls": [CALL]}, {"role": "assistant"}])
async def test_a_stream_that_ends_without_a_reason_is_half_an_answer_a_failure_and_no_turn(tmp_path, delta):
    bench = build(tmp_path, chat=Chat({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
    answer = await bench.ask(USER, stream=True)
    assert "[DONE]" not in answer.text
    assert "without saying why" in answer.text
    assert bench.count("learnloop_policy_request_errors_total", verb="act") == 1
    bench.episode = answer.headers["x-learnloop-episode"]
    await bench.client.post(f"/v1/episodes/{bench.episode}/end", json={"status": "error", "length": 1})
    assert await bench.delivered() == []


async def test_a_stream_that_says_why_it_ends_is_a_turn_without_its_done(tmp_path: Path) -> None:
    pieces = [{"content": "hello"}, None], [{}, "stop"]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": why}]} for delta, why in pieces]
    bench = build(tmp_path, chat=Chat(*chunks))
    answer = await bench.ask(USER, stream=True)
    assert answer.text.endswith("data: [DONE]\n\n")
    bench.episode = answer.headers["x-learnloop-episode"]
    assert (await bench.ended()).steps[0].action == {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize("calls", [5, [5], [{"function": "x"}], [{"index": "0"}]])
async def test_calls_of_another_shape_are_handed_through_and_not_recorded(tmp_path: Path, calls) -> None:
    message = {"role": "assistant", "content": "ok", "tool_calls": calls}
    bench = build(tmp_path, chat=Chat({"choices": [{"index": 0, "message": message}]}))
    assert (await bench.ask(USER)).status_code == 200
    assert (await bench.ended()).steps[0].action["content"] == "ok"


async def test_a_lie_about_tokens_spent_costs_no_turn(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 2**63, "completion_tokens": True}
    bench = build(tmp_path, chat=Chat(STAND_IN | {"usage": usage}))
    await bench.ask(USER)
    values = (await bench.ended()).outcome.values
    assert (values["input_tokens"], values["output_tokens"]) == (2**53 - 1, 0)


@pytest.mark.parametrize("ids", [5, "ab", [-1], [2**31], ["7"], [True], [1.5], None])
def test_what_are_no_token_ids_are_no_answer(ids) -> None:
    with pytest.raises(UpstreamDown, match="token ids"):
        model_servers._drawn_by_llama_cpp({"tokens": ids, "completion_probabilities": []}, "http://x")
    with pytest.raises(UpstreamDown, match="token ids"):
        model_servers._drawn_by_vllm(
            {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [0.0]}}]}, "http://x"
        )


def test_what_are_no_probabilities_are_no_answer() -> None:
    with pytest.raises(UpstreamDown):
        model_servers._drawn_by_llama_cpp({"tokens": [1], "completion_probabilities": [{"logprob": "x"}]}, "http://x")
    with pytest.raises(UpstreamDown):
        model_servers._drawn_by_vllm(
            {"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": ["x"]}}]}, "http://x"
        )


async def test_a_server_that_gives_more_tokens_than_asked_for_has_failed(bench: Bench) -> None:
    encode = bench.says.tokens.encode
    bench.says.texts = ["a long answer"]
    bench.says.ends = False

    class Talks(list[int]):
        def __getitem__(self, _):  # a cut that cuts nothing
            return list(self)

    bench.says.tokens = type("Tokens", (), {"encode": lambda _, text: Talks(encode(text)), "stops": frozenset()})()
    assert (await bench.ask(USER, max_tokens=3)).status_code == 502


@pytest.mark.parametrize(
    "content",
    [
        '{"name": "lookup", "arguments": {"key": "\\ud800"}}',
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": "lookup", "arguments": {"key": NaN}}',
        '{"name": "lookup", "arguments": {"key": 1e999}}',
    ],
)
async def test_a_call_that_no_wire_carries_stays_text(bench: Bench, content: str) -> None:
    bench.says.texts = [f"<tool_call>{content}</tool_call>"]
    answer = await bench.ask(USER, tools=[LOOKUP])
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    assert json.loads(message["content"].removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert "tool_calls" not in message
    assert len((await bench.ended()).steps) == 1


async def test_metadata_of_many_turns_costs_no_conversation(bench: Bench) -> None:
    for number in range(4):
        answer = await bench.ask(USER, metadata={f"{number}-{place}": "x" for place in range(16)})
        assert answer.status_code == (400 if number == 3 else 200)
        if number == 3:
            assert "metadata" in answer.json()["error"]["message"]
            bench.history.pop()
    assert len((await bench.ended()).steps) == 3
