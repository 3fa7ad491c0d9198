"""OpenAI's own client for Python, with everything that people do with it; refusals in the shape of OpenAI's errors."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import httpx
import openai
from pydantic import BaseModel

from bench.judges.cases import Suite
from testing.language.scripted_server import ScriptedServer

USER: Any = {"role": "user", "content": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TOOL: Any = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "n of 2": ({"n": 2}, "n"),
    "logprobs": ({"logprobs": True}, "logprobs"),
    "top_logprobs": ({"logprobs": True, "top_logprobs": 3}, "logprobs"),
    "an image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages"),
    "sound": ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "audio"),
    "a JSON object": ({"response_format": {"type": "json_object"}}, "response_format"),
    "a tool that must be called": ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    "one tool that must be called": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "lookup"}}},
        "tool_choice",
    ),
    "a strict tool": (
        {"tools": [{"type": "function", "function": TOOL["function"] | {"strict": True}}]},
        "strict",
    ),
    "no parallel calls": ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
    "a prediction": ({"prediction": {"type": "content", "content": "hi"}}, "prediction"),
    "bias of tokens": ({"logit_bias": {"5": 1}}, "logit_bias"),
    "penalties": ({"presence_penalty": 0.5}, "presence_penalty"),
    "effort": ({"reasoning_effort": "high"}, "reasoning_effort"),
    "too hot": ({"temperature": 2.5}, "temperature"),
    "top_p of 2": ({"top_p": 2}, "top_p"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "five stops": ({"stop": list("abcde")}, "stop"),
    "no message": ({"messages": []}, "messages"),
    "a role that there is not": ({"messages": [{"role": "judge", "content": "x"}]}, "messages"),
    "17 keys of metadata": ({"metadata": {str(key): "x" for key in range(17)}}, "metadata"),
}
OBEYED: dict[str, dict[str, Any]] = {
    "one choice": {"n": 1},
    "sampling": {"temperature": 0.7, "top_p": 0.9, "seed": 7},
    "metadata, user, store": {"metadata": {"task": "t"}, "user": "u1", "store": True},
    "keys of caches and people": {"prompt_cache_key": "k", "safety_identifier": "s"},
    "text as the format": {"response_format": {"type": "text"}},
    "tools that are not to be called": {"tools": [TOOL], "tool_choice": "none"},
    "parts of text": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
    "a developer's words": {"messages": [{"role": "developer", "content": "be brief"}, USER]},
    "a system's words": {"messages": [{"role": "system", "content": "be brief"}, USER]},
    "a name": {"messages": [USER | {"name": "ann"}]},
}


class Answer(BaseModel):
    """A structured output."""

    value: int


def speak(prompt: str) -> str:
    """Call the tool where one is offered, then say what it answered."""
    tool_turn = prompt.rsplit("<|im_start|>tool\n", 1)
    if len(tool_turn) > 1 and tool_turn[1].endswith("<|im_end|>\n<|im_start|>assistant\n"):
        return f"it is {tool_turn[1].split('<|im_end|>')[0]}"
    if "lookup" in prompt.split("<|im_end|>")[0]:
        return '<tool_call>{"name": "lookup", "arguments": {"key": "k1"}}</tool_call>'
    return "hello"


def _speak_late(prompt: str) -> str:
    time.sleep(2)
    return speak(prompt)


def client_suite(url: str, server: ScriptedServer) -> Suite:
    """Everything, against a gateway whose model server is `server`."""
    suite = Suite("openai, Python", version("openai"))
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
    _models(suite, client)
    _answers(suite, client)
    _streams(suite, client)
    _tools(suite, client)
    _refusals(suite, client)
    _raw_refusals(suite, url)
    _waits(suite, client, server)
    return suite


def _models(suite: Suite, client: openai.OpenAI) -> None:
    with suite.case("models"):
        _equal([model.id for model in client.models.list()], ["cart"])
    with suite.case("one model"):
        _equal(client.models.retrieve("cart").object, "model")
    with suite.case("another model"):
        _refused(lambda: client.models.retrieve("gpt-9"), 404, "model")
    with suite.case("a model is not deleted"):
        _refused(lambda: client.models.delete("cart"), 405, "DELETE")


def _answers(suite: Suite, client: openai.OpenAI) -> None:
    for name, fields in {"plain": {}, **OBEYED}.items():
        with suite.case(name):
            answer = _chat(client, **fields)
            _equal((answer.object, answer.model, len(answer.choices)), ("chat.completion", "cart", 1))
            _equal((answer.choices[0].message.content, answer.choices[0].finish_reason), ("hello", "stop"))
            _equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
    for field in ("max_tokens", "max_completion_tokens"):
        with suite.case(field):
            answer = _chat(client, **{field: 1})
            _equal((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 1))
    for stop in ("ll", ["zz", "ll"]):
        with suite.case(f"stop {stop}"):
            choice = _chat(client, stop=stop).choices[0]
            _equal((choice.message.content, choice.finish_reason), ("he", "stop"))
    with suite.case("raw headers"):
        raw = client.chat.completions.with_raw_response.create(model="cart", messages=[USER])
        _equal(raw.headers["content-type"].partition(";")[0], "application/json")
        _equal(raw.parse().choices[0].message.content, "hello")
    with suite.case("eight at a time"):
        _equal(asyncio.run(_eight(str(client.base_url))), ["hello"] * 8)


def _streams(suite: Suite, client: openai.OpenAI) -> None:
    with suite.case("a stream"):
        chunks = list(_chat(client, stream=True))
        _equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), "hello")
        _equal((chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason), ("assistant", "stop"))
        _equal(len({chunk.id for chunk in chunks}), 1)
    with suite.case("a stream with usage"):
        last = list(_chat(client, stream=True, stream_options={"include_usage": True}))[-1]
        _equal((last.choices, last.usage.total_tokens > 0), ([], True))
    with suite.case("a stream with a stop"):
        chunks = list(_chat(client, stream=True, stop="ll"))
        _equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), "he")
    with suite.case("the client's own gathering of a stream"):
        with client.chat.completions.stream(model="cart", messages=[USER]) as stream:
            gathered = stream.get_final_completion()
        _equal(gathered.choices[0].message.content, "hello")
    with suite.case("a stream of the asynchronous client, and one that is left"):
        _equal(asyncio.run(_stream_and_leave(str(client.base_url))), "hello")
        _equal(_chat(client).choices[0].message.content, "hello")
    with suite.case("a stream that is left"):
        with _chat(client, stream=True) as stream:
            next(iter(stream))
        _equal(_chat(client).choices[0].message.content, "hello")


def _tools(suite: Suite, client: openai.OpenAI) -> None:
    with suite.case("a tool's call and result"):
        first = _chat(client, tools=[TOOL]).choices[0]
        _equal((first.finish_reason, first.message.tool_calls[0].function.name), ("tool_calls", "lookup"))
        _equal(json.loads(first.message.tool_calls[0].function.arguments), {"key": "k1"})
        result = {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "4"}
        answer = _chat(client, tools=[TOOL], messages=[USER, first.message, result])
        _equal(answer.choices[0].message.content, "it is 4")
    with suite.case("a tool's call in a stream"):
        with client.chat.completions.stream(model="cart", messages=[USER], tools=[TOOL]) as stream:
            calls: Any = stream.get_final_completion().choices[0].message.tool_calls
        _equal((len(calls), json.loads(calls[0].function.arguments)), (1, {"key": "k1"}))

    with suite.case("two results of calls in one turn"):
        calls = [{"id": f"c{n}", "type": "function", "function": {"name": "lookup", "arguments": "{}"}} for n in (1, 2)]
        results = [{"role": "tool", "tool_call_id": f"c{n}", "content": str(n)} for n in (1, 2)]
        turn = {"role": "assistant", "content": None, "tool_calls": calls}
        _equal(_chat(client, tools=[TOOL], messages=[USER, turn, *results]).choices[0].message.content, "it is 2")
    with suite.case("a tool of the client's own making, which is strict"):
        _refused(partial(_chat, client, tools=[openai.pydantic_function_tool(Answer)]), 400, "strict")


def _refusals(suite: Suite, client: openai.OpenAI) -> None:
    for name, (fields, word) in REFUSED.items():
        for streamed in (False, True):
            with suite.case(f"{name}, {'streamed' if streamed else 'whole'}"):
                _refused(partial(_chat, client, **fields, stream=streamed), 400, word)
    with suite.case("structured output"):
        parse = client.chat.completions.parse
        _refused(lambda: parse(model="cart", messages=[USER], response_format=Answer), 400, "response_format")
    with suite.case("a model that is not here"):
        _refused(lambda: _chat(client, model="gpt-9"), 404, "gpt-9")
    with suite.case("an episode that is not here"):
        _refused(lambda: _chat(client, extra_headers={"x-learnloop-episode": "other"}), 404, "episode")
    routes: dict[str, Callable[[], Any]] = {
        "embeddings": lambda: client.embeddings.create(model="cart", input="x"),
        "completions": lambda: client.completions.create(model="cart", prompt="x"),
        "responses": lambda: client.responses.create(model="cart", input="x"),
        "moderations": lambda: client.moderations.create(input="x"),
        "files": lambda: client.files.list(),
    }
    for name, ask in routes.items():
        with suite.case(f"{name}, which are not served"):
            _refused(ask, 404, name)


def _raw_refusals(suite: Suite, url: str) -> None:
    chat = f"{url}/chat/completions"
    for name, (body, headers, status) in {
        "no JSON": (b"{", {}, 400),
        "a list": (b"[]", {}, 400),
        "nothing": (b"", {}, 400),
        "no UTF-8": (b'{"model": "\xff"}', {}, 400),
        "a lone surrogate": (b'{"model": "cart", "messages": [{"role": "user", "content": "\\ud800"}]}', {}, 400),
        "a compressed body": (b"x", {"content-encoding": "gzip"}, 415),
        "nine mebibytes": (b" " * (9 * 2**20), {}, 413),
    }.items():
        with suite.case(name):
            _shaped(httpx.post(chat, content=body, headers=headers, timeout=60), status)
    for method, path in (("PUT", chat), ("GET", chat), ("DELETE", chat), ("PATCH", f"{url}/models"), ("POST", url)):
        with suite.case(f"{method} {path.removeprefix(url)}"):
            answer = httpx.request(method, path, timeout=60)
            _shaped(answer, answer.status_code if answer.status_code in (404, 405) else 405)


def _waits(suite: Suite, client: openai.OpenAI, server: ScriptedServer) -> None:
    with suite.case("the client's timeout"):
        server.script = _speak_late
        try:
            client.with_options(timeout=0.5).chat.completions.create(model="cart", messages=[USER])
            raise AssertionError("it did not time out")
        except openai.APITimeoutError:
            pass
        finally:
            server.script = speak
        _equal(_chat(client).choices[0].message.content, "hello")
    with suite.case("a busy model server"):
        server.broken = 429
        try:
            _chat(client)
            raise AssertionError("it was answered")
        except openai.RateLimitError as error:
            _shaped(error.response, 429)
            _equal(error.response.headers["retry-after"].isdigit(), True)
        finally:
            server.broken = 0
    for name, stream in (("a broken model server", False), ("a stream of a broken model server", True)):
        with suite.case(name):
            server.broken = 503
            try:
                list(_chat(client, stream=stream))
                raise AssertionError("it was answered")
            except openai.InternalServerError as error:
                _shaped(error.response, 502)
            finally:
                server.broken = 0
    with suite.case("the client's own retries of a busy model server"):
        server.broken = 429
        healed = threading.Timer(0.5, lambda: setattr(server, "broken", 0))
        healed.start()
        answer = client.with_options(max_retries=6).chat.completions.create(model="cart", messages=[USER])
        healed.join()
        _equal(answer.choices[0].message.content, "hello")
    with suite.case("the client's own retries"):
        server.broken = 503
        healed = threading.Timer(1.0, lambda: setattr(server, "broken", 0))
        healed.start()
        answer = client.with_options(max_retries=6).chat.completions.create(model="cart", messages=[USER])
        healed.join()
        _equal(answer.choices[0].message.content, "hello")


async def _eight(url: str) -> list[str | None]:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        ask = client.chat.completions.create
        answers = await asyncio.gather(*(ask(model="cart", messages=[USER]) for _ in range(8)))
    return [answer.choices[0].message.content for answer in answers]


async def _stream_and_leave(url: str) -> str:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model="cart", messages=[USER], stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        async with await client.chat.completions.create(model="cart", messages=[USER], stream=True) as left:
            await anext(aiter(left))
    return text


def _chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**({"model": "cart", "messages": [USER]} | fields))


def _refused(ask: Callable[[], Any], status: int, word: str) -> None:
    try:
        answer = ask()
    except openai.APIStatusError as error:
        _shaped(error.response, status)
        if word not in error.response.json()["error"]["message"]:
            raise AssertionError(f"no {word!r} in {error.response.text}") from None
    else:
        raise AssertionError(f"it was answered: {answer}")


def _shaped(answer: Any, status: int) -> None:
    _equal(answer.status_code, status)
    error = answer.json()["error"]
    _equal(sorted(error), ["code", "message", "param", "type"])
    good = isinstance(error["message"], str) and error["message"] and error["type"].endswith("_error")
    _equal((bool(good), isinstance(error["code"], str | None), isinstance(error["param"], str | None)), (True,) * 3)


def _equal(value: Any, expected: Any) -> None:
    if value != expected:
        raise AssertionError(f"{value!r}, expected {expected!r}")
