"""The embedder port and its choice, how long a recall waits for it, and one behind an OpenAI-compatible API."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from learnloop_common.circuit_breaker import Breaker
from learnloop_dataplane import errors, openai_client

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` is stored with every vector: those of two embedders are never compared."""

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """One float32 vector of length 1 for each text, or all zero for a text without words; None: to be asked again.

        Raises:
            Unavailable: the model does not answer; recall goes by words meanwhile.
        """
        ...


def open_embedder(setting: str, dimensions: int, key: str | None, *, seconds: float = 10.0) -> Embedder | None:
    """`none`, `onnx:///directory`, or `http(s)://host/v1#model`; what is not asked for is not
    imported.

    Args:
        dimensions, key, seconds: of an HTTP embedder: length of its vectors, bearer token, time for an answer.

    Raises:
        ConfigError: the setting is invalid, or the model is not there.
    """
    if setting == "none":
        return None
    if setting.startswith("onnx:///"):
        return OnnxEmbedder(Path(setting.removeprefix("onnx://")))
    url, _, model = setting.partition("#")
    if url.startswith(("http://", "https://")) and model:
        return HttpEmbedder(url, model, dimensions, key, seconds=seconds)
    raise errors.ConfigError(
        f"invalid LEARNLOOP_EMBEDDER={setting}: set none, onnx:///directory or https://host/v1#model"
    )


log = logging.getLogger(__name__)
TOO_SLOW = 3  # questions of a namespace in a row, after which its next ones do without the embedder for a while


class QuestionVectors:
    """Vectors of recalls' questions. An embedder that keeps timing out is left alone for some seconds.

    Args:
        embedder: of a namespace; None: words alone.
        seconds: that a recall waits for the vector.
    """

    def __init__(self, embedder: Callable[[str], Awaitable[Embedder | None]], seconds: float) -> None:
        self._embedder, self._seconds = embedder, seconds
        self._slow: LRUCache[str, Breaker] = LRUCache(1000)

    async def of(self, namespace: str, text: str) -> tuple[str | None, Any, list[str]]:
        """The embedder's name, the question's vector, and what is missing."""
        slow = self._slow.setdefault(namespace, Breaker(after=TOO_SLOW, longest_rest=10.0))
        try:
            embedder = await self._embedder(namespace)
            if embedder is None:
                return None, None, []
            if not slow.allows():
                return None, None, ["embedder"]
            try:
                async with asyncio.timeout(self._seconds):
                    [vector] = await embedder.embed([text])
                slow.worked()
            except TimeoutError:
                slow.failed()
                raise
            finally:
                slow.gave_up()
        except (errors.Unavailable, TimeoutError) as error:
            log.warning("recall goes by words only: %s", error or "the embedder takes too long")
            return None, None, ["embedder"]
        return embedder.name, vector, []


SECONDS = 10.0  # for the vectors of one request
PROBE = "ok"  # a text that every model takes
BATCH, SMALL = 64, 8  # texts of a request, and of one after a request that failed
MOST_CHARACTERS = 16_384  # of a text: no model reads further
SHORTER = (2000, 500)  # characters of a text that failed alone; servers refuse what is longer than their batch
LONGEST_REST = 5.0  # seconds that a throttled text waits
THROTTLED_SECONDS, THROTTLED_TIMES = 3600.0, 10  # throttled for so long and so often: no vector
MOST_BYTES_EACH = 32  # of a number in JSON
AT_A_TIME = 4  # texts that run together in this process: a recall waits for one such run, not for all
MAX_TOKENS = 256
MOST_TEXT = 100 * MAX_TOKENS  # characters: a longer word than 100 is unknown


class HttpEmbedder:
    """Sends texts 64 at a time and normalises the vectors.

    Args:
        url: base of the API, e.g. https://host/v1.
        model: name the server knows the model by. It is part of the embedder's name, as `url` is: a new model, or one
            that another server calls alike, embeds everything again.
        dimensions: length of its vectors; an answer of another length is refused.
        key: bearer token, if the server wants one.
        seconds: for the answer to one request.
    """

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        seconds: float = SECONDS,
    ) -> None:
        self.name = f"http:{model}:{dimensions}:{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"
        self.dimensions = dimensions
        self.without_vector = 0  # texts that were given up
        self._throttled: LRUCache[int, tuple[float, int]] = LRUCache(10_000)  # since when and how often, by hash
        self._model = model
        most = 2**16 + BATCH * dimensions * MOST_BYTES_EACH
        probe = ("embeddings", self._body([PROBE]), lambda answer: self._read(answer, 1))
        self._server = openai_client.ModelServer(url, probe, key, seconds=seconds, most_bytes=most, transport=transport)

    async def embed(self, texts: Sequence[str]) -> list[Vector | None]:
        """See Embedder. A text without anything in it is not sent: its vector is zero. So is that of a text which the
        server does not take even when it is cut short: words find it, and it is not sent again.

        Raises:
            Unavailable: the server embeds nothing, as with a wrong model name, or nothing of this for now.
        """
        vectors: list[Vector | None] = [np.zeros(self.dimensions, dtype=np.float32) for _ in texts]
        places = [place for place, text in enumerate(texts) if text.strip()]
        for place, vector in zip(places, await self._ask([texts[place] for place in places], BATCH), strict=True):
            vectors[place] = vector
            if vector is not None:
                self._throttled.pop(hash(texts[place]), None)
        if places and all(vectors[place] is None for place in places):
            raise errors.Unavailable(f"the embedder {self._server.url} (it is busy)")
        return vectors

    async def _ask(self, texts: list[str], most: int) -> list[Vector | None]:
        """After two texts that the server takes another time the rest waits, too."""
        vectors: list[Vector | None] = []
        for start in range(0, len(texts), most):
            batch = texts[start : start + most]
            try:
                vectors += await self._post(batch)
            except openai_client.NotTaken as problem:
                if len(batch) == 1:
                    vectors.append(await self._insist(batch[0], problem))
                else:  # one text must not keep the others from theirs
                    vectors += await self._ask(batch, SMALL if most > SMALL else 1)
            if sum(vector is None for vector in vectors) > 1:
                return [*vectors, *[None] * (len(texts) - len(vectors))]
        return vectors

    async def _insist(self, text: str, problem: openai_client.NotTaken) -> Vector | None:
        """The vector of a text that failed alone: after the rest, of its beginning, or zero when that fails, too."""
        for most in (*([MOST_CHARACTERS] if problem.rest else []), *SHORTER):
            await asyncio.sleep(min(problem.rest, LONGEST_REST))
            try:
                return (await self._post([text[:most]]))[0]
            except openai_client.NotTaken as again:
                problem = again
        if problem.rest:
            since, times = self._throttled.get(hash(text), (time.monotonic(), 0))
            self._throttled[hash(text)] = since, times + 1
            if time.monotonic() - since < THROTTLED_SECONDS or times + 1 < THROTTLED_TIMES:  # no zeros yet
                log.info("the embedder %s has no vector for a text now: %s", self.name, problem)
                return None
        if problem.refused and not await self._server.works():
            raise errors.Unavailable(f"the embedder {self._server.url} ({problem}, whatever the text)") from problem
        self.without_vector += 1
        log.warning("the embedder %s has no vector for a text of %d characters: %s", self.name, len(text), problem)
        return np.zeros(self.dimensions, dtype=np.float32)

    async def _post(self, texts: list[str]) -> list[Vector]:
        return await self._server.post("embeddings", self._body(texts), lambda answer: self._read(answer, len(texts)))

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        # A lone surrogate, which JSON can escape and UTF-8 cannot hold, becomes a question mark.
        sent = [text[:MOST_CHARACTERS].encode(errors="replace").decode() for text in texts]
        return {"model": self._model, "input": sent}

    def _read(self, body: Any, expected: int) -> list[Vector]:
        rows = sorted(body["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(expected)):
            raise ValueError(f"{len(rows)} vectors for {expected} texts")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            matrix = np.array([row["embedding"] for row in rows], dtype=np.float32)
        if matrix.shape != (expected, self.dimensions) or not np.isfinite(matrix).all():
            raise ValueError(f"vectors of shape {matrix.shape}, expected {(expected, self.dimensions)} finite numbers")
        wide = matrix.astype(np.float64)  # squares of what single precision holds overflow and vanish in it
        lengths = np.linalg.norm(wide, axis=1, keepdims=True)
        return list((wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32))


class OnnxEmbedder:
    """A sentence-transformer run by onnxruntime from a directory: nothing is downloaded, ever.

    The directory holds `model.onnx` (inputs input_ids, attention_mask and, if the model wants them, token_type_ids;
    first output the token states [batch, tokens, dimensions]) and `vocab.txt`, one WordPiece a line, as BERT models
    have them. A vector is the mean of the token states, as sentence-transformers pools them, normalised.

    Raises:
        ConfigError: the directory does not hold such a model.
    """

    def __init__(self, directory: Path) -> None:
        model, vocabulary = directory / "model.onnx", directory / "vocab.txt"
        try:
            import onnxruntime
            from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

            content = model.read_bytes()
            self._tokens = BertWordPieceTokenizer.from_file(str(vocabulary))
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own errors have no common class
            raise errors.ConfigError(f"LEARNLOOP_EMBEDDER: {directory} holds no ONNX model: {error}") from error
        self._tokens.enable_truncation(MAX_TOKENS)
        self._tokens.enable_padding()
        self._inputs = {item.name for item in self._session.get_inputs()}
        self.dimensions = len(self._run([""])[0])
        # The content's hash, not the path: another model under the same path embeds everything again.
        self.name = f"onnx:{hashlib.sha256(content).hexdigest()[:12]}:{self.dimensions}"
        self._one = asyncio.Lock()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. Callers take turns run by run: who asks for one vector never waits for another's thousand."""
        vectors: list[Vector] = [np.zeros(self.dimensions, np.float32)] * len(texts)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # of a length together: little is padded
        for places in (order[start : start + AT_A_TIME] for start in range(0, len(order), AT_A_TIME)):
            async with self._one:
                run = await asyncio.to_thread(self._run, [texts[place] for place in places])
            for place, vector in zip(places, run, strict=True):
                if texts[place].strip():
                    vectors[place] = vector
        return vectors

    def _run(self, texts: Sequence[str]) -> list[Vector]:
        # UTF-8, which the library wants, cannot hold a lone surrogate.
        rows = self._tokens.encode_batch([text[:MOST_TEXT].encode(errors="replace").decode() for text in texts])
        ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        pooled /= np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return list(np.nan_to_num(pooled, posinf=0.0, neginf=0.0).astype(np.float32))
