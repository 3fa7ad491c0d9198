"""The actor between a served model and a world: messages as they came, calls as worlds take them, how it ended."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from learnloop_environments.conversations.conversation_world import Message, ToolCall
from learnloop_sdk.conversation_actor import MOST_TURNS, Model, converse, message_of, to_openai
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.http_client import Identity


def calls(*arguments: str) -> list[dict]:
    return [
        {"id": f"call-{place}", "type": "function", "function": {"name": "lookup", "arguments": text}}
        for place, text in enumerate(arguments)
    ]


def test_a_message_is_read_as_worlds_take_it() -> None:
    assert message_of({"role": "assistant", "content": " answer 4 "}) == Message("assistant", "answer 4")
    one = message_of({"role": "assistant", "content": None, "tool_calls": calls('{"key": "k1"}')})
    assert one == Message("assistant", "", (ToolCall("lookup", {"key": "k1"}),))


@pytest.mark.parametrize("arguments", ["{", "[1]", '"k1"', "7"])
def test_arguments_that_are_no_object_make_a_message_malformed(arguments: str) -> None:
    assert message_of({"tool_calls": calls(arguments)}).malformed


def test_a_call_that_the_gateway_could_not_read_makes_a_message_malformed() -> None:
    assert message_of({"content": "<tool_call>{oops"}).malformed


def test_each_tool_answers_the_call_before_it() -> None:
    turns = to_openai([Message("tool", "4"), Message("user", "go on")], calls("{}"))
    assert turns == [{"role": "tool", "content": "4", "tool_call_id": "call-0"}, {"role": "user", "content": "go on"}]


class Recorder:
    """A conversation of a world that never ends, or ends after `most` answers."""

    def __init__(self, most: int = 10**6) -> None:
        self.opening: Sequence[Message] = (Message("user", "k1 ?"),)
        self.done, self.reward = False, 0.0
        self.success: bool | None = None
        self._left = most

    def reply(self, message: Message) -> Sequence[Message]:
        self._left -= 1
        if not self._left:
            self.done, self.success, self.reward = True, True, 1.0
            return ()
        return (Message("tool", "4"),)


class Gateway:
    """Answers by calls, and keeps what it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.application = web.Application()
        self.requests = []
        self.status = status
        self.application.router.add_post("/{path:.*}", self.answer)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, request.headers, await request.json()))
        if self.status != 200:
            return web.Response(status=self.status, text="not now")
        if request.path.endswith("/end"):
            return web.json_response({"counted": True})
        message = {"role": "assistant", "content": None, "tool_calls": calls('{"key":   "k1"}')}
        headers = {"x-learnloop-episode": "e1", "x-learnloop-revision": "r1"}
        return web.json_response({"choices": [{"message": message}]}, headers=headers)


@asynccontextmanager
async def model(gateway: Gateway) -> AsyncIterator[Model]:
    runner = web.AppRunner(gateway.application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Model(f"http://127.0.0.1:{runner.addresses[0][1]}", "tiny", Identity("default"))
    yield made
    await made.close()
    await runner.cleanup()


async def test_a_world_that_never_ends_is_left_and_was_no_success() -> None:
    gateway = Gateway()
    async with model(gateway) as client:
        result = await converse(client, Recorder(), [], "endless")
    assert (result.length, result.success) == (MOST_TURNS, False)
    assert gateway.requests[-1][2]["success"] is False


async def test_a_refusal_is_told_with_its_status() -> None:
    async with model(Gateway(429)) as client:
        with pytest.raises(LearnloopError, match="HTTP 429: not now"):
            await converse(client, Recorder(), [], "t")
