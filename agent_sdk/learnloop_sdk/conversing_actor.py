"""`python -m learnloop_sdk.conversing_actor`: holds conversations with the served language model for ever.

What an actor is to a policy, this is to a model that speaks: it takes a world's tasks (learnloop_environments), asks
the model by OpenAI's wire format, answers its tool calls, and says how each conversation ended. The gateway records the
turns; nothing is recorded here. Every option has an environment variable, LEARNLOOP_ACTOR_<OPTION>. SIGTERM stops
between turns. One JSON line of progress every 10 seconds goes to standard output.
"""

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from learnloop_api import names
from learnloop_common import process_end
from learnloop_sdk.actor import PROGRESS_SECONDS, Pace, Tally, keep_on, options_of
from learnloop_sdk.episode_in_environment import EpisodeResult
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.http_client import Http, Identity, Response, namespace_of

SECONDS = 120.0
"""An answer takes at most so long."""
MOST_TURNS = 64
"""A world that never ends a conversation is left after so many answers, and the conversation counts as no success."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options; each falls back to its environment variable."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_sdk.conversing_actor", description=__doc__)
    options_of(
        parser,
        "environment",
        "agent",
        "endpoint",
        "concurrency",
        "episodes",
        "max-steps-per-second",
    )
    return parser.parse_args(arguments)


class Model:
    """The gateway of one ModelDeployment, as a client of OpenAI's wire format sees it."""

    def __init__(self, endpoint: str, name: str, identity: Identity) -> None:
        """`name`: of the ModelDeployment, which is what the gateway calls its model."""
        self._endpoint, self._name, self._identity = endpoint.rstrip("/"), name, identity
        self._http = Http()

    async def answer(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], episode: str, task: str
    ) -> tuple[dict[str, Any], str, str]:
        """The next message, the conversation's id, and who answered; raises LearnloopError."""
        body: dict[str, Any] = {"model": self._name, "messages": list(messages), "metadata": {"task": task}}
        if tools:
            body["tools"] = list(tools)
        answer = await self._post("/v1/chat/completions", body, {names.HEADER_EPISODE: episode} if episode else {})
        try:
            message = json.loads(answer.body)["choices"][0]["message"]
            headers = answer.headers
            return dict(message), headers[names.HEADER_EPISODE], headers.get(names.HEADER_REVISION, "")
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise LearnloopError(f"the gateway's answer is not OpenAI's format: {error!r}"[:300]) from error

    async def end(self, episode: str, reward: float, length: int, success: bool | None) -> None:
        """Say how the conversation ended; raises LearnloopError."""
        ending: dict[str, Any] = {"status": "completed", "episode_return": reward, "length": length}
        if success is not None:
            ending["success"] = success
        await self._post(f"/v1/episodes/{episode}/end", ending, {})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
        sent = {**self._identity.headers(), **headers}
        try:
            answer = await self._http.post(f"{self._endpoint}{path}", json.dumps(body).encode(), sent, SECONDS)
        except (OSError, TimeoutError) as error:
            raise LearnloopError(f"{path}: the gateway does not answer: {error or type(error).__name__}") from error
        if answer.status != 200:
            raise LearnloopError(f"{path}: {answer.status} {answer.text[:300]}")
        return answer


def said_by(message: Mapping[str, Any]) -> Any:
    """The model's message as worlds take it; arguments that are no JSON object make it malformed."""
    from learnloop_environments.conversations.base import Message, ToolCall

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
    """What the world says, as the Chat Completions API takes it; `calls`: those that tools answer, in their order."""
    found, left = [], list(calls)
    for one in messages:
        said: dict[str, Any] = {"role": one.role, "content": one.content}
        if one.role == "tool" and left:
            said["tool_call_id"] = left.pop(0).get("id", "")
        found.append(said)
    return found


async def converse(model: Model, conversation: Any, tools: Sequence[Mapping[str, Any]], task: str) -> EpisodeResult:
    """Hold one conversation to its end, and say how it went; raises LearnloopError."""
    messages = to_openai(conversation.opening)
    episode, revision, turns = "", "", 0
    while not conversation.done and turns < MOST_TURNS:
        message, episode, revision = await model.answer(messages, tools, episode, task)
        turns += 1
        said = conversation.reply(said_by(message))
        # As it came: a message that is written anew is another history, and its tokens would not be learned from.
        messages = [*messages, message, *to_openai(said, message.get("tool_calls") or ())]
    success = conversation.success if conversation.done else False
    reward = float(conversation.reward)
    await model.end(episode, reward, turns, success)
    return EpisodeResult(episode, "", revision, reward, turns, success, 0)


async def play(model: Model, world: Any, options: argparse.Namespace, tally: Tally, pace: Pace) -> None:
    """One of the concurrent users."""
    from learnloop_environments.randomness import Split

    seed, numbers = random.getrandbits(31), itertools.count(1)

    async def conversation() -> EpisodeResult:
        held = world.begin(Split.TRAINING, seed, next(numbers))
        return await converse(model, held, world.tools, options.environment)

    await keep_on(conversation, "conversation", tally, pace)


async def play_all(model: Model, options: argparse.Namespace, tally: Tally) -> None:
    """All users; a world that breaks stops them all. Raises LearnloopError where there is no such world."""
    from learnloop_environments import own_code
    from learnloop_environments.conversations.make import make_world
    from learnloop_environments.errors import TrainerError

    own_code.use(os.environ)
    try:
        world = make_world(options.environment)
    except TrainerError as error:
        raise LearnloopError(str(error)) from error
    pace = Pace(options.max_steps_per_second)
    async with asyncio.TaskGroup() as group:
        for _ in range(options.concurrency):
            group.create_task(play(model, world, options, tally, pace))


def _say(tally: Tally, seconds: float) -> None:
    mean = round(sum(tally.returns) / len(tally.returns), 3) if tally.returns else None
    line = {
        "episodes": tally.episodes,
        "turns_per_second": round(tally.steps / max(seconds, 1e-9), 1),
        "return_mean_100": mean,
        "errors": tally.errors,
    }
    print(json.dumps(line), flush=True)


async def _report(tally: Tally, start: float) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        _say(tally, time.monotonic() - start)


async def run(options: argparse.Namespace) -> int:
    """Converse until SIGTERM or the last conversation; returns the exit status."""
    stopping = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stopping.set)
    model = Model(options.endpoint, options.agent, Identity(namespace_of(None)))
    tally, start = Tally(limit=options.episodes), time.monotonic()
    players = asyncio.create_task(play_all(model, options, tally))
    reporter = asyncio.create_task(_report(tally, start))
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait([players, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in (players, reporter, stop):
        task.cancel()
    failure = (await asyncio.gather(players, reporter, stop, return_exceptions=True))[0]
    await model.close()
    _say(tally, time.monotonic() - start)
    if isinstance(failure, Exception):
        process_end.end(failure, "the actor stops: ")
    return int(isinstance(failure, Exception))


def main() -> int:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    return asyncio.run(run(parse(sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
