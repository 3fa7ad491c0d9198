"""Servers that speak OpenAI's wire format and misbehave: slow, garbled, huge, busy, refusing. All by real HTTP."""

import asyncio
import gzip
import http.server
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from learnloop_common.settings import ConfigurationError
from learnloop_dataplane.config import Config
from learnloop_dataplane.embedding.embedder import HttpEmbedder
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.lifecycle.distillation import (
    MOST_ANSWER_BYTES,
    TASKS,
    CountingDistiller,
    Episode,
    ModelDistiller,
)
from learnloop_dataplane.openai_client import ChatModel, ModelServer, chat_probe

from ..conftest import running, settings
from ..recall.test_recall import ask

Answer = Callable[[http.server.BaseHTTPRequestHandler, Any], None]


class Served:
    """One server; `answer` says what it does with a request, `requests` what it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests = []
        self.url = ""
        self.over = threading.Event()


@contextmanager
def serving(answer: Answer) -> Iterator[Served]:
    served = Served(answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.requests.append((self.path, self.headers["authorization"], body))
            with suppress(BrokenPipeError, ConnectionResetError):  # the caller may have gone
                served.answer(self, body)

        def log_message(self, format: str, *arguments) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128  # the kernel turns away what does not fit

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield served
    finally:
        served.over.set()
        server.shutdown()
        server.server_close()


def says(content: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler, body) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def embeds(handler: http.server.BaseHTTPRequestHandler, body) -> None:
    rows = [{"index": place, "embedding": [1.0, float(len(text))]} for place, text in enumerate(body["input"])]
    says(json.dumps({"data": rows}).encode())(handler, body)


def chats(content: str) -> Answer:
    return says(json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode())


def drips(handler: http.server.BaseHTTPRequestHandler, body) -> None:
    """A byte now and then: no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def hangs(handler: http.server.BaseHTTPRequestHandler, body) -> None:
    time.sleep(10)


GARBAGE = [
    says(b"<html>welcome</html>"),
    says(b"[]"),
    says(b'{"data": null}'),
    says(b'{"data": [{"index": 0, "embedding": "abc"}]}'),
    says(b'{"data": [{"index": 0, "embedding": [1.0, NaN]}]}'),
    says(b'{"data": [{"index": 7, "embedding": [1.0, 2.0]}]}'),
    says(b'{"data": [{"index": 0, "embedding": [1.0]}]}'),
    says(b'{"data": [{"index": 0, "embedding": [1e300, 1.0]}]}'),
    says(b" " * 2**20),
    says(b"", 500),
    says(b"", 302, location="http://127.0.0.1:1/"),
    drips,
    hangs,
]


@pytest.mark.parametrize("answer", GARBAGE)
async def test_no_answer_of_an_embedder_is_trusted_and_the_next_caller_does_not_wait(answer: Answer) -> None:
    with serving(answer) as served:
        embedder = HttpEmbedder(served.url, "m", 2, seconds=0.5)
        started = time.monotonic()
        with pytest.raises(Unavailable):
            await embedder.embed(["one"])
        assert time.monotonic() - started < 5
        before = len(served.requests)
        with pytest.raises(Unavailable, match="not tried again yet"):
            await embedder.embed(["one"])
        assert len(served.requests) == before


async def test_a_compressed_answer_is_refused_before_it_is_unpacked() -> None:
    packed = gzip.compress(b" " * 200_000_000)
    with serving(says(packed, content_encoding="gzip")) as served:
        embedder = HttpEmbedder(served.url, "m", 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(Unavailable, match="Content-Encoding gzip, though identity was asked for"):
            await embedder.embed(["one"])
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 64, f"{grown:.0f} MiB for an answer of {len(packed)} bytes"


async def test_a_server_that_is_back_is_asked_again_and_one_that_wants_a_rest_gets_it() -> None:
    with serving(says(b"", 429, retry_after="2")) as served:
        embedder = HttpEmbedder(served.url, "m", 2)
        with pytest.raises(Unavailable, match="429"):
            await embedder.embed(["one"])
        served.answer = embeds
        await asyncio.sleep(1.2)
        with pytest.raises(Unavailable, match="not tried again yet"):
            await embedder.embed(["one"])
        await asyncio.sleep(1.0)
        [vector] = await embedder.embed(["four"])
        assert np.allclose(vector, np.array([1, 4]) / np.sqrt(17))


async def test_what_no_model_reads_and_what_no_utf8_holds_is_not_sent() -> None:
    with serving(embeds) as served:
        embedder = HttpEmbedder(served.url, "m", 2)
        await embedder.embed(["x" * 100_000, "half a pair \ud800"])
        sent = served.requests[-1][2]["input"]
        assert len(sent[0]) == 16_384
        assert sent[1] == "half a pair ?"


def episode(
    task: str = "refund", n: int = 6, text: str = "user: where is my money\nassistant called pay"
) -> list[Episode]:
    return [Episode(f"{task}-{i}", task, i % 2 == 0, float(i), None, f"user:{i}", text) for i in range(n)]


def distiller(served: Served, seconds: float = 2.0) -> ModelDistiller:
    server = ModelServer(served.url, chat_probe("small"), "key", seconds=seconds, most_bytes=MOST_ANSWER_BYTES)
    return ModelDistiller(ChatModel(server, "small", 800), seconds=2 * seconds)


LESSONS = json.dumps({"facts": ["Refunds take a day.", " Ask\nfor the  number. "], "procedure": "Call pay first."})


async def test_a_model_says_what_episodes_have_in_common_beside_what_is_counted() -> None:
    with serving(chats(f"Sure! ```json\n{LESSONS}\n```")) as served:
        own = distiller(served)
        counted = await CountingDistiller().distil("clerk", episode())
        lessons = await own.distil("clerk", episode())
        assert [memory.content for memory in lessons[: len(counted)]] == [memory.content for memory in counted]
        fact, how = lessons[len(counted) :]
        assert fact.content["text"] == "refund: Refunds take a day. Ask for the number."
        assert fact.content["facts"] == ["Refunds take a day.", "Ask for the number."]
        assert (fact.memory_type, how.memory_type) == ("semantic", "procedural")
        assert how.content["text"] == "refund: Call pay first."
        assert {fact.origin, how.origin}.isdisjoint({memory.origin for memory in counted})
        assert fact.provenance["people"] == [f"user:{i}" for i in range(6)], "an erasure of any of them takes it along"
        [(path, key, body)] = served.requests
        assert (path, key, body["model"], body["temperature"]) == ("/v1/chat/completions", "Bearer key", "small", 0)
        assert "where is my money" in body["messages"][1]["content"]
        again = await own.distil("clerk", episode())
        assert [memory.content for memory in again] == [memory.content for memory in lessons]
        assert len(served.requests) == 1, "the same episodes are not read twice"


BAD = [
    chats("I would rather not."),
    chats('{"facts": "one"}'),
    chats('{"facts": [1, 2]}'),
    chats('{"procedure": "x"}'),
    chats('} {"facts": []'),
    says(b'{"choices": []}'),
    says(b'{"choices": [{"message": {"content": null}}]}'),
    says(b" " * (MOST_ANSWER_BYTES + 1)),
    says(b"", 429, retry_after="30"),
    says(b"", 400),
    hangs,
]


@pytest.mark.parametrize("answer", BAD)
async def test_while_a_model_does_not_answer_there_is_what_was_counted(answer: Answer) -> None:
    with serving(answer) as served:
        own = distiller(served, seconds=0.5)
        started = time.monotonic()
        lessons = await own.distil("clerk", episode())
        assert time.monotonic() - started < 5
        counted = await CountingDistiller().distil("clerk", episode())
        assert [memory.content for memory in lessons] == [memory.content for memory in counted]


async def test_what_is_taken_of_an_answer_and_what_is_asked_in_one_pass_has_an_end() -> None:
    long = json.dumps({"facts": ["f" * 2000] * 50, "procedure": "p" * 50_000, "more": {"memories": [1]}})
    with serving(chats(long)) as served:
        own = distiller(served, seconds=20)
        episodes = [one for number in range(TASKS + 3) for one in episode(f"task{number:02}", 30, "x" * 9000)]
        learned = await own.distil("clerk", episodes)
        assert len(served.requests) == TASKS
        assert max(len(json.dumps(body)) for _, _, body in served.requests) < 40_000
        lessons = [memory for memory in learned if "lesson/" in memory.origin]
        assert len(lessons) == 2 * TASKS
        assert max(len(memory.content["text"]) for memory in lessons) < 2100
        await own.distil("clerk", episodes)
        assert len(served.requests) == TASKS + 3, "the rest is asked in the next pass"


@pytest.mark.parametrize("status", [413, 500])
async def test_a_task_about_which_nothing_useful_is_said_takes_no_turn_from_others_and_no_server_from_anybody(status):
    def answer(handler: http.server.BaseHTTPRequestHandler, body) -> None:
        if len(body["messages"]) == 1:
            return chats("ok")(handler, body)
        task = json.loads(body["messages"][1]["content"])["task"]
        if task.startswith("a-huge"):
            return says(b"", status)(handler, body)
        if task == "a00":
            return says(json.dumps({"choices": [{"message": {"refusal": "no", "content": None}}]}).encode())(
                handler, body
            )
        return chats("I say nothing." if task.startswith("a") else LESSONS)(handler, body)

    with serving(answer) as served:
        own = distiller(served, seconds=20)
        vain = [one for number in range(TASKS) for one in episode(f"a{'-huge' * (number % 2)}{number:02}")]
        episodes = [*vain, *episode("refund")]
        assert not [memory for memory in await own.distil("clerk", episodes) if "lesson/" in memory.origin]
        questions = [body for _, _, body in served.requests if len(body["messages"]) > 1]
        assert len(questions) == TASKS, "one that says nothing does not end the pass"
        others = await own.distil("other", episode("invoice"))
        assert [memory for memory in others if "lesson/" in memory.origin], "another agent's pass has the server"
        lessons = await own.distil("clerk", episodes)
        assert [memory for memory in lessons if "lesson/refund" in memory.origin], "the next pass begins with the rest"


async def test_episodes_of_numbers_are_sent_to_nobody() -> None:
    with serving(chats(LESSONS)) as served:
        own = distiller(served)
        assert len(await own.distil("walker", episode(text=""))) == 1
        assert not served.requests


async def test_a_service_with_a_distiller_keeps_its_lessons_and_an_erasure_takes_them(dsn: str, tmp_path: Path) -> None:
    with serving(chats(LESSONS)) as served:
        values = settings(dsn, tmp_path, distiller=f"{served.url}#small", distiller_key="secret")
        content = {"task": "refund", "success": True}
        async with running(**values) as api:
            memories = [
                {"agent_id": "desk", "memory_type": "episodic", "content": content | {"text": text}, "user_id": "anna"}
                for text in (f"caller {i} at anna@example.org wants a refund" for i in range(6))
            ]
            await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": memories})
            done = await api.call("POST", "/api/v1/memory/consolidate", json={"agent_id": "desk"})
            assert done["distilled"] >= 3
            assert "anna@example.org" not in json.dumps(served.requests[-1][2]), "it gets redacted text only"
            hits = (await ask(api, "desk", "how long do refunds take", k=10))["memories"]
            assert any("Refunds take a day." in memory["content"]["text"] for memory in hits)
            await api.call("POST", "/api/v1/erasure", json={"user_id": "anna"})
            assert not (await ask(api, "desk", "how long do refunds take"))["memories"]


@pytest.mark.parametrize("bad", ["gpt", "https://host/v1", "ftp://host#m", "https://host/v1#a b"])
def test_a_distiller_that_cannot_be_is_a_configuration_error(bad: str) -> None:
    env = {"LEARNLOOP_DSN": "postgresql://x/y", "LEARNLOOP_ARTIFACTS": "file:///tmp", "LEARNLOOP_DISTILLER": bad}
    with patch.dict(os.environ, env), pytest.raises(ConfigurationError, match="LEARNLOOP_DISTILLER"):
        Config.read()
