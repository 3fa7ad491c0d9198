"""The embedder port, an embedder behind an OpenAI-compatible `/embeddings`, and the choice of the configuration."""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.errors import ConfigError, Unavailable
from learnloop_dataplane.model_servers import ModelServer, NotTaken

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit vectors. `name` is stored with every vector: those of two embedders are never compared."""

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One float32 vector of length 1 for each text, or all zero for a text without words.

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
        from learnloop_dataplane.embedding.onnx_model import OnnxEmbedder

        return OnnxEmbedder(Path(setting.removeprefix("onnx://")))
    url, _, model = setting.partition("#")
    if url.startswith(("http://", "https://")) and model:
        return HttpEmbedder(url, model, dimensions, key, seconds=seconds)
    raise ConfigError(f"invalid LEARNLOOP_EMBEDDER={setting}: set none, onnx:///directory or https://host/v1#model")


log = logging.getLogger(__name__)
SECONDS = 10.0  # for the vectors of one request
PROBE = "ok"  # a text that every model takes
BATCH, SMALL = 64, 8  # texts of a request, and of one after a request that failed
MOST_CHARACTERS = 16_384  # of a text: no model reads further
SHORTER = (2000, 500)  # characters of a text that failed alone; servers refuse what is longer than their batch
LONGEST_REST = 5.0  # seconds that a throttled text waits
MOST_BYTES_EACH = 32  # of a number in JSON


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
        self._model = model
        most = 2**16 + BATCH * dimensions * MOST_BYTES_EACH
        probe = ("embeddings", self._body([PROBE]), lambda answer: self._read(answer, 1))
        self._server = ModelServer(url, probe, key, seconds=seconds, most_bytes=most, transport=transport)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. A text without anything in it is not sent: its vector is zero. So is that of a text which the
        server does not take even when it is cut short: words find it, and it is not sent again.

        Raises:
            Unavailable: the server embeds nothing, as with a wrong model name, or no more for now.
        """
        vectors = [np.zeros(self.dimensions, dtype=np.float32) for _ in texts]
        places = [place for place, text in enumerate(texts) if text.strip()]
        for place, vector in zip(places, await self._ask([texts[place] for place in places], BATCH), strict=True):
            vectors[place] = vector
        return vectors

    async def close(self) -> None:
        """Closes its connections."""
        await self._server.close()

    async def _ask(self, texts: list[str], most: int) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), most):
            batch = texts[start : start + most]
            try:
                vectors += await self._post(batch)
            except NotTaken as problem:
                if len(batch) == 1:
                    vectors.append(await self._insist(batch[0], problem))
                else:  # one text must not keep the others from theirs
                    vectors += await self._ask(batch, SMALL if most > SMALL else 1)
        return vectors

    async def _insist(self, text: str, problem: NotTaken) -> Vector:
        """The vector of a text that failed alone: after the rest, of its beginning, or zero when that fails, too."""
        for most in (*([MOST_CHARACTERS] if problem.rest else []), *SHORTER):
            await asyncio.sleep(min(problem.rest, LONGEST_REST))
            try:
                return (await self._post([text[:most]]))[0]
            except NotTaken as again:
                problem = again
        if problem.rest:  # the server counts what it is sent: no vector of zeros for what it takes another time
            raise Unavailable(f"the embedder {self._server.url} ({problem})", retry_after=max(1, round(problem.rest)))
        if problem.refused and not await self._server.works():
            raise Unavailable(f"the embedder {self._server.url} ({problem}, whatever the text)") from problem
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
