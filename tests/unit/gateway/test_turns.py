"""A turn at the model, at the client, and in the record."""

import json
from pathlib import Path

import pytest
from tests.unit.gateway.conftest import Bench, build, turns
from tests.unit.gateway.scripted_chat import Chat

from learnloop_gateway.model_servers import UpstreamBusy, UpstreamDown

USER = {"role": "user", "content": "hi"}
LOOKUP = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>{"arguments": {"key": "k1"},   "name": "lookup"}</tool_call>'


def user(text: str) -> dict:
    return {"role": "user", "content": text}


async def test_a_second_turn_goes_on_with_the_tokens_that_were_drawn_though_the_template_would_write_them_anew(bench):
    bench.says.texts = [CALL, "answer 4"]
    first = await bench.ask(USER, tools=[LOOKUP])
    (call,) = first.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"key": "k1"}
    await bench.ask({"role": "tool", "tool_call_id": call["id"], "content": "4"}, tools=[LOOKUP])

    one, two = bench.says.prompts
    drawn = bench.says.tokens.encode(CALL + "<|im_end|>")
    assert two[: len(one) + len(drawn)] == one + drawn
    tail = bench.says.tokens.encode("\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n")
    assert two == one + drawn + tail
    assert two != bench.says.tokens.opening(
        [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "lookup", "arguments": {}}}]},
            {"role": "tool", "content": "4"},
        ],
        [LOOKUP],
    )
    first_turn, second = turns(await bench.ended())
    assert (first_turn.row, second.row) == (0, 0)
    assert second.prompt_ids == two
    assert second.tool_results[0].content == "4"


@pytest.mark.parametrize("text", ["learnloop-answer", "I say learnloop-answer", "learnloop-answer-"])
async def test_what_a_user_says_is_never_taken_for_the_place_of_an_answer(bench: Bench, text: str) -> None:
    await bench.ask(USER)
    await bench.ask({"role": "user", "content": text})
    before, after = (bench.says.tokens.decode(prompt) for prompt in bench.says.prompts)
    assert text in after.removeprefix(before)


async def test_a_client_that_writes_the_json_of_a_call_anew_goes_on_all_the_same(bench: Bench) -> None:
    bench.says.texts = [CALL, "done"]
    await bench.ask(USER, tools=[LOOKUP])
    call = bench.history[-1]["tool_calls"][0]
    call["function"]["arguments"] = '{"key":"k1"}'
    await bench.ask({"role": "tool", "tool_call_id": call["id"], "content": "4"}, tools=[LOOKUP])
    assert [turn.row for turn in turns(await bench.ended())] == [0, 0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda history: history[0].update(content="other"), "history"),
        (lambda history: history[1].update(content="what I never said"), "history"),
        (lambda history: history.pop(0), "history"),
    ],
)
async def test_a_changed_history_is_a_new_row_and_counted(bench: Bench, change, reason: str) -> None:
    await bench.ask(USER)
    change(bench.history)
    await bench.ask(user("and now?"))
    assert [turn.row for turn in turns(await bench.ended())] == [0, 1]
    assert bench.count("learnloop_language_rows_total", reason=reason) == 1


async def test_other_tools_are_a_new_row(bench: Bench) -> None:
    await bench.ask(USER)
    await bench.ask(user("and now?"), tools=[LOOKUP])
    assert bench.count("learnloop_language_rows_total", reason="tools") == 1


async def test_a_turn_is_recorded_with_all_that_learning_needs(bench: Bench) -> None:
    bench.says.texts = ["good"]
    answer = await bench.ask(USER, temperature=0.7, max_tokens=99, seed=5, user="ada", metadata={"opted_in": "true"})
    trajectory = await bench.ended()
    (turn,) = turns(trajectory)
    assert turn.sampled_ids == bench.says.tokens.encode("good<|im_end|>")
    assert turn.log_probs == [-0.5] * 5
    assert turn.prompt_ids == bench.says.prompts[0]
    assert (turn.sampling.temperature, turn.sampling.max_tokens, turn.sampling.seed) == (0.7, 99, 5)
    assert turn.adapter_sha256 == "a" * 64
    assert turn.template_sha256 == bench.says.tokens.template_sha256
    assert turn.learnable == ""
    assert answer.json()["usage"]["total_tokens"] == turn.usage.prompt_tokens + 5
    assert trajectory.trajectory_id == answer.headers["x-learnloop-trajectory"]
    assert trajectory.metadata == {"opted_in": "true", "user_id": "ada"}
    assert (trajectory.outcome.success, trajectory.outcome.episode_return) == (True, 1.0)
    assert trajectory.outcome.values["output_tokens"] == 5
    assert trajectory.steps[-1].terminated


async def test_a_stream_says_the_same_as_a_whole_answer(bench: Bench) -> None:
    text = f"Let me see. {CALL} ünïcode 🙂"
    bench.says.texts = [text, text]
    whole = (await bench.ask(USER, tools=[LOOKUP])).json()["choices"][0]
    bench.history, bench.episode = [], ""
    streamed = await bench.ask(USER, tools=[LOOKUP], stream=True, stream_options={"include_usage": True})
    lines = [line[6:] for line in streamed.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line) for line in lines[:-1]]
    deltas = [piece["choices"][0]["delta"] for piece in pieces if piece["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole["message"]["content"]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["function"] for call in calls] == [call["function"] for call in whole["message"]["tool_calls"]]
    assert pieces[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "tool_calls"
    assert pieces[-1]["usage"]["completion_tokens"] > 0
    assert [piece["usage"] for piece in pieces[:-1]] == [None] * (len(pieces) - 1), "as OpenAI has it"


async def test_what_is_no_call_stays_text(bench: Bench) -> None:
    bench.says.texts = ['<tool_call>{"name": "lookup"', '<tool_call>{"name": 3}</tool_call>']
    for _ in range(2):
        message = (await bench.ask(USER, tools=[LOOKUP])).json()["choices"][0]["message"]
        assert message["content"].startswith("<tool_call>")
        assert "tool_calls" not in message
    assert [turn.row for turn in turns(await bench.ended())] == [0, 0]


async def test_a_stop_text_ends_the_answer_and_the_row(bench: Bench) -> None:
    bench.says.texts = ["one two three", "four"]
    answer = await bench.ask(USER, stop=["two"])
    assert answer.json()["choices"][0]["message"]["content"] == "one "
    await bench.ask(user("more"))
    assert bench.count("learnloop_language_rows_total", reason="stop") == 1


async def test_an_answer_cut_by_its_length_goes_on_with_the_end_that_the_template_gives_it(bench: Bench) -> None:
    bench.says.texts = ["a long answer", "more"]
    assert (await bench.ask(USER, max_tokens=3)).json()["choices"][0]["finish_reason"] == "length"
    await bench.ask(user("and?"))
    one, two = bench.says.prompts
    assert two[len(one) :] == bench.says.tokens.encode(
        "a l<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_what_redaction_would_change_is_recorded_as_text_without_its_tokens(bench: Bench) -> None:
    await bench.ask(user("I am bob@example.com"))
    await bench.ask(user("what now?"))
    trajectory = await bench.ended()
    assert turns(trajectory) == []
    assert "bob@example.com" not in trajectory.model_dump_json()
    assert "<EMAIL" in trajectory.model_dump_json()
    assert bench.count("learnloop_language_turns_total", recorded="text") == 2


async def test_what_redaction_would_change_in_a_history_that_began_anew_is_in_no_tokens(bench: Bench) -> None:
    await bench.ask(USER)
    bench.history[0] = user("I am bob@example.com")
    await bench.ask(user("what now?"), tools=[LOOKUP])  # other tools are named first
    assert [len(turn.prompt_ids) for turn in turns(await bench.ended())] == [len(bench.says.prompts[0])]


async def test_what_the_fallback_said_is_looked_at_before_it_becomes_tokens(tmp_path: Path) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": "write to bob@example.com"}}]}
    bench = build(tmp_path, fallback=Chat(reply))
    bench.says.texts = ["a", UpstreamDown("gone"), "b"]
    for text in ("hi", "who?", "thank you"):
        await bench.ask(user(text))
    trajectory = await bench.ended()
    assert (len(trajectory.steps), len(turns(trajectory))) == (2, 1)
    assert "bob@example.com" not in trajectory.model_dump_json()


async def test_store_false_keeps_the_rest_of_a_conversation_out_of_the_record(bench: Bench) -> None:
    await bench.ask(USER, store=False)
    await bench.ask(user("and?"))
    answer = await bench.client.post(
        f"/v1/episodes/{bench.episode}/end", json={"status": "completed", "episode_return": 0, "length": 2}
    )
    assert answer.json()["counted"]
    assert await bench.delivered() == []
    assert bench.count("learnloop_language_turns_total", recorded="nothing") == 2


async def test_a_failing_server_counts_against_the_arm_once_an_episode(bench: Bench) -> None:
    bench.says.texts = ["fine", UpstreamDown("gone"), UpstreamDown("gone")]
    await bench.ask(USER)
    await bench.ask({"role": "user", "content": "and?"})
    answer = await bench.ask()
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "server_error"
    assert bench.count("learnloop_policy_request_errors_total", verb="act") == 1
    assert bench.count("learnloop_requests_uncounted_total", verb="act", reason="again") == 1


async def test_a_server_that_breaks_off_ends_the_stream_with_an_error_and_a_turn_nobody_learns_from(bench):
    bench.says.texts = ["half an answ!!gone"]
    answer = await bench.ask(USER, stream=True)
    assert json.loads(answer.text.split("data: ")[-1])["error"]["code"] == "upstream"
    bench.episode = answer.headers["x-learnloop-episode"]
    (turn,) = turns(await bench.ended(success=False))
    assert turn.finish_reason == "error"
    assert turn.learnable


async def test_a_busy_server_is_429_with_the_time_to_wait_and_no_failure_of_the_arm(bench: Bench) -> None:
    bench.says.texts = [UpstreamBusy("busy", retry_after=7)]
    answer = await bench.ask(USER)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert bench.count("learnloop_policy_request_errors_total", verb="act") == 0


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"temperature": 3}, "temperature"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [USER, {"role": "assistant", "content": "x"}]}, "assistant"),
    ],
)
async def test_what_cannot_be_obeyed_is_refused_by_name(bench: Bench, fields: dict, refusal: str) -> None:
    answer = await bench.client.post("/v1/chat/completions", json={"model": "cart", "messages": [USER]} | fields)
    assert answer.status_code == 400
    assert refusal in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert bench.says.prompts == []


async def test_another_model_an_unknown_episode_and_a_long_prompt_say_so(tmp_path: Path) -> None:
    bench = build(tmp_path, context=64)
    ask = {"model": "gpt-9", "messages": [USER]}
    answer = await bench.client.post("/v1/chat/completions", json=ask)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    answer = await bench.client.post(
        "/v1/chat/completions", json=ask | {"model": "cart"}, headers={"x-learnloop-episode": "mine"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_episode")
    answer = await bench.ask(user("x" * 100))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(("path", "allow"), [("/v1/chat/completions", "POST"), ("/v1/models/cart", "GET, HEAD")])
async def test_a_method_that_is_not_served_is_405_with_those_that_are(bench: Bench, path: str, allow: str) -> None:
    answer = await bench.client.request("GET" if allow == "POST" else "POST", path, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_without_probabilities_a_turn_is_recorded_as_text(bench: Bench) -> None:
    bench.says.log_probs = False
    await bench.ask(USER)
    trajectory = await bench.ended()
    assert turns(trajectory) == []
    assert trajectory.steps[0].action == {"role": "assistant", "content": "hello"}


async def test_the_models_own_sampling_and_tools_hold_where_a_request_says_nothing(tmp_path: Path) -> None:
    tool = {"name": "lookup", "description": "", "parameters": {}}
    bench = build(tmp_path, model={"sampling": {"temperature": 0.3, "maxTokens": 7}, "tools": [tool]})
    await bench.ask(USER)
    assert (bench.says.samplings[0].temperature, bench.says.samplings[0].max_tokens) == (0.3, 7)
    assert " lookup" in bench.says.tokens.decode(bench.says.prompts[0])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/episodes/x/end", "/v1/episodes/e1/end"])
async def test_a_compressed_body_is_refused_as_such(bench: Bench, path: str) -> None:
    answer = await bench.client.post(path, content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert "send the body without Content-Encoding" in answer.json()["error"]["message"]
