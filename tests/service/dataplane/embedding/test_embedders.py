"""Embedders behind the port: a model on disk, a server, and what happens when either changes or goes away."""

import asyncio
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from learnloop_dataplane.assembly.memory_parts import open_vectors
from learnloop_dataplane.config import Config
from learnloop_dataplane.embedding.embedder import HttpEmbedder, OnnxEmbedder, open_embedder
from learnloop_dataplane.errors import ConfigError, Unavailable
from learnloop_dataplane.privacy import use_keys

from ..conftest import eventually, running, settings
from ..recall.test_recall import ask, store

INPUTS = ("input_ids", "attention_mask")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "dog", "##s", "the", "a", "!"]


def model(directory: Path, seed: int = 0, dimensions: int = 8) -> Path:
    """A model that looks token states up in a table: what an encoder does before its first layer."""
    table = np.random.default_rng(seed).standard_normal((len(VOCABULARY), dimensions)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["states"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"]) for name in INPUTS],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, ["b", "t", dimensions])],
        [numpy_helper.from_array(table, "table")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    directory.mkdir(exist_ok=True)
    onnx.save(made, directory / "model.onnx")
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY))
    return directory


async def test_a_long_text_counts_by_its_beginning_and_a_lone_surrogate_is_no_fault(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(model(tmp_path / "m"))
    long, longer, odd = await embedder.embed(["cat " * 254, "cat " * 254 + "bird " * 9, "cat \ud800"])
    assert np.allclose(long, longer)
    assert np.isfinite(odd).all()


async def test_a_model_on_disk_embeds_the_same_whatever_it_is_batched_with(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(model(tmp_path / "m"))
    [alone] = await embedder.embed(["the cat"])
    together = await embedder.embed(["the cat", "a dog and the cats and a cat", ""])
    assert np.allclose(alone, together[0], atol=1e-6)
    assert np.linalg.norm(alone) == pytest.approx(1.0, abs=1e-6)
    assert not together[2].any()
    assert embedder.name != OnnxEmbedder(model(tmp_path / "n", seed=1)).name
    with pytest.raises(ConfigError, match="holds no ONNX model"):
        OnnxEmbedder(tmp_path)


async def test_a_question_gets_its_vector_while_many_texts_get_theirs(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(model(tmp_path / "m"))
    many = asyncio.create_task(embedder.embed(["the cat " * 120] * 2000))
    await asyncio.sleep(0.05)
    [vector] = await embedder.embed(["a dog"])
    assert vector.any()
    assert not many.done()
    assert len(await many) == 2000


REFUSED = {"poison": 500, "costly": 429}


class Server(http.server.BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint."""

    dimensions = 8
    requests: list[Any] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).requests.append((self.headers["authorization"], body))
        rows = [
            {"index": index, "embedding": [float(ord(char)) for char in text.ljust(self.dimensions)[: self.dimensions]]}
            for index, text in enumerate(body["input"])
        ]
        content = json.dumps({"data": rows[::-1]}).encode()
        refused = (status for word, status in REFUSED.items() if any(word in text for text in body["input"]))
        self.send_response(next(refused, 200))
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_two_servers_that_call_their_model_alike_are_two_embedders() -> None:
    names = {HttpEmbedder(url, "m", 2).name for url in ("http://one/v1", "http://one/v1/", "http://two/v1")}
    assert len(names) == 2


async def test_a_server_embeds_in_order_with_its_key_and_bad_answers_are_refused(tmp_path: Path) -> None:
    with serving() as url:
        embedder = HttpEmbedder(url, "m", 8, key="k")
        vectors = await embedder.embed(["abc", "", "xyz"])
        assert Server.requests[-1] == ("Bearer k", {"model": "m", "input": ["abc", "xyz"]})
        assert vectors[0] @ np.array([97, 98, 99] + [32] * 5) == pytest.approx(np.linalg.norm([97, 98, 99] + [32] * 5))
        assert not vectors[1].any()
        with pytest.raises(Unavailable, match="expected"):
            await HttpEmbedder(url, "m", 5).embed(["abc"])


@pytest.mark.parametrize("scale", ["1e-40", "1e-20", "1", "1e20", "1e38"])
async def test_a_vector_of_any_length_becomes_one_of_length_one(scale: str) -> None:
    body = f'{{"data": [{{"index": 0, "embedding": [{scale}, -{scale}, 0]}}]}}'
    answers = httpx.MockTransport(lambda request: httpx.Response(200, content=body.encode()))
    embedder = HttpEmbedder("http://embedder/v1", "m", 3, transport=answers)
    [vector] = await embedder.embed(["abc"])
    assert vector == pytest.approx([0.7071, -0.7071, 0.0], abs=1e-3)


async def test_a_wrong_model_name_is_no_reason_to_leave_all_texts_without_a_vector() -> None:
    refused = httpx.MockTransport(lambda request: httpx.Response(400))
    with pytest.raises(Unavailable, match="400"):
        await HttpEmbedder("http://embedder/v1", "m", 2, transport=refused).embed(["text 1", "text 2"])


def _status(status: int) -> Callable[[str], httpx.Response]:
    return lambda text: httpx.Response(status, json={"error": {"message": "input is larger than the batch"}})


def _broken(text: str) -> httpx.Response:
    raise httpx.ReadError("connection reset")


def _hangs(text: str) -> httpx.Response:
    raise httpx.ReadTimeout("no answer")


POISON: dict[str, Callable[[str], httpx.Response]] = {
    "500": _status(500),
    "503": _status(503),
    "404": _status(404),
    "429": lambda text: httpx.Response(429, headers={"retry-after": "0"}),
    "503 and a rest": lambda text: httpx.Response(503, headers={"retry-after": "0"}),
    "400": _status(400),
    "connection": _broken,
    "time-out": _hangs,
    "no vector": lambda text: httpx.Response(200, json={"data": [{"index": 0, "embedding": None}]}),
    "NaN": lambda text: httpx.Response(200, content=b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}'),
}


def embedder_that_fails_on(bad: Callable[[str], bool], how: str, sent: list[list[str]]) -> HttpEmbedder:
    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        sent.append(texts)
        for text in texts:
            if bad(text):
                return POISON[how](text)
        return httpx.Response(200, json={"data": [{"index": n, "embedding": [1, 2]} for n, _ in enumerate(texts)]})

    return HttpEmbedder("http://embedder/v1", "m", 2, transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("how", POISON)
async def test_a_text_that_the_server_fails_on_is_given_up_alone(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the server does with one text, it is the text's fault as long as it embeds another one."""
    sent: list[list[str]] = []
    embedder = embedder_that_fails_on(lambda text: "poison" in text, how, sent)
    texts = [f"text {number}" for number in range(100)]
    texts[70] = "poison"
    vectors = await embedder.embed(texts)
    assert [bool(vector.any()) for vector in vectors] == [text != "poison" for text in texts]
    assert "no vector for a text of 6 characters" in caplog.text
    assert len(sent) < 40
    for _ in range(5):  # a question that fails opens nothing for the next one
        assert not (await embedder.embed(["poison"]))[0].any()
        assert (await embedder.embed(["a question of another namespace"]))[0].any()


@pytest.mark.parametrize("how", ["500", "400"])
async def test_a_text_that_is_too_long_for_the_server_has_the_vector_of_its_beginning(how: str) -> None:
    embedder = embedder_that_fails_on(lambda text: len(text) > 1500, how, [])
    short, long = await embedder.embed(["short", "long " * 1000])
    assert short.any()
    assert long.any()


async def test_a_text_that_is_throttled_is_sent_again_whole_after_the_rest() -> None:
    loop, until = asyncio.get_running_loop(), asyncio.get_running_loop().time() + 0.9

    def answer(request: httpx.Request) -> httpx.Response:
        [text] = json.loads(request.content)["input"]
        if len(text) > 100 and loop.time() < until:
            return httpx.Response(429, headers={"retry-after": "1"})
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1, len(text)]}]})

    embedder = HttpEmbedder("http://embedder/v1", "m", 2, transport=httpx.MockTransport(answer))
    task = asyncio.create_task(embedder.embed(["long " * 1000]))
    await asyncio.sleep(0.1)
    assert (await embedder.embed(["a question of another namespace"]))[0].any()
    [vector] = await task
    assert np.allclose(vector, np.array([1, 5000]) / np.hypot(1, 5000))


@pytest.mark.parametrize("headers", [{}, {"retry-after": "30"}])
async def test_a_text_that_stays_throttled_waits_for_another_time(headers, monkeypatch):
    monkeypatch.setattr("learnloop_dataplane.embedding.embedder.LONGEST_REST", 0.01)
    monkeypatch.setitem(POISON, "throttled", lambda text: httpx.Response(429, headers=headers))
    throttles = [True]
    embedder = embedder_that_fails_on(lambda text: throttles[0] and len(text) > 100, "throttled", [])
    short, long = await embedder.embed(["short", "long " * 1000])
    assert (short is not None, long) == (True, None)
    with pytest.raises(Unavailable, match="busy"):
        await embedder.embed(["long " * 1000])
    assert (await embedder.embed(["a question of another namespace"]))[0].any()
    monkeypatch.setattr("learnloop_dataplane.embedding.embedder.THROTTLED_SECONDS", 0.0)
    for throttles[0] in [*[True] * 7, False, *[True] * 9]:  # ten times in a row, after one that it took
        with suppress(Unavailable):
            assert (await embedder.embed(["long " * 1000]))[0].any()
    [given_up] = await embedder.embed(["long " * 1000])
    assert (given_up.any(), embedder.without_vector) == (False, 1)


async def test_recalls_that_leave_a_slow_question_open_nothing_for_others() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        await asyncio.sleep(5.0 if "slow" in texts else 0.0)
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1, 2]}]})

    embedder = HttpEmbedder("http://embedder/v1", "m", 2, transport=httpx.MockTransport(answer))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await embedder.embed(["slow"])
        assert (await embedder.embed(["quick"]))[0].any()


async def test_a_text_that_the_embedder_fails_on_costs_no_namespace_its_vectors(dsn: str, tmp_path: Path) -> None:
    with serving() as url:
        async with running(**settings(dsn, tmp_path, embedder=f"{url}#m", embedder_dimensions=8)) as api:
            await store(api, "victim", ["costly", "the lighthouse is white", "poison " * 900, "the ferry is late"])
            body = {"agent_id": "victim", "context": "white lighthouse"}
            for _ in range(5):
                answer = await api.call("POST", "/api/v1/memory/retrieve", json=body, namespace="team-b")
                assert not answer["degraded"], "another namespace has its vectors"

            async def embedded() -> bool:
                async with api.db.tenant("team-a") as connection:
                    query = "SELECT count(*) FROM memory_index WHERE agent_id = 'victim' AND embedder = $1"
                    return bool(await connection.fetchval(query, api.memory.indexing._embedder.name) == 3)

            await eventually(embedded)
            sent = len(Server.requests)
            await asyncio.sleep(3)  # sweeps go by
            assert not any("poison" in str(request) for request in Server.requests[sent:]), "it is not sent again"
            assert not (await ask(api, "victim", "white lighthouse"))["degraded"]


async def test_recall_goes_on_by_words_while_the_embedder_is_away(dsn: str, tmp_path: Path) -> None:
    with serving() as url:
        pass  # its port is free again: without a server
    values = settings(dsn, tmp_path, embedder=f"{url}#m", embedder_dimensions=8)
    async with running(**values) as api:
        await store(api, "patient", ["the lighthouse is white", "the ferry is late"])
        answer = await ask(api, "patient", "lighthouse")
        assert answer["degraded"] == ["embedder"]
        assert answer["memories"][0]["content"]["text"] == "the lighthouse is white"


@pytest.fixture
def pseudonyms() -> Iterator[str]:
    """The key of a service; what redacts is the process's, which serves other tests without one."""
    yield "0123456789abcdef"
    use_keys(None)


async def test_a_question_is_redacted_as_memories_are(migrated, tmp_path, pseudonyms):
    dsn = migrated(f"redacted_{os.getpid()}")  # a namespace keeps the embedder that another test put in use
    with serving() as url:
        values = settings(dsn, tmp_path, embedder=f"{url}#m", embedder_dimensions=8, pseudonym_key=pseudonyms)
        async with running(**values) as api:
            await store(api, "clerk", ["anna@example.org wants letters", "ben@example.org wants calls"])
            before = len(Server.requests)
            for context in ("what does Ben@Example.org want", {"about": "ben@example.org", "password": "abc"}):
                answer = await ask(api, "clerk", context, k=2)
                assert "wants calls" in answer["memories"][0]["content"]["text"]
            sent = str(Server.requests[before:])
    assert "<EMAIL:" in sent
    assert "@" not in sent
    assert "abc" not in sent


@pytest.mark.parametrize("bad", ["https://host/v1", "magic", "onnx:///nowhere"])
def test_an_embedder_that_cannot_be_is_a_configuration_error(bad: str) -> None:
    with pytest.raises(ConfigError, match="LEARNLOOP_EMBEDDER"):
        open_embedder(bad, 384, None)


def test_a_weaviate_without_an_embedder_is_a_configuration_error(tmp_path: Path) -> None:
    settings = {"dsn": "postgresql://user@localhost/none", "artifacts": f"file://{tmp_path}"}
    config = Config.model_validate(settings | {"weaviate_url": "http://weaviate:8080"})
    with pytest.raises(ConfigError, match="LEARNLOOP_EMBEDDER is none; set an embedder, or no Weaviate"):
        open_vectors(config, None, None)
