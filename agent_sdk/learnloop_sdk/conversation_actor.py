"""`python -m learnloop_sdk.conversation_actor`: holds conversations with the served language model without end.

It takes tasks of a world (learnloop_environments), asks the model by OpenAI's wire format, answers its tool calls, and
reports how each conversation ended. The gateway records the turns. Options as of learnloop_sdk.environment_actor.
"""

import itertools
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from learnloop_api import names
from learnloop_sdk import environment_actor, environments, errors, http_client

SECONDS = 120.0
"""Limit of an answer."""
MOST_TURNS = 64
"""Limit of a conversation that its world does not end; it then counts as a failure."""


class Model:
    """Client of one ModelDeployment's gateway, by OpenAI's wire format."""

    def __init__(self, endpoint: str, name: str, identity: http_client.Identity) -> None:
        self._endpoint, self._name, self._identity = endpoint.rstrip("/"), name, identity
        self._http = http_client.Http()

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], episode: str, task: str
    ) -> tuple[dict[str, Any], str, str]:
        """Return the next message, the conversation's id, and the revision; raises LearnloopError."""
        body: dict[str, Any] = {"model": self._name, "messages": list(messages), "metadata": {"task": task}}
        if tools:
            body["tools"] = list(tools)
        answer = await self._post("/v1/chat/completions", body, {names.HEADER_EPISODE: episode} if episode else {})
        try:
            message = json.loads(answer.body)["choices"][0]["message"]
            headers = answer.headers
            return dict(message), headers[names.HEADER_EPISODE], headers.get(names.HEADER_REVISION, "")
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise errors.LearnloopError(f"the gateway's answer is not OpenAI's format: {error!r}"[:300]) from error

    async def end(self, episode: str, reward: float, length: int, success: bool | None) -> None:
        """Report how the conversation ended; raises LearnloopError."""
        ending: dict[str, Any] = {"status": "completed", "episode_return": reward, "length": length}
        if success is not None:
            ending["success"] = success
        await self._post(f"/v1/episodes/{episode}/end", ending, {})

    async def close(self) -> None:
        await self._http.close()

    async def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> http_client.Response:
        sent = {**self._identity.headers(), **headers}
        try:
            answer = await self._http.post(f"{self._endpoint}{path}", json.dumps(body).encode(), sent, SECONDS)
        except (OSError, TimeoutError) as error:
            raise errors.LearnloopError(
                f"{path}: the gateway does not answer: {error or type(error).__name__}"
            ) from error
        if answer.status != 200:
            raise errors.LearnloopError(f"{path}: {answer.summary}")
        return answer


def message_of(message: Mapping[str, Any]) -> Any:
    """Convert the model's message for a world; arguments other than a JSON object make it malformed."""
    from learnloop_environments.conversations.conversation_world import Message, ToolCall

    calls, malformed = [], False
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except (ValueError, TypeError):
            arguments = None
        if isinstance(arguments, dict) and isinstance(function.get("name"), str):
            calls.append(ToolCall(function["name"], arguments))
        else:
            malformed = True
    text = str(message.get("content") or "")
    malformed = malformed or "<tool_call>" in text or "</tool_call>" in text
    return Message("assistant", text.strip(), tuple(calls), malformed)


def to_openai(messages: Sequence[Any], calls: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Convert a world's messages for the Chat Completions API; `calls`: those that tools answer, in their order."""
    converted, left = [], list(calls)
    for one in messages:
        message: dict[str, Any] = {"role": one.role, "content": one.content}
        if one.role == "tool" and left:
            message["tool_call_id"] = left.pop(0).get("id", "")
        converted.append(message)
    return converted


async def converse(
    model: Model, conversation: Any, tools: Sequence[Mapping[str, Any]], task: str
) -> environments.EpisodeResult:
    """Hold one conversation to its end and report it; raises LearnloopError."""
    messages = to_openai(conversation.opening)
    episode, revision, turns = "", "", 0
    while not conversation.done and turns < MOST_TURNS:
        message, episode, revision = await model.answer(messages, tools, episode, task)
        turns += 1
        answers = conversation.reply(message_of(message))
        # Unchanged: a message that is written again is another history, whose tokens are not learned from.
        messages = [*messages, message, *to_openai(answers, message.get("tool_calls") or ())]
    success = conversation.success if conversation.done else False
    reward = float(conversation.reward)
    await model.end(episode, reward, turns, success)
    return environments.EpisodeResult(episode, "", revision, reward, turns, success, 0)


async def run(options: environment_actor.Options) -> int:
    """Converse with the served model; raises LearnloopError where the world does not exist."""
    from learnloop_environments import user_environment
    from learnloop_environments.errors import TrainerError
    from learnloop_environments.make import make_world
    from learnloop_environments.randomness import Split

    model = Model(options.endpoint, options.agent, http_client.Identity(http_client.namespace_of(None)))

    def new_player() -> Callable[[], Awaitable[environments.EpisodeResult]]:
        user_environment.use(os.environ)
        try:
            world = make_world(options.environment)
        except TrainerError as error:
            raise errors.LearnloopError(str(error)) from error
        seed, numbers = random.getrandbits(31), itertools.count(1)
        return lambda: converse(
            model, world.begin(Split.TRAINING, seed, next(numbers)), world.tools, options.environment
        )

    async def close() -> int:
        await model.close()
        return 0

    return await environment_actor.act(options, new_player, close)


if __name__ == "__main__":
    sys.exit(environment_actor.main(run))
