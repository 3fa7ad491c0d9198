"""An embedder behind an OpenAI-compatible `/embeddings`: vLLM, TEI, Ollama, LiteLLM or a provider."""

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from learnloop_dataplane.embedding.embedder import TRUST, Vector
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.model_servers.openai_api import ModelServer, NotTaken

log = logging.getLogger(__name__)
SECONDS = 10.0  # for the vectors of one request
PROBE = "ok"  # a text that every model takes
BATCH = 64
MOST_CHARACTERS = 16_384  # of a text: no model reads further
MOST_BYTES_EACH = 32  # of a number in JSON


class HttpEmbedder:
    """Sends texts 64 at a time and normalises what comes back.

    Args:
        url: base of the API, e.g. https://host/v1.
        model: name the server knows the model by. It is part of the embedder's name, as `url` is: a new model, or one
            that another server calls alike, embeds everything anew.
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
        self.instant = False
        self.trust = TRUST
        self._model = model
        most = 2**16 + BATCH * dimensions * MOST_BYTES_EACH
        self._server = ModelServer(url, key, seconds=seconds, most_bytes=most, transport=transport)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """See Embedder. A text without anything in it is not sent: its vector is zero.

        Raises:
            Unavailable: no answer, an error, or an answer that is not as many vectors of the right length.
        """
        vectors = [np.zeros(self.dimensions, dtype=np.float32) for _ in texts]
        asked = [place for place, text in enumerate(texts) if text.strip()]
        for start in range(0, len(asked), BATCH):
            places = asked[start : start + BATCH]
            for place, vector in zip(places, await self._ask([texts[place] for place in places]), strict=True):
                vectors[place] = vector
        return vectors

    async def close(self) -> None:
        """Closes its connections."""
        await self._server.close()

    async def _ask(self, texts: list[str]) -> list[Vector]:
        try:
            return await self._post(texts)
        except NotTaken as refusal:
            return await self._ask_apart(texts, refusal.status)

    async def _post(self, texts: list[str]) -> list[Vector]:
        # A lone surrogate, which JSON can escape and UTF-8 cannot hold, becomes a question mark.
        sent = [text[:MOST_CHARACTERS].encode(errors="replace").decode() for text in texts]
        return await self._server.post(
            "embeddings", {"model": self._model, "input": sent}, lambda answer: self._read(answer, len(texts))
        )

    async def _ask_apart(self, texts: list[str], status: int) -> list[Vector]:
        """One text that the server does not take must not keep the others from theirs. Alone it gets no direction: it
        is found by its words, and not asked again.

        Raises:
            Unavailable: the server takes no text at all; a wrong model name looks like this.
        """
        if len(texts) == 1:
            try:
                await self._post([PROBE])
            except NotTaken as refusal:
                self._server.distrust()
                raise Unavailable(f"the embedder {self._server.url} ({refusal}, whatever the text)") from refusal
            log.warning(
                "the embedder %s refuses a text of %d characters with %d", self._server.url, len(texts[0]), status
            )
            return [np.zeros(self.dimensions, dtype=np.float32)]
        middle = len(texts) // 2
        return [*await self._ask(texts[:middle]), *await self._ask(texts[middle:])]

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
